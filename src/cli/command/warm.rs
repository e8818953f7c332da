//! `holdfast warm`

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use bytesize::ByteSize;
use clap::{Args, value_parser};
use futures_util::future;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use parking_lot::Mutex;
use reqwest::Url;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{self, Instant},
};

use crate::cli::{
    admin::AdminTarget,
    blocks::Blocks,
    client::{Advice, InstanceClient},
    failure::Failure,
    numbers::Numbers,
    output::say,
    progress::Progress,
    runtime::run,
    signal::StopSignals,
};
use crate::{
    backoff::Backoff,
    config::{Config, ENV_KEY, LogConfig},
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

const BLOCK: &str = "eth_getBlockByNumber";
const RECEIPTS: &str = "eth_getBlockReceipts";

/// Have a running instance fetch blocks before clients ask for them.
///
/// Sends the calls that a client would send, and reads in their responses what is cached. Blocks that are in memory, on
/// disk or in Redis already cost no upstream call, so a run that was stopped can continue later, with the command that
/// it prints. Blocks that are not final yet may have to be fetched again.
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

const ADVICE: Advice = Advice {
    address: "use the URL of the client listener, with https:// if it speaks TLS (tls)",
    plain: "write the URL with http:// unless tls is set",
};

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

/// Client of the client listener.
struct RpcClient {
    client: InstanceClient,
    /// Host and port, for messages.
    address: String,
    headers: HeaderMap,
}

/// Answer of the instance to a call.
struct Reply {
    /// `None` for an error.
    result: Option<Value>,
    kept: Kept,
}

/// Whether the content of an answer is cached.
enum Kept {
    /// Fetched now, with this many bytes.
    Fetched(u64),
    Present,
    /// Not cached, for this reason. An immediate retry would not help.
    No(String),
}

/// Reason why a call has no answer.
enum Trouble {
    /// The instance or its upstream limits calls. All workers should wait.
    Limit(Duration, String),
    /// A failure that may be temporary.
    Failure(String),
    /// The instance does not answer.
    Unreachable(String),
    /// A failure that further calls would meet, too.
    Fatal(String),
}

/// Results so far.
#[derive(Default)]
struct Done {
    blocks: Count,
    receipts: Count,
    bytes: u64,
    failed: BTreeSet<u64>,
    unkept: BTreeSet<u64>,
    /// Reason of the last failure.
    why_failed: String,
    /// Reason why the last of the uncached blocks was not cached.
    why_unkept: String,
}

#[derive(Default)]
struct Count {
    fetched: u64,
    present: u64,
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
            let client = self.client()?;
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

    fn client(&self) -> Result<RpcClient, Failure> {
        let bad = |why: &str| Failure::Other(format!("--url: {why}, such as http://127.0.0.1:8555"));
        let url = self.url.clone().unwrap_or_else(|| format!("http://{}", Config::default().listen));
        // The URL may hold a key, so no message shows it.
        let url = Url::parse(&url).map_err(|_| bad("expected the URL of the client listener"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(bad("the scheme must be http or https"));
        }
        let mut headers =
            HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        if let Some(key) = &self.key {
            let bad = || Failure::Other(format!("--key or {ENV_KEY} has characters that no header allows"));
            let mut bearer: HeaderValue = format!("Bearer {}", key.trim()).parse().map_err(|_| bad())?;
            bearer.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, bearer);
        }
        // A certificate seldom names loopback.
        let is_loopback = url.host_str().is_some_and(|host| {
            host == "localhost"
                || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        });
        // Plain HTTP needs no root certificates, and a small container has none.
        let any_certificate = is_loopback || url.scheme() == "http";
        let port = url.port_or_known_default().unwrap_or_default();
        let address = format!("{}:{port}", url.host_str().unwrap_or_default());
        Ok(RpcClient {
            client: InstanceClient::new(url, TIMEOUT, any_certificate, ADVICE)?,
            address,
            headers,
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

// === impl RpcClient ===

impl RpcClient {
    /// Returns the number of the newest block.
    async fn latest(&self) -> Result<u64, Failure> {
        let mut attempt = 1;
        loop {
            let (pause, why) = match self.call("eth_blockNumber", json!([])).await {
                Ok(Reply { result, .. }) => {
                    let number = result.as_ref().and_then(|result| result.as_str()?.strip_prefix("0x"));
                    let number = number.and_then(|number| u64::from_str_radix(number, 16).ok());
                    return number.ok_or_else(|| Failure::Other("the newest block has no number".to_owned()));
                }
                Err(Trouble::Limit(wait, why)) => (wait, why),
                Err(Trouble::Failure(why) | Trouble::Unreachable(why)) => (USUAL_WAIT, why),
                Err(Trouble::Fatal(why)) => return Err(Failure::Other(why)),
            };
            if attempt == ATTEMPTS {
                return Err(Failure::Other(why));
            }
            attempt += 1;
            time::sleep(pause).await;
        }
    }

    /// Sends one call, and reads from its response whether the content is cached.
    async fn call(&self, method: &str, params: Value) -> Result<Reply, Trouble> {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let sent = self.client.send(Method::POST, "", self.headers.clone(), call).await;
        let response = sent.map_err(|why| Trouble::Unreachable(format!("{}: {why}", self.address)))?;
        let status = response.status;
        let reply: Option<Value> = serde_json::from_slice(&response.body).ok();
        let error = reply.as_ref().and_then(|reply| reply.get("error"));
        if error.is_some() || status != StatusCode::OK {
            let why = error.and_then(|error| error["message"].as_str()).map_or_else(
                || format!("{} answers with HTTP status {status}; {}", self.address, ADVICE.address),
                str::to_owned,
            );
            return match status {
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                    let wait = response.retry_after().unwrap_or(USUAL_WAIT);
                    Err(Trouble::Limit(wait.max(USUAL_WAIT), why))
                }
                status if status.is_server_error() => Err(Trouble::Failure(why)),
                // Without this method, no block can be fetched.
                StatusCode::OK if method == BLOCK && error.is_some_and(|error| error["code"] == -32601) => {
                    Err(Trouble::Fatal(why))
                }
                StatusCode::OK => Ok(Reply { result: None, kept: Kept::No(why) }),
                _ => Err(Trouble::Fatal(why)),
            };
        }
        let Some(cache_status) = response.headers.get("cache-status").and_then(|status| status.to_str().ok())
        else {
            let why = format!("{}: the answer has no cache-status, so this is not Holdfast", self.address);
            return Err(Trouble::Fatal(format!("{why}; {}", ADVICE.address)));
        };
        let kept = if cache_status.contains("hit") || cache_status.contains("fwd=stale") {
            Kept::Present
        } else if cache_status.contains("stored") {
            Kept::Fetched(response.body.len() as u64)
        } else if cache_status.contains("collapsed") && method != "eth_blockNumber" {
            // Another call had begun the fetch; the next call shows whether the content is cached.
            return Err(Trouble::Failure("another client fetches this block".to_owned()));
        } else {
            Kept::No(
                "the answer cannot be verified, or the cache has no room for it; see the log of the instance"
                    .to_owned(),
            )
        };
        Ok(Reply { result: reply.map(|mut reply| reply["result"].take()), kept })
    }
}

// === impl Done ===

impl Done {
    /// Adds the answers for one block.
    fn take(&mut self, number: u64, block: Kept, receipts: Option<Kept>) {
        for (kept, count) in [(Some(block), &mut self.blocks), (receipts, &mut self.receipts)] {
            match kept {
                Some(Kept::Fetched(bytes)) => {
                    count.fetched += 1;
                    self.bytes += bytes;
                }
                Some(Kept::Present) => count.present += 1,
                Some(Kept::No(why)) => {
                    self.unkept.insert(number);
                    self.why_unkept = why;
                }
                None => {}
            }
        }
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
            say(format_args!("{tier} is not confirmed for this chain, so it stores no blocks"))?;
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

/// Where the instance stores the blocks that it fetched.
#[derive(Default)]
struct Keeping {
    /// Size of the cache in memory, if no tier stores the blocks.
    memory: Option<u64>,
    /// Tiers whose writes fail.
    unwritten: Vec<String>,
    /// Tiers that are not confirmed for this chain, and store nothing.
    unused: Vec<String>,
    /// Number of writes to tiers that the instance has dropped so far.
    dropped: u64,
}

// === impl Keeping ===

impl Keeping {
    async fn of(target: &AdminTarget) -> Self {
        let read = async {
            let client = target.client(ENDING).ok()?;
            let status = client.get("/status").await.ok()?.value("/status").ok()?;
            Some((status, client.get("/metrics").await.ok()?.text))
        };
        let Some((status, metrics)) = read.await else { return Self::default() };
        let tiers = status["tiers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let names = |is_one: &dyn Fn(&Value) -> bool| {
            let some = tiers.iter().filter(|tier| is_one(tier)).filter_map(|tier| tier["tier"].as_str());
            some.map(str::to_owned).collect::<Vec<_>>()
        };
        let unwritten = names(&|tier| tier["writing"] == false);
        let unused = names(&|tier| tier["writing"] == true && tier["confirmed"] == false);
        let is_all = unwritten.len() + unused.len() == tiers.len();
        let memory = status["cache"]["capacity"].as_u64().filter(|_| is_all);
        let is_dropped = |line: &&str| {
            line.starts_with("holdfast_tier_writes_total{") && line.contains(r#"outcome="dropped""#)
        };
        let dropped = metrics
            .lines()
            .filter(is_dropped)
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        Self { memory, unwritten, unused, dropped: dropped.sum() }
    }
}
