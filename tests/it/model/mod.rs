//! Model tests: random programs against the whole proxy, from request bytes to response bytes, in memory and with paused
//! time. Every answer must be one that the node gave, or would have given, at a moment that docs/guarantees.md allows.
//!
//! `MODEL_PROGRAMS` sets the number of programs, `HOLDFAST_SEED` repeats a failure.

mod address;
mod balanced;
mod check;
mod fixed;
mod judge;
mod liar;
mod logs;
mod sources;
mod step;
mod tags;
mod tiers;
mod told;
mod two;
mod world;

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use holdfast::{
    chain::Tracker,
    config::Config,
    devchain,
    jsonrpc::{Answer, read_answers},
    proxy::Follow,
    verify::{Demand, OnMismatch},
};
use proptest::strategy::Strategy;
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{self, Instant},
};

use self::{
    check::{assert_repeats, check_programs, run_in_memory},
    judge::{Asked, Finished, ShownHead},
    sources::{LogSources, Source},
    step::{LogQuery, Place, Question, Step, any_step},
    told::ToldBlocks,
    world::{Call, World},
};
use crate::support::{
    doubles::{SIX, six_methods},
    in_memory::{self, InMemory},
    method::{CHAIN_ID, LOGS},
    one_node::raw,
};

/// Error codes with which the proxy reports that the upstream could not answer.
const FAILURES: [i64; 5] = [-32005, -32010, -32011, -32012, -32013];

/// Delay of an overtaken answer: longer than the proxy needs to see the next head, shorter than the upstream timeout.
const OVERTAKEN: Duration = Duration::from_millis(2_500);

/// Value of `chain.final_margin`: one answer makes a block final only this far below the finalized block. It spans a few
/// blocks of the chains here, so that programs ask for blocks on both sides of it.
const FINAL_MARGIN: Duration = Duration::from_secs(20);

/// Kind of chain, and the configuration of the proxy in front of it.
#[derive(Clone, Copy, Debug)]
struct Setting {
    development: bool,
    consistent: bool,
    /// Uses a small window and a small cache, neither of which may change an answer.
    switched: bool,
    /// The proxy follows the chain in the background.
    followed: bool,
    /// The proxy rejects answers that it cannot prove.
    proved: bool,
    /// The node denies orphans, as anvil does on development chains and geth does not.
    forgets: bool,
    /// `safe` is the head of the node, and `finalized` the block below.
    instant: bool,
    node: Node,
}

/// Kind of node.
#[derive(Clone, Copy, Debug)]
enum Node {
    /// The node has all methods and true hashes.
    Whole,
    /// The node has the six read operations and these methods.
    SixMethods(&'static [&'static str]),
    /// The hashes of the blocks do not match their content.
    FalseHashes,
}

impl Node {
    /// Returns whether the node has a method.
    fn has(self, method: &str) -> bool {
        match self {
            Self::Whole | Self::FalseHashes => true,
            Self::SixMethods(others) => SIX.contains(&method) || others.contains(&method),
        }
    }
}

impl Setting {
    /// Returns the number of blocks in the window of the proxy.
    fn window(self) -> usize {
        if self.switched { 8 } else { Config::default().chain.window }
    }

    /// Returns by how many blocks the chain may grow at once so that parent hashes link the new head to older blocks.
    fn most_linked(self) -> usize {
        self.window().min(Tracker::MAX_GAP as usize + 1)
    }

    /// Returns the sources of logs that the programs must reach.
    fn log_sources(self) -> &'static [Source] {
        match self {
            Self { proved: true, .. } => &[Source::Receipts, Source::Bloom, Source::Fetched],
            // The proxy has fetched most blocks before a client asks for them.
            Self { followed: true, .. } => &[Source::Receipts, Source::Forwarded],
            Self { .. } => &[Source::Receipts, Source::Fetched, Source::Forwarded],
        }
    }
}

/// Counts over all programs of a test.
#[derive(Debug, Default)]
struct Seen {
    logs: LogSources,
    /// Gzip-compressed answers.
    compressed: AtomicUsize,
}

struct Run<'a> {
    world: World,
    program: InMemory,
    setting: Setting,
    staleness: Duration,
    started: Vec<(Vec<Asked>, JoinHandle<Finished>)>,
    /// Complete answers that are not judged yet.
    finished: Vec<(Vec<Asked>, Finished)>,
    /// State at the last write: no later answer may be of an older state.
    written: usize,
    /// Heads that the proxy showed to clients, oldest first.
    heads: Vec<ShownHead>,
    /// Blocks that clients were told of.
    told: ToldBlocks,
    /// When the proxy first took a regressed node for a replica that lags.
    doubted: Option<Instant>,
    /// The last call that was not part of a batch.
    last: Option<Call>,
    /// Number of untrue answers of the node, and the time at which the model last saw this number grow.
    lies: (u64, Option<Instant>),
    seen: &'a Seen,
}

fn settings(setting: Setting) -> (Config, devchain::Config) {
    let mut config = Config::default();
    // This timeout is longer than any delay in the programs, and short enough that other time limits do not expire
    // during one hanging call.
    config.upstream.timeout = Duration::from_secs(10);
    config.upstream.endpoints = vec![holdfast::upstream::EndpointConfig {
        consistent: setting.consistent,
        ..holdfast::upstream::EndpointConfig::at("")
    }];
    config.chain.final_margin = FINAL_MARGIN;
    if setting.switched {
        config.chain.window = setting.window();
        config.cache.size = bytesize::ByteSize::kib(96);
    }
    if setting.followed {
        config.chain.follow = Follow::Full;
        // With this interval, polls happen at varying moments between the steps.
        config.chain.follow_interval = Duration::from_millis(370);
    }
    if setting.proved {
        config.verify.level = Demand::Full;
        config.verify.on_mismatch = OnMismatch::Reject;
        config.verify.ethereum_chains.push(7_331_117);
    }
    let chain_id = if setting.development { 31337 } else { 7_331_117 };
    let keep_orphans = !setting.forgets && !setting.development;
    // On development chains the node answers with range errors, as anvil does.
    let range_errors = setting.development;
    let mut node =
        devchain::Config { chain_id, keep_calls: 0, keep_orphans, range_errors, ..Default::default() };
    if setting.instant {
        (node.safe_distance, node.finalized_distance) = (0, 1);
    } else if !setting.consistent && !setting.switched {
        // Small distances, so that short programs have finalized blocks.
        (node.safe_distance, node.finalized_distance) = (2, 4);
    }
    (config, node)
}

fn program(world: &World, config: &Config, node: Node) -> InMemory {
    let mut endpoint = in_memory::endpoint(&world.chain, "devchain", config.upstream.endpoints[0].clone());
    endpoint.transport = match node {
        Node::Whole => endpoint.transport,
        Node::SixMethods(others) => six_methods(endpoint.transport, others),
        Node::FalseHashes => world.disguise().over(endpoint.transport),
    };
    in_memory::program_of(vec![endpoint], config).accepting_gzip_mostly()
}

// === impl Run ===

impl<'a> Run<'a> {
    fn new(setting: Setting, seen: &'a Seen) -> Self {
        let (config, node) = settings(setting);
        let mut world = World::new(node);
        world.matches_as_geth = setting.proved;
        if matches!(setting.node, Node::FalseHashes) {
            world.put_on_disguise();
        }
        let program = program(&world, &config, setting.node);
        let staleness = if setting.development { Duration::ZERO } else { config.chain.max_staleness };
        Self {
            world,
            program,
            setting,
            staleness,
            started: Vec::new(),
            finished: Vec::new(),
            written: 0,
            heads: Vec::new(),
            told: ToldBlocks::default(),
            doubted: None,
            last: None,
            lies: (0, None),
            seen,
        }
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        self.judge_finished(None).await?;
        match step {
            Step::Ask(question) | Step::AskOften(question) => {
                for _ in 0..step.times() {
                    self.ask(self.world.call(*question)).await?;
                }
            }
            Step::Start(question) => {
                self.start(self.world.call(*question));
                // The call must be in flight before the next step.
                tokio::task::yield_now().await;
            }
            Step::Batch(questions) => {
                let (asked, body) = self.batch(questions);
                let finished = self.send_body(body).await;
                self.judge(asked, finished).await?;
            }
            Step::StartBatch(questions) => {
                self.start_batch(questions);
                tokio::task::yield_now().await;
            }
            Step::BatchAcross { questions, depth, length } => {
                self.world.queue_content(OVERTAKEN);
                self.start_batch(questions);
                // Waits until the call has reached the node.
                time::sleep(Duration::from_millis(1)).await;
                self.world.reorg(*depth, *length);
                self.world.end_delays();
            }
            Step::Overtake { question, depth, length } => self.overtake(*question, *depth, *length).await?,
            Step::FalsePlace { receipt, transaction, orphan, times, anew } => {
                if *anew {
                    self.start_anew().await?;
                }
                self.learn_finality().await?;
                let question = if *receipt { Question::Receipt } else { Question::TransactionByHash };
                let call = self.world.call(question(*transaction));
                self.world.misplace(&call, *orphan, *times);
                self.ask(call).await?;
            }
            Step::ReorgBelowFinal { below, .. } | Step::RollbackBelowFinal(below) => {
                self.regress(step, *below).await?;
            }
            Step::StartAnew => self.start_anew().await?,
            Step::Again(again) => {
                if let Some(call) = self.last.clone() {
                    let other = self.world.about_its_block(&call, *again);
                    self.ask(other.map_or(call, |question| self.world.call(question))).await?;
                }
            }
            Step::LogsOfKnown { query, receipts } => {
                for call in self.world.logs_of_known(*query, *receipts) {
                    self.ask(call).await?;
                }
            }
            Step::SearchLagging { blocks, lag, query } => {
                self.search_lagging(*blocks, *lag, *query).await?;
            }
            Step::Join => self.join().await?,
            Step::Send => self.send().await,
            Step::Restart => self.world.restart(),
            // A consistent endpoint never shows a lower head and then returns to the higher one.
            Step::Lag(_) if self.setting.consistent => {}
            Step::RepeatTransaction(_) if !self.setting.development => {}
            change => self.world.undergo(change).await,
        }
        Ok(())
    }

    async fn ask(&mut self, call: Call) -> Result<(), String> {
        self.last = Some(call.clone());
        let asked = self.asked(call, true);
        let finished = self.send_body(request(&asked.call, 1).to_string()).await;
        self.judge(vec![asked], finished).await
    }

    fn start(&mut self, call: Call) {
        self.last = Some(call.clone());
        let asked = self.asked(call, true);
        let sending = tokio::spawn(self.send_body(request(&asked.call, 1).to_string()));
        self.started.push((vec![asked], sending));
    }

    fn start_batch(&mut self, questions: &[Question]) {
        let (asked, body) = self.batch(questions);
        let sending = tokio::spawn(self.send_body(body));
        self.started.push((asked, sending));
    }

    /// Sends a body, with the hashes as the node shows them. Returns the answer with the true hashes.
    fn send_body(&self, body: String) -> impl Future<Output = Finished> + use<> {
        let (program, disguise) = (self.program.clone(), self.world.disguise().clone());
        async move {
            let mut finished = send_timed(program, disguise.apply(&body)).await;
            finished.body = disguise.apply(std::str::from_utf8(&finished.body).unwrap()).into();
            finished
        }
    }

    /// Returns the calls of a batch and its body.
    fn batch(&self, questions: &[Question]) -> (Vec<Asked>, String) {
        let asked: Vec<_> =
            questions.iter().map(|question| self.asked(self.world.call(*question), false)).collect();
        let body = request_all(&asked);
        (asked, body)
    }

    /// Asks for `latest` and `finalized`, so that the proxy knows both blocks.
    async fn learn_finality(&mut self) -> Result<(), String> {
        for tag in [Place::Latest, Place::Finalized] {
            self.ask(self.world.call(Question::BlockByNumber(tag, false))).await?;
        }
        Ok(())
    }

    /// Lets the chain regress below a finalized block that the proxy knows. Before that, a client asks for a number
    /// below that block. After a reorg, another client asks for the new head.
    async fn regress(&mut self, change: &Step, below: u64) -> Result<(), String> {
        self.learn_finality().await?;
        let number = Place::At(self.world.floor.saturating_sub(below / 2));
        let call = self.world.call(Question::BlockByNumber(number, true));
        self.ask(call.clone()).await?;
        self.world.undergo(change).await;
        if matches!(change, Step::ReorgBelowFinal { .. }) {
            time::sleep(self.staleness + Duration::from_millis(1)).await;
            self.ask(self.world.call(Question::BlockByNumber(Place::Latest, false))).await?;
        }
        self.last = Some(call);
        Ok(())
    }

    async fn start_anew(&mut self) -> Result<(), String> {
        if self.setting.followed {
            // The background follower of the old proxy would keep running.
            return Ok(());
        }
        self.join().await?;
        self.program = program(&self.world, &settings(self.setting).0, self.setting.node);
        Ok(())
    }

    /// Starts a call that the node answers late, with the state at the time of the request. Before the answer arrives, a
    /// reorg happens and another client sees the new head.
    async fn overtake(&mut self, question: Question, depth: u64, length: usize) -> Result<(), String> {
        self.world.delay_content(OVERTAKEN);
        self.start(self.world.call(question));
        // Waits until the call has reached the node.
        time::sleep(Duration::from_millis(1)).await;
        self.world.reorg(depth, length);
        time::sleep(self.staleness + Duration::from_millis(1)).await;
        self.ask(self.world.call(Question::BlockByNumber(Place::Latest, false))).await?;
        self.world.end_delays();
        Ok(())
    }

    async fn search_lagging(&mut self, blocks: usize, lag: u64, query: LogQuery) -> Result<(), String> {
        self.world.set_lag(0);
        self.world.mine(blocks, 5);
        time::sleep(self.staleness + Duration::from_millis(1)).await;
        self.ask(self.world.call(Question::BlockReceipts(Place::Latest))).await?;
        if !self.setting.consistent {
            self.world.set_lag(lag);
        }
        self.ask(self.world.call(Question::Logs(query))).await
    }

    async fn join(&mut self) -> Result<(), String> {
        for (asked, sending) in std::mem::take(&mut self.started) {
            let finished = sending.await.map_err(|error| format!("the task of a call failed: {error}"))?;
            self.finished.push((asked, finished));
        }
        self.judge_finished(None).await
    }

    /// Sends a transaction through the proxy.
    async fn send(&mut self) {
        let raw = raw(&self.world.chain.generate(1)[0]);
        let send = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_sendRawTransaction", "params": [raw] });
        let body = send_body(self.program.clone(), send.to_string()).await;
        self.world.note();
        // Clients read their own writes: answers to later calls must include the transaction.
        if matches!(
            read_answers(&body).map(|mut answers| answers.remove(0).answer),
            Ok(Some(Answer::Result(_)))
        ) {
            self.written = self.world.last();
        }
    }
}

fn shorten(result: &Bytes) -> String {
    String::from_utf8_lossy(result).chars().take(300).collect()
}

fn request(call: &Call, id: u32) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": call.method, "params": call.params })
}

/// Returns the body for these calls: a batch, or a single request for one call.
fn request_all(asked: &[Asked]) -> String {
    let calls: Vec<_> = asked.iter().zip(0..).map(|(asked, id)| request(&asked.call, id)).collect();
    match &calls[..] {
        [call] => call.to_string(),
        calls => json!(calls).to_string(),
    }
}

async fn send_body(program: InMemory, body: String) -> Bytes {
    program.send(body).await.1
}

async fn send_timed(program: InMemory, body: String) -> Finished {
    let response = program.respond(body).await;
    let status = response.headers().get("cache-status").map(|status| status.to_str().unwrap().to_owned());
    Finished { status: status.unwrap_or_default(), body: response.into_body(), at: Instant::now() }
}

fn run(setting: Setting, steps: &[Step]) -> Result<(), String> {
    run_counting(setting, &Seen::default(), steps)
}

fn run_counting(setting: Setting, seen: &Seen, steps: &[Step]) -> Result<(), String> {
    run_in_memory(steps, async {
        let mut run = Run::new(setting, seen);
        for (position, step) in steps.iter().enumerate() {
            run.step(step).await.map_err(|error| format!("step {position} ({step:?}): {error}"))?;
        }
        run.join().await.map_err(|error| format!("at the end: {error}"))?;
        let compressed = run.program.metric("responses_compressed_total");
        seen.compressed.fetch_add(usize::try_from(compressed).unwrap(), Relaxed);
        Ok(())
    })
}

fn any_program() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(any_step(), 1..60)
}

fn check(setting: Setting, programs: u32) {
    let seen = Seen::default();
    let ran = check_programs(programs, &any_program(), &setting, |steps| run_counting(setting, &seen, steps));
    println!("{setting:?}: {seen:?}");
    if setting.node.has(LOGS) {
        seen.logs.must_reach(setting.log_sources(), ran);
    }
    ran.must_cover("an answer is gzip-compressed", 20, seen.compressed.load(Relaxed));
}

const ORDINARY: Setting = Setting {
    development: false,
    consistent: false,
    switched: false,
    followed: false,
    proved: false,
    forgets: false,
    instant: false,
    node: Node::Whole,
};

#[test]
fn every_answer_is_allowed_on_an_ordinary_chain() {
    check(ORDINARY, 800);
}

#[test]
fn every_answer_is_allowed_if_the_node_denies_orphans() {
    check(Setting { forgets: true, ..ORDINARY }, 200);
}

#[test]
fn every_answer_is_allowed_with_full_verification() {
    check(Setting { proved: true, ..ORDINARY }, 200);
}

#[test]
fn every_answer_is_allowed_in_front_of_six_methods() {
    check(Setting { node: Node::SixMethods(&[]), ..ORDINARY }, 100);
    check(Setting { node: Node::SixMethods(&[CHAIN_ID]), ..ORDINARY }, 100);
}

#[test]
fn every_answer_is_allowed_if_hashes_do_not_match() {
    check(Setting { node: Node::FalseHashes, ..ORDINARY }, 200);
}

#[test]
fn every_answer_is_allowed_with_finality_at_the_head() {
    check(Setting { instant: true, ..ORDINARY }, 200);
}

#[test]
fn every_answer_is_allowed_behind_a_consistent_upstream() {
    check(Setting { consistent: true, ..ORDINARY }, 600);
}

#[test]
fn every_answer_is_allowed_on_a_development_chain() {
    check(Setting { development: true, ..ORDINARY }, 600);
}

#[test]
#[ignore = "runs in tests/run --all: a full cache evicts by the real clock"]
fn every_answer_is_allowed_with_a_small_window_and_cache() {
    check(Setting { switched: true, ..ORDINARY }, 400);
}

#[test]
fn every_answer_is_allowed_while_following_the_chain() {
    check(Setting { followed: true, ..ORDINARY }, 300);
}

#[test]
fn every_answer_is_allowed_while_following_a_development_chain() {
    check(Setting { followed: true, development: true, ..ORDINARY }, 100);
}

#[test]
fn programs_repeat() {
    for setting in [
        ORDINARY,
        Setting { forgets: true, ..ORDINARY },
        Setting { proved: true, ..ORDINARY },
        Setting { consistent: true, ..ORDINARY },
        Setting { instant: true, ..ORDINARY },
        Setting { node: Node::SixMethods(&[]), ..ORDINARY },
        Setting { node: Node::FalseHashes, ..ORDINARY },
        Setting { development: true, ..ORDINARY },
        Setting { followed: true, ..ORDINARY },
        Setting { followed: true, development: true, ..ORDINARY },
    ] {
        assert_repeats(&setting, &any_program(), |steps| run(setting, steps));
    }
}
