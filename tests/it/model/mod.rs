//! The conscience of the project: random programs against the whole proxy, from request bytes to
//! response bytes, in memory and under a clock of their own. Every answer must be one that the
//! node gave, or would have given, at a moment that the promises allow.
//!
//! `MODEL_PROGRAMS` sets how many programs are run, `MODEL_SEED` replays a failure.

mod address;
mod liar;
mod step;
mod tiers;
mod two;
mod world;

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use holdfast::{
    config::Config,
    devchain,
    jsonrpc::{Answer, read_answers},
    proxy::{Blocks, Follow, Orphans},
};
use proptest::{
    strategy::Strategy,
    test_runner::{Config as Runs, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner},
};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::Instant};

use self::{
    step::{Step, step},
    world::{Call, World},
};
use crate::support::in_memory::{self, InMemory};

/// Answers that came as gzip, over all programs.
static COMPRESSED: AtomicU64 = AtomicU64::new(0);

/// Codes with which the proxy says that the upstream could not answer.
const FAILURES: [i64; 5] = [-32005, -32010, -32011, -32012, -32013];

/// A chain's rules, and how its upstream is declared.
#[derive(Clone, Copy, Debug)]
struct Setting {
    development: bool,
    consistent: bool,
    /// Every switch that may not change an answer is the other way.
    switched: bool,
    /// Somebody follows the chain beside those who ask.
    followed: bool,
}

/// A call under way.
struct Asked {
    call: Call,
    arrived: Instant,
    /// The newest state when it was sent.
    state: usize,
    /// States before this one had been overtaken for this call when it was sent.
    floor: usize,
    faulty: bool,
}

struct Run {
    world: World,
    program: InMemory,
    setting: Setting,
    staleness: Duration,
    started: Vec<(Asked, JoinHandle<Bytes>)>,
    /// After a write nothing is older than this state.
    written: usize,
    /// After a head was shown, nothing about its chain is older than this state.
    shown: usize,
}

fn settings(setting: Setting) -> (Config, devchain::Config) {
    let mut config = Config::default();
    // Longer than any answer is late, shorter than what would carry every program past every limit.
    config.upstream.timeout = Duration::from_secs(10);
    config.upstream.endpoints = vec![holdfast::upstream::EndpointConfig {
        consistent: setting.consistent,
        ..holdfast::upstream::EndpointConfig::at("")
    }];
    if setting.switched {
        config.upstream.batch = 6;
        config.plan.blocks = Blocks::AsAsked;
        config.plan.buy_after = 3;
        config.chain.refresh_ahead = true;
        config.chain.orphans = Orphans::Drop;
        config.chain.window = 8;
        config.cache.size = bytesize::ByteSize::kib(96);
    }
    if setting.followed {
        config.chain.follow = Follow::Full;
        // So that it falls between what else happens, now here, now there.
        config.chain.follow_interval = Duration::from_millis(370);
    }
    let chain_id = if setting.development { 31337 } else { 7_331_117 };
    (config, devchain::Config { chain_id, keep_calls: 0, ..devchain::Config::default() })
}

// === impl Run ===

impl Run {
    fn new(setting: Setting) -> Self {
        let (config, node) = settings(setting);
        let world = World::new(node);
        let program = in_memory::program(&world.chain, &config).accepting_gzip_mostly();
        let staleness = if setting.development { Duration::ZERO } else { config.chain.max_staleness };
        Self { world, program, setting, staleness, started: Vec::new(), written: 0, shown: 0 }
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Ask(question) | Step::AskOften(question) => {
                for _ in 0..step.times() {
                    let asked = self.asked(self.world.call(*question));
                    let body = send_body(self.program.clone(), request(&asked.call, 1).to_string()).await;
                    self.judge(asked, &body)?;
                }
            }
            Step::Start(question) => {
                let asked = self.asked(self.world.call(*question));
                let sending =
                    tokio::spawn(send_body(self.program.clone(), request(&asked.call, 1).to_string()));
                // It is on its way before anything else happens.
                tokio::task::yield_now().await;
                self.started.push((asked, sending));
            }
            Step::Batch(questions) => {
                let asked: Vec<_> =
                    questions.iter().map(|question| self.asked(self.world.call(*question))).collect();
                let calls: Vec<_> =
                    asked.iter().zip(0..).map(|(asked, id)| request(&asked.call, id)).collect();
                let body = send_body(self.program.clone(), json!(calls).to_string()).await;
                self.judge_batch(asked, &body)?;
            }
            Step::Join => self.join().await?,
            Step::Send => self.send().await,
            Step::Restart => self.world.restart(),
            // What is declared consistent does not show a head, then a lower one, and then the same again.
            Step::Lag(_) if self.setting.consistent => {}
            change => self.world.undergo(change).await,
        }
        Ok(())
    }

    async fn join(&mut self) -> Result<(), String> {
        for (asked, sending) in std::mem::take(&mut self.started) {
            let body = sending.await.map_err(|error| format!("a call died: {error}"))?;
            self.judge(asked, &body)?;
        }
        Ok(())
    }

    /// Sends a transaction, and mines it at times, as a node with instant mining would.
    async fn send(&mut self) {
        let transaction = self.world.chain.generate(1).remove(0);
        let raw = alloy_eips::eip2718::Encodable2718::encoded_2718(&transaction);
        let raw = format!("0x{}", alloy_primitives::hex::encode(raw));
        let send = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_sendRawTransaction", "params": [raw] });
        let body = send_body(self.program.clone(), send.to_string()).await;
        self.world.note();
        // A client reads what it wrote: what is asked from here on knows of it.
        if matches!(
            read_answers(&body).map(|mut answers| answers.remove(0).answer),
            Ok(Some(Answer::Result(_)))
        ) {
            self.written = self.world.last();
        }
    }

    fn asked(&self, call: Call) -> Asked {
        // `safe` and `finalized` have times of their own.
        let shown = if call.has_its_own_time() { 0 } else { self.shown };
        Asked {
            call,
            arrived: Instant::now(),
            state: self.world.last(),
            floor: self.written.max(shown),
            faulty: self.world.faulty,
        }
    }

    /// A batch: each answer for itself, and all tags in one view.
    fn judge_batch(&mut self, asked: Vec<Asked>, body: &Bytes) -> Result<(), String> {
        let answers = read_answers(body).map_err(|error| error.to_string())?;
        if answers.len() != asked.len() {
            return Err(format!("{} answers to {} calls", answers.len(), asked.len()));
        }
        for (asked, answer) in asked.into_iter().zip(answers) {
            let answer = answer.answer.ok_or("neither result nor error")?;
            self.judge_answer(&asked, &answer)?;
        }
        Ok(())
    }

    fn judge(&mut self, asked: Asked, body: &Bytes) -> Result<(), String> {
        let answer = read_answers(body).map_err(|error| error.to_string())?.remove(0);
        self.judge_answer(&asked, &answer.answer.ok_or("neither result nor error")?)
    }

    fn judge_answer(&mut self, asked: &Asked, answer: &Answer) -> Result<(), String> {
        let call = &asked.call;
        let result = match answer {
            Answer::Result(result) => result,
            Answer::Error(error) => {
                let value: Value = serde_json::from_slice(error).map_err(|error| error.to_string())?;
                let failed = value["code"].as_i64().is_some_and(|code| FAILURES.contains(&code));
                let may_fail = asked.faulty || self.world.faulty || self.world.restarted;
                if failed && may_fail {
                    return Ok(());
                }
                error
            }
        };
        let earliest = asked.arrived.checked_sub(self.staleness).unwrap_or(asked.arrived);
        // States that still held at `earliest`, and all that came since; none that was overtaken.
        let states = &self.world.states;
        let from = match self.staleness {
            Duration::ZERO => asked.state,
            _ => states.iter().rposition(|state| state.since < earliest).unwrap_or(0),
        };
        let allowed = from.max(asked.floor)..=self.world.last();
        let held = || states[allowed.clone()].iter();
        if let Some(position) = held().position(|state| self.world.allows(call, state, result)) {
            if call.shows_the_head() {
                self.shown = self.shown.max(allowed.start() + position);
            }
            return Ok(());
        }
        if !self.setting.development && held().any(|state| self.world.allows_as_head(call, state, result)) {
            return Ok(());
        }
        // What is final is told, however low a head the node shows since: it is behind what it called final itself.
        if !self.setting.development
            && states.iter().any(|state| self.world.allows_as_final(call, state, result))
        {
            return Ok(());
        }
        // An ordinary chain does not start anew: a node that shows another genesis is a stranger. What is
        // final on the chain that was there before is still told, and what the stranger said before it was
        // found out may have been believed: final numbers of the one chain are not final on the other.
        let met_a_stranger = self.world.restarted && !self.setting.development;
        if met_a_stranger && states.iter().any(|state| self.world.allows(call, state, result)) {
            return Ok(());
        }
        Err(format!(
            "{} {} was answered with {}\nwhich no state of {allowed:?} allows; now the head is {:?}",
            call.method,
            call.params,
            shorten(result),
            self.world.chain.head(),
        ))
    }
}

fn shorten(result: &Bytes) -> String {
    String::from_utf8_lossy(result).chars().take(300).collect()
}

fn request(call: &Call, id: u32) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": call.method, "params": call.params })
}

async fn send_body(program: InMemory, body: String) -> Bytes {
    program.send(body).await.1
}

fn run(setting: Setting, steps: &[Step]) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut run = Run::new(setting);
        for (position, step) in steps.iter().enumerate() {
            run.step(step).await.map_err(|error| format!("step {position} ({step:?}): {error}"))?;
        }
        run.join().await.map_err(|error| format!("at the end: {error}"))?;
        COMPRESSED.fetch_add(run.program.metric("answers_compressed_total"), Relaxed);
        Ok(())
    })
}

fn check(setting: Setting, programs: u32) {
    check_programs(programs, &proptest::collection::vec(step(), 1..60), &setting, |steps| {
        run(setting, steps)
    });
    let compressed = COMPRESSED.load(Relaxed);
    println!("{compressed} answers came as gzip");
    let few = programs < 100 || std::env::var_os("MODEL_PROGRAMS").is_some();
    assert!(compressed > 0 || few, "no answer came as gzip: it is not tested any more");
}

/// Runs `programs` programs, or as many as `MODEL_PROGRAMS` says in proportion.
fn check_programs<S: std::fmt::Debug + Clone>(
    programs: u32,
    program: &impl Strategy<Value = Vec<S>>,
    setting: &dyn std::fmt::Debug,
    run: impl Fn(&[S]) -> Result<(), String>,
) {
    let variable = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let programs = variable("MODEL_PROGRAMS").map_or(programs, |total| {
        u32::try_from(total * u64::from(programs) / u64::from(PROGRAMS)).unwrap().max(1)
    });
    let seed = variable("MODEL_SEED").unwrap_or_else(rand_seed);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let runs = Runs {
        cases: programs,
        failure_persistence: None,
        max_shrink_iters: 3_000,
        max_shrink_time: 180_000,
        ..Runs::default()
    };
    let mut runner = TestRunner::new_with_rng(runs, rng);
    let result = runner.run(program, |steps| run(&steps).map_err(TestCaseError::fail));
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, steps)) => {
            let steps: Vec<_> = steps.iter().map(|step| format!("    {step:?},\n")).collect();
            panic!("{reason}\nMODEL_SEED={seed}, {setting:?}, shrunk to:\n{}", steps.concat());
        }
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

fn rand_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// All settings together.
const PROGRAMS: u32 = 3200;

const ORDINARY: Setting = Setting { development: false, consistent: false, switched: false, followed: false };

#[test]
fn every_answer_is_allowed_on_an_ordinary_chain() {
    check(ORDINARY, 1200);
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
fn every_answer_is_allowed_with_every_switch_the_other_way() {
    check(Setting { switched: true, ..ORDINARY }, 400);
}

#[test]
fn every_answer_is_allowed_while_the_chain_is_followed() {
    check(Setting { followed: true, ..ORDINARY }, 300);
}

#[test]
fn every_answer_is_allowed_while_a_development_chain_is_followed() {
    check(Setting { followed: true, development: true, ..ORDINARY }, 100);
}

/// Random programs come upon it once in tens of thousands.
#[test]
fn what_was_final_is_told_though_a_head_below_it_was_shown() {
    use step::{Finality, Place, Question};

    let steps = [
        Step::Mine(1, 1),
        Step::Mine(3, 0),
        Step::Finality(Finality::At(3)),
        // What is told of is not older than this, here and below.
        Step::Wait(1_001),
        Step::Ask(Question::CountByNumber(Place::Finalized)),
        Step::Ask(Question::BlockByNumber(Place::At(1), true)),
        Step::Rollback(2),
        // To below what was final.
        Step::Lag(2),
        // Until it is believed.
        Step::Wait(70_000),
        Step::Ask(Question::BlockByNumber(Place::Latest, false)),
        Step::Wait(70_000),
        Step::Ask(Question::BlockByNumber(Place::Latest, false)),
        Step::Wait(70_000),
        Step::Ask(Question::BlockByNumber(Place::Latest, false)),
        Step::Ask(Question::TransactionByHash(0)),
        Step::Ask(Question::BlockByNumber(Place::At(1), true)),
    ];
    run(ORDINARY, &steps).unwrap();
}
