//! `holdfast warm`

mod done;
mod keeping;
mod rpc;

use std::{collections::BTreeSet, time::Duration};

use bytesize::ByteSize;
use clap::{Args, value_parser};
use futures_util::future;
use parking_lot::Mutex;
use reqwest::Url;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{self, Instant},
};

use self::{
    done::{Count, Done},
    keeping::Keeping,
    rpc::{ATTEMPTS, BLOCK, Kept, RECEIPTS, Reply, RpcClient, Trouble, USUAL_WAIT},
};
use crate::cli::{
    admin::AdminTarget, blocks::Blocks, failure::Failure, numbers::Numbers, output::say, progress::Progress,
    runtime::run, signal::StopSignals,
};
use crate::{
    backoff::Backoff,
    config::{ENV_KEY, LogConfig},
    display::{RoughDuration, Wait},
};

/// Pauses between attempts: half a second, doubled each time.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(4));

/// Longest time that one block may wait because of rate limits.
const PATIENCE: Duration = Duration::from_secs(600);

/// Number of failed blocks in a row after which the command gives up.
const MOST_FAILED_IN_A_ROW: u32 = 10;

/// Time limit for blocks in flight after a signal to stop.
const ENDING: Duration = Duration::from_secs(10);

/// Durations of this length or more are shown in minutes.
const MINUTE: Duration = Duration::from_secs(60);

const DEFAULT_CONCURRENCY: u8 = 4;

/// Have a running instance fetch blocks before clients ask for them.
///
/// Sends ordinary calls. The header cache-status of each response shows whether the block is cached. Blocks that are in
/// memory, on disk or in Redis already cost no upstream call, so a run that was stopped can continue later, with the
/// command that it prints. Blocks that are not final yet may have to be fetched again.
///
/// Exits with 0 if all blocks are cached, with 1 if some are not, with 130 if it was stopped (ctrl-c).
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct WarmArgs {
    /// From block A to block B, both included; B can be "latest"
    #[arg(long, value_name = "A..B", value_parser = Blocks::until_latest)]
    blocks: Blocks,

    /// Fetch the receipts of the blocks, too
    #[arg(long)]
    receipts: bool,

    /// Blocks to fetch at a time, up to 16
    #[arg(long, value_name = "N", default_value_t = DEFAULT_CONCURRENCY, value_parser = value_parser!(u8).range(1..=16))]
    concurrency: u8,

    /// The instance's client listener [default: http://127.0.0.1:8555]
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// API key for the instance, if it requires one (http.keys)
    #[arg(long, value_name = "KEY", env = ENV_KEY, hide_env_values = true)]
    key: Option<String>,

    #[command(flatten)]
    target: AdminTarget,
}

const EXAMPLES: &str = "\
Examples:
  holdfast warm --blocks 19000000..19000999              a thousand blocks
  holdfast warm --blocks 19000000..latest --receipts     all since that block, with receipts
  holdfast warm --blocks 0..99 --concurrency 1           one at a time";

/// State that all workers share.
struct Run {
    warm: WarmArgs,
    client: RpcClient,
    progress: Progress,
    stop: watch::Sender<bool>,
    state: Mutex<State>,
}

struct State {
    next: u64,
    last: u64,
    /// Blocks in flight.
    taken: BTreeSet<u64>,
    /// Time before which no worker sends a request.
    not_before: Option<Instant>,
    failed_in_a_row: u32,
    /// Reason why the workers stopped early.
    ended: Option<String>,
    done: Done,
}

/// Outcome of one block.
enum BlockOutcome {
    /// The instance answered for the block and, if requested, for its receipts.
    Answered(Kept, Option<Kept>),
    /// The chain ends at this lower block.
    Above(u64),
    /// The block could not be fetched, for this reason.
    Failed(String),
    /// No block can be fetched, for this reason.
    Fatal(String),
    /// The command stopped before it fetched the block.
    Left,
}

// === impl WarmArgs ===

impl WarmArgs {
    pub(in crate::cli) fn run(self) -> Result<(), Failure> {
        run(&LogConfig::default(), async move {
            let mut stop = StopSignals::listen()
                .map_err(|error| Failure::Other(format!("cannot install signal handlers: {error}")))?;
            let client = RpcClient::new(self.url.as_deref(), self.key.as_deref())?;
            let last = match self.blocks.to {
                Some(last) => last,
                None => tokio::select! {
                    latest = client.latest() => latest?,
                    () = stop.next() => return Err(Failure::Interrupted),
                },
            };
            if last < self.blocks.from {
                let from = self.blocks.from;
                return Err(Failure::Other(format!("the chain ends at {last}, before {from}")));
            }
            Run::new(self, client, last).run(stop).await
        })
    }

    /// Returns the command that continues from this block.
    fn command(&self, from: u64) -> String {
        let mut command = format!("holdfast warm --blocks {}", Blocks { from, ..self.blocks });
        if self.receipts {
            command.push_str(" --receipts");
        }
        if self.concurrency != DEFAULT_CONCURRENCY {
            command.push_str(&format!(" --concurrency {}", self.concurrency));
        }
        if let Some(url) = &self.url {
            // The URL may hold a key.
            let is_plain = Url::parse(url)
                .is_ok_and(|url| url.as_str().trim_end_matches('/') == url.origin().ascii_serialization());
            command.push_str(&format!(" --url {}", if is_plain { url } else { "URL" }));
        }
        command + &self.target.flags()
    }
}

// === impl Run ===

impl Run {
    fn new(warm: WarmArgs, client: RpcClient, last: u64) -> Self {
        let state = State {
            next: warm.blocks.from,
            last,
            taken: BTreeSet::new(),
            not_before: None,
            failed_in_a_row: 0,
            ended: None,
            done: Done::default(),
        };
        Self {
            progress: Progress::new((last - warm.blocks.from).saturating_add(1)),
            warm,
            client,
            stop: watch::Sender::new(false),
            state: Mutex::new(state),
        }
    }

    /// Fetches all blocks, or stops at a signal.
    async fn run(&self, mut stop: StopSignals) -> Result<(), Failure> {
        let dropped = Keeping::of(&self.warm.target).await.dropped;
        let begun = Instant::now();
        let workers = (0..self.warm.concurrency).map(|_| self.work());
        let mut working = std::pin::pin!(future::join_all(workers));
        let stopped = tokio::select! {
            _ = &mut working => false,
            () = stop.next() => true,
        };
        if stopped {
            self.stop.send_replace(true);
            self.progress.say("stopping after the blocks in flight; press ctrl-c again to stop at once");
            tokio::select! {
                _ = time::timeout(ENDING, working) => {}
                () = stop.next() => {}
            }
        }
        self.progress.end();
        self.report(stopped, begun.elapsed(), dropped).await
    }

    /// Fetches one block after another.
    async fn work(&self) {
        while let Some(number) = self.take() {
            let outcome = self.warm(number).await.unwrap_or_else(|outcome| outcome);
            self.heed(number, outcome);
        }
    }

    fn take(&self) -> Option<u64> {
        let mut state = self.state.lock();
        if *self.stop.borrow() || state.ended.is_some() || state.next > state.last {
            return None;
        }
        let number = state.next;
        state.next += 1;
        state.taken.insert(number);
        Some(number)
    }

    /// Fetches a block and, if requested, its receipts. The error is an outcome, too.
    async fn warm(&self, number: u64) -> Result<BlockOutcome, BlockOutcome> {
        let at = format!("{number:#x}");
        let lacking = || Kept::No("the node does not have this data".to_owned());
        let block = self.ask(BLOCK, json!([at, true])).await?;
        if block.result == Some(Value::Null) {
            let latest = self.client.latest().await;
            let head = latest.map_err(|failure| BlockOutcome::Failed(failure.to_string()))?;
            return Ok(match head < number {
                true => BlockOutcome::Above(head),
                false => BlockOutcome::Answered(lacking(), None),
            });
        }
        if !self.warm.receipts || matches!(block.kept, Kept::No(_)) {
            return Ok(BlockOutcome::Answered(block.kept, None));
        }
        let receipts = self.ask(RECEIPTS, json!([at])).await?;
        let is_absent = receipts.result == Some(Value::Null);
        Ok(BlockOutcome::Answered(block.kept, Some(if is_absent { lacking() } else { receipts.kept })))
    }

    /// Sends a call, again after limits and failures that may be temporary.
    async fn ask(&self, method: &str, params: Value) -> Result<Reply, BlockOutcome> {
        let begun = Instant::now();
        let (mut attempt, mut backoff) = (1, PAUSES);
        loop {
            if !self.rest().await {
                return Err(BlockOutcome::Left);
            }
            match self.client.call(method, params.clone()).await {
                Ok(reply) => return Ok(reply),
                Err(Trouble::Fatal(why)) => return Err(BlockOutcome::Fatal(why)),
                // All workers wait, because they share the rate limit.
                Err(Trouble::Limit(wait, why)) if begun.elapsed() + wait < PATIENCE => self.wait(wait, &why),
                Err(Trouble::Failure(_) | Trouble::Unreachable(_)) if attempt < ATTEMPTS => {
                    let mut stopped = self.stop.subscribe();
                    let _ = time::timeout(backoff.next_pause(), stopped.wait_for(|stopped| *stopped)).await;
                    attempt += 1;
                }
                Err(Trouble::Limit(_, why) | Trouble::Failure(why)) => return Err(BlockOutcome::Failed(why)),
                Err(Trouble::Unreachable(why)) => return Err(BlockOutcome::Fatal(why)),
            }
        }
    }

    /// Makes all workers wait.
    fn wait(&self, wait: Duration, why: &str) {
        let until = Instant::now() + wait;
        let mut state = self.state.lock();
        if state.not_before.is_none_or(|before| before + USUAL_WAIT < until) {
            self.progress.waits(Some(&format!("waiting {}: {why}", RoughDuration(wait))));
        }
        state.not_before = state.not_before.max(Some(until));
    }

    /// Waits until workers may send requests. Returns whether to continue.
    async fn rest(&self) -> bool {
        let mut stopped = self.stop.subscribe();
        loop {
            if *stopped.borrow_and_update() {
                return false;
            }
            let until = self.state.lock().not_before;
            let Some(until) = until.filter(|until| *until > Instant::now()) else { return true };
            let _ = time::timeout_at(until, stopped.changed()).await;
            if !*stopped.borrow() {
                self.progress.waits(None);
            }
        }
    }

    fn heed(&self, number: u64, outcome: BlockOutcome) {
        let mut state = self.state.lock();
        state.taken.remove(&number);
        let failed = match outcome {
            BlockOutcome::Above(head) => {
                let why = format!("the chain ends at {head}");
                state.done.failed.insert(number);
                state.done.why_failed.clone_from(&why);
                state.ended = Some(why);
                return;
            }
            BlockOutcome::Answered(block, receipts) => {
                state.done.take(number, block, receipts);
                None
            }
            BlockOutcome::Failed(why) => Some(why),
            BlockOutcome::Fatal(why) => {
                state.ended = Some(why.clone());
                Some(why)
            }
            BlockOutcome::Left => {
                state.next = state.next.min(number);
                return;
            }
        };
        match failed {
            None => state.failed_in_a_row = 0,
            Some(why) => {
                state.done.failed.insert(number);
                state.failed_in_a_row += 1;
                if state.failed_in_a_row == MOST_FAILED_IN_A_ROW {
                    state.ended =
                        Some(format!("{MOST_FAILED_IN_A_ROW} blocks in a row could not be fetched"));
                }
                state.done.why_failed = why;
            }
        }
        drop(state);
        self.progress.step();
    }

    async fn report(&self, stopped: bool, took: Duration, dropped: u64) -> Result<(), Failure> {
        let keeping = Keeping::of(&self.warm.target).await;
        let state = self.state.lock();
        let done = &state.done;
        say(format_args!(
            "blocks: {} fetched, {} already cached, {} failed",
            done.blocks.fetched,
            done.blocks.present,
            done.failed.len()
        ))?;
        if self.warm.receipts {
            let Count { fetched, present } = &done.receipts;
            say(format_args!("receipts: fetched for {fetched} blocks, already cached for {present}"))?;
        }
        let shown = if took < MINUTE { Wait(took).to_string() } else { RoughDuration(took).to_string() };
        say(format_args!("{} fetched in {shown}", ByteSize(done.bytes)))?;
        if !done.unkept.is_empty() {
            let why = &done.why_unkept;
            say(format_args!("not cached: {} ({why})", Numbers(&done.unkept)))?;
        }
        if !done.failed.is_empty() {
            let why = &done.why_failed;
            say(format_args!("failed: {} ({why})", Numbers(&done.failed)))?;
        }
        for tier in &keeping.unwritten {
            say(format_args!(
                "writes to {tier} fail, so some blocks may be missing there; the log of the instance has the reason"
            ))?;
        }
        for tier in &keeping.unused {
            say(format_args!("{tier} does not store blocks of this chain"))?;
        }
        let lost = keeping.dropped.saturating_sub(dropped);
        if lost > 0 {
            say(format_args!(
                "{lost} parts of blocks were not written to tiers, because too many writes waited; they are in memory only"
            ))?;
        }
        if let Some(capacity) = keeping.memory.filter(|capacity| *capacity < done.bytes) {
            say(format_args!(
                "this is more than the cache holds ({}), so the first blocks have been evicted; raise cache.size",
                ByteSize(capacity)
            ))?;
        }
        if let Some(why) = &state.ended {
            say(format_args!("stopped early: {why}"))?;
        }
        let next = (state.next <= state.last).then_some(state.next);
        let left = [state.taken.first().copied(), done.failed.first().copied(), next];
        let left = left.into_iter().flatten().min();
        if let Some(left) = left {
            say(format_args!("to continue:\n  {}", self.warm.command(left)))?;
        }
        let is_kept = done.unkept.is_empty() && keeping.unwritten.is_empty() && lost == 0;
        match (stopped, left.is_none() && is_kept) {
            (true, _) => Err(Failure::Interrupted),
            (false, true) => Ok(()),
            (false, false) => Err(Failure::Said),
        }
    }
}
