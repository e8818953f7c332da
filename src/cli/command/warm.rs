//! `holdfast warm`

mod done;

use std::{collections::BTreeSet, time::Duration};

use bytesize::ByteSize;
use clap::{Args, value_parser};
use futures_util::future;
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{self, Instant},
};

use self::done::{Count, Done};
use super::inspect::at;
use crate::cli::{
    admin::{AdminClient, AdminTarget},
    blocks::Blocks,
    failure::Failure,
    numbers::Numbers,
    output::say,
    progress::Progress,
    runtime::run,
    signal::StopSignals,
};
use crate::{
    backoff::Backoff,
    config::LogConfig,
    display::{RoughDuration, Wait},
};

/// Time limit of a request. It is longer than the time that the instance itself waits for its upstream.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Number of attempts to fetch one block, if the failures may be temporary.
const ATTEMPTS: u32 = 5;

/// Pauses between attempts: half a second, doubled each time.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(4));

/// Longest time that one block may wait because of rate limits.
const PATIENCE: Duration = Duration::from_secs(600);

/// Wait after a reply with status 429 or 503 that has no `retry-after`.
const USUAL_WAIT: Duration = Duration::from_secs(1);

/// Number of failed blocks in a row after which the command gives up.
const MOST_FAILED_IN_A_ROW: u32 = 10;

/// Time limit for blocks in flight after a signal to stop.
const ENDING: Duration = Duration::from_secs(10);

/// Durations of this length or more are shown in minutes.
const MINUTE: Duration = Duration::from_secs(60);

const DEFAULT_CONCURRENCY: u8 = 4;

/// Have a running instance fetch blocks before clients ask for them.
///
/// The instance fetches each block once, within the rate limits of its endpoints, then verifies and caches it, as for
/// any call. Blocks that are in memory, on disk or in Redis already cost no upstream call, so a run that was stopped
/// can continue later, with the command that it prints. Blocks that are not final yet may have to be fetched again.
///
/// Exits with 0 if all blocks are cached, with 1 if some are not, with 130 if it was stopped (ctrl-c).
///
/// If the instance requires a token (admin_token), set the environment variable HOLDFAST_ADMIN_TOKEN.
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
    /// The instance replied.
    Told(Value),
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
            let mut client = self.target.client(TIMEOUT)?;
            let last = match self.blocks.to {
                Some(last) => last,
                None => tokio::select! {
                    latest = self.latest(&mut client) => latest?,
                    () = stop.next() => return Err(Failure::Interrupted),
                },
            };
            if last < self.blocks.from {
                let from = self.blocks.from;
                return Err(Failure::Other(format!("the chain ends at {last}, before {from}")));
            }
            Run::new(self, last).run(stop).await
        })
    }

    /// Makes the instance fetch the newest block, and returns its number.
    async fn latest(&self, client: &mut AdminClient) -> Result<u64, Failure> {
        let path = self.path("latest");
        let reply = client.post(&path).await.map_err(Failure::Other)?;
        let told = reply.value(&path).map_err(|why| at(&self.target, &why))?;
        told["number"].as_u64().ok_or_else(|| at(&self.target, "the newest block has no number"))
    }

    fn path(&self, block: &str) -> String {
        let receipts = if self.receipts { "&receipts=true" } else { "" };
        format!("/warm?block={block}{receipts}")
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
        command + &self.target.flags()
    }
}

// === impl Run ===

impl Run {
    fn new(warm: WarmArgs, last: u64) -> Self {
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
            stop: watch::Sender::new(false),
            state: Mutex::new(state),
        }
    }

    /// Fetches all blocks, or stops at a signal.
    async fn run(&self, mut stop: StopSignals) -> Result<(), Failure> {
        let begun = Instant::now();
        let workers = (0..self.warm.concurrency).map(|_| self.work());
        let mut working = std::pin::pin!(future::try_join_all(workers));
        let stopped = tokio::select! {
            worked = &mut working => {
                worked?;
                false
            }
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
        self.report(stopped, begun.elapsed()).await
    }

    /// Fetches one block after another.
    async fn work(&self) -> Result<(), Failure> {
        let mut client = self.warm.target.client(TIMEOUT)?;
        while let Some(number) = self.take() {
            let outcome = self.warm(&mut client, number).await;
            self.heed(number, outcome);
        }
        Ok(())
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

    async fn warm(&self, client: &mut AdminClient, number: u64) -> BlockOutcome {
        let path = self.warm.path(&number.to_string());
        let begun = Instant::now();
        let (mut attempt, mut backoff) = (1, PAUSES);
        loop {
            if !self.rest().await {
                return BlockOutcome::Left;
            }
            let reply = client.post(&path).await;
            let (why, wait) = match reply {
                Ok(reply) => {
                    let why = match reply.value(&path) {
                        Ok(told) => return BlockOutcome::Told(told),
                        Err(why) => why,
                    };
                    match reply.status {
                        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                            (why, Some(reply.retry_after.unwrap_or(USUAL_WAIT)))
                        }
                        status if status.is_server_error() => (why, None),
                        _ => return BlockOutcome::Fatal(why),
                    }
                }
                Err(why) if attempt == ATTEMPTS => return BlockOutcome::Fatal(why),
                Err(why) => (why, None),
            };
            match wait {
                // All workers wait, because they share the rate limit.
                Some(wait) if begun.elapsed() + wait < PATIENCE => self.wait(wait, &why),
                None if attempt < ATTEMPTS => {
                    let mut stopped = self.stop.subscribe();
                    let _ = time::timeout(backoff.next_pause(), stopped.wait_for(|stopped| *stopped)).await;
                    attempt += 1;
                }
                _ => return BlockOutcome::Failed(why),
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
            BlockOutcome::Told(told) if told["block"]["outcome"] == "above" => {
                let why = told["block"]["reason"].as_str().unwrap_or("there is no such block yet").to_owned();
                state.done.failed.insert(number);
                state.done.why_failed.clone_from(&why);
                state.ended = Some(why);
                return;
            }
            BlockOutcome::Told(told) => {
                state.done.take(number, &told);
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

    async fn report(&self, stopped: bool, took: Duration) -> Result<(), Failure> {
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
            say(format_args!("{tier} is not confirmed for this chain, so it stores no blocks"))?;
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
        let is_kept = done.unkept.is_empty() && keeping.unwritten.is_empty();
        match (stopped, left.is_none() && is_kept) {
            (true, _) => Err(Failure::Interrupted),
            (false, true) => Ok(()),
            (false, false) => Err(Failure::Said),
        }
    }
}

/// Where the instance stores the blocks that it fetched.
#[derive(Default)]
struct Keeping {
    /// Size of the cache in memory, if no tier stores the blocks.
    memory: Option<u64>,
    /// Tiers whose writes fail.
    unwritten: Vec<String>,
    /// Tiers that are not confirmed for this chain, and store nothing.
    unused: Vec<String>,
}

// === impl Keeping ===

impl Keeping {
    async fn of(target: &AdminTarget) -> Self {
        let status = async { target.client(ENDING).ok()?.get("/status").await.ok()?.value("/status").ok() };
        let Some(status) = status.await else { return Self::default() };
        let tiers = status["tiers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let names = |is_one: &dyn Fn(&Value) -> bool| {
            let some = tiers.iter().filter(|tier| is_one(tier)).filter_map(|tier| tier["tier"].as_str());
            some.map(str::to_owned).collect::<Vec<_>>()
        };
        let unwritten = names(&|tier| tier["writing"] == false);
        let unused = names(&|tier| tier["writing"] == true && tier["confirmed"] == false);
        let is_all = unwritten.len() + unused.len() == tiers.len();
        Self { memory: status["cache"]["capacity"].as_u64().filter(|_| is_all), unwritten, unused }
    }
}
