//! A node that lies about any of its content, from the first block on.
//!
//! The chain has the id of Ethereum mainnet, so no lie disables verification. With `reject`, no answer may contain
//! anything untrue; with `pass`, no proved answer from the cache may. The model does not judge `null` and canonicity,
//! which the proxy cannot prove.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use holdfast::{
    config::Config,
    devchain::{self, Fault, Lie},
    jsonrpc::{Answer, read_answers},
    verify::{Demand, OnMismatch},
};
use proptest::prelude::*;
use serde_json::json;
use tokio::{task::JoinHandle, time};

use super::{
    check::{assert_repeats, check_programs, run_in_memory},
    request,
    sources::{LogSources, Source},
    step::{LogFilter, LogQuery, Pick, Place, Question, Span, Step, log_step, step},
    world::{Call, World},
};
use crate::support::{
    in_memory::{self, InMemory},
    times,
};

/// A step of a program with a lying node.
#[derive(Clone, Debug)]
enum Happens {
    /// A step of the model with an honest node.
    Step(Step),
    /// Lets the node lie in the answers to these methods, this many times or always.
    Lie { lie: Lie, about: &'static str, times: Option<usize> },
    /// Ends all lies and faults.
    Honest,
}

/// Configuration of the proxy.
#[derive(Clone, Copy, Debug)]
struct Setting {
    demand: Demand,
    on_mismatch: OnMismatch,
    /// Uses a small window and a small cache, neither of which may change an answer.
    switched: bool,
}

/// Counts over all programs, with which the tests check that the node both lied and told the truth.
#[derive(Debug, Default)]
struct Seen {
    truths: AtomicUsize,
    lies: AtomicUsize,
    refusals: AtomicUsize,
    hits: AtomicUsize,
    logs: LogSources,
}

struct Run<'a> {
    world: World,
    program: InMemory,
    setting: Setting,
    seen: &'a Seen,
    started: Vec<(Call, JoinHandle<(String, Bytes)>)>,
    /// Whether the node may have shown blocks of another chain, which the proxy may take for canonical.
    has_shown_strangers: bool,
}

impl Setting {
    /// Returns whether clients get proved answers only.
    fn rejects_unproved(self) -> bool {
        self.demand == Demand::Full && self.on_mismatch == OnMismatch::Reject
    }
}

fn lie() -> impl Strategy<Value = Lie> {
    prop_oneof![
        8 => any::<u64>().prop_map(Lie::Bent),
        1 => Just(Lie::WrongHash),
        1 => Just(Lie::EmptiedTransactions),
        1 => Just(Lie::OtherReceipt),
        1 => Just(Lie::OrphanedReceipt),
        1 => Just(Lie::ForeignBlock),
        3 => any::<u64>().prop_map(Lie::Disguised),
        6 => any::<u64>().prop_map(Lie::Dropped),
        4 => any::<u64>().prop_map(Lie::Nulled),
        1 => any::<bool>().prop_map(|orphan| Lie::Misplaced { orphan }),
        3 => (0u64..90).prop_map(|number| everywhere("blockNumber", number)),
        3 => (0u64..3).prop_map(|index| everywhere("transactionIndex", index)),
    ]
}

fn lie_about_logs() -> impl Strategy<Value = Lie> {
    prop_oneof![
        3 => any::<u64>().prop_map(Lie::MissingLog),
        3 => (any::<u64>(), any::<bool>()).prop_map(|(choice, altered)| Lie::AddedLog { choice, altered }),
        1 => any::<u64>().prop_map(Lie::ShuffledLogs),
        2 => (1u64..4).prop_map(Lie::LaggingLogs),
        2 => any::<u64>().prop_map(Lie::Bent),
    ]
}

fn everywhere(name: &str, value: u64) -> Lie {
    Lie::Everywhere(name.to_owned(), json!(format!("{value:#x}")))
}

fn happens() -> impl Strategy<Value = Happens> {
    let about = prop_oneof![
        6 => Just("eth_get*"),
        2 => Just("eth_getBlockBy*"),
        2 => Just("eth_getBlockReceipts"),
        1 => Just("eth_getTransaction*"),
    ];
    prop_oneof![
        20 => step().prop_map(Happens::Step),
        8 => log_step().prop_map(Happens::Step),
        2 => (lie_about_logs(), proptest::option::of(1usize..6))
            .prop_map(|(lie, times)| Happens::Lie { lie, about: "eth_getLogs", times }),
        4 => (lie(), about, proptest::option::of(1usize..6))
            .prop_map(|(lie, about, times)| Happens::Lie { lie, about, times }),
        2 => Just(Happens::Honest),
    ]
}

// === impl Run ===

impl<'a> Run<'a> {
    fn new(setting: Setting, seen: &'a Seen) -> Self {
        let mut config = Config::default();
        config.verify.level = setting.demand;
        config.verify.on_mismatch = setting.on_mismatch;
        config.upstream.timeout = time::Duration::from_secs(10);
        if setting.switched {
            config.chain.window = 4;
            config.cache.size = bytesize::ByteSize::kib(96);
        }
        let node = devchain::Config { chain_id: 1, keep_calls: 0, ..devchain::Config::default() };
        let mut world = World::new(node);
        world.matches_as_geth = setting.rejects_unproved();
        let program = in_memory::program(&world.chain, &config).accepting_gzip_mostly();
        Self { world, program, setting, seen, started: Vec::new(), has_shown_strangers: false }
    }

    async fn happens(&mut self, what: &Happens) -> Result<(), String> {
        match what {
            Happens::Step(step) => self.step(step).await?,
            Happens::Lie { lie, about, times } => {
                self.has_shown_strangers |= matches!(lie, Lie::ForeignBlock);
                let fault = self.world.chain.fail(Fault::Lie(lie.clone())).on(*about);
                match times {
                    Some(times) => fault.times(*times),
                    None => fault.always(),
                }
            }
            Happens::Honest => self.world.chain.clear_faults(),
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Ask(question) | Step::AskOften(question) => {
                for _ in 0..step.times() {
                    self.ask(self.world.call(*question)).await?;
                }
            }
            Step::LogsOfKnown { query, receipts } => {
                for call in self.world.logs_of_known(*query, *receipts) {
                    self.ask(call).await?;
                }
            }
            Step::Batch(questions) => {
                let calls: Vec<_> = questions.iter().map(|question| self.world.call(*question)).collect();
                let body: Vec<_> = calls.iter().zip(0..).map(|(call, id)| request(call, id)).collect();
                let (status, body) = self.program.send_for_status(json!(body).to_string()).await;
                self.judge(&calls, &status, &body)?;
            }
            Step::Start(question) => self.start(*question).await,
            Step::Join => self.join().await?,
            // The model with one honest node covers these steps.
            Step::Send
            | Step::Restart
            | Step::Overtake { .. }
            | Step::ReorgBelowFinal { .. }
            | Step::RollbackBelowFinal(_)
            | Step::FalsePlace { .. }
            | Step::Again(_)
            | Step::StartAnew
            | Step::SearchLagging { .. }
            | Step::RepeatTransaction(_)
            | Step::StartBatch(_)
            | Step::BatchAcross { .. }
            | Step::SafeAt(_)
            | Step::RefuseWhole { .. } => {}
            change => self.world.undergo(change).await,
        }
        Ok(())
    }

    async fn ask(&self, call: Call) -> Result<(), String> {
        let (status, body) = self.program.send_for_status(request(&call, 1).to_string()).await;
        self.judge(&[call], &status, &body)
    }

    async fn start(&mut self, question: Question) {
        let call = self.world.call(question);
        let (program, body) = (self.program.clone(), request(&call, 1).to_string());
        let sending = tokio::spawn(async move { program.send_for_status(body).await });
        tokio::task::yield_now().await;
        self.started.push((call, sending));
    }

    async fn join(&mut self) -> Result<(), String> {
        for (call, sending) in std::mem::take(&mut self.started) {
            let (status, body) =
                sending.await.map_err(|error| format!("the task of a call failed: {error}"))?;
            self.judge(&[call], &status, &body)?;
        }
        Ok(())
    }

    fn judge(&self, calls: &[Call], status: &str, body: &Bytes) -> Result<(), String> {
        let answers = read_answers(body).map_err(|error| error.to_string())?;
        if answers.len() != calls.len() {
            return Err(format!("{} answers to {} calls", answers.len(), calls.len()));
        }
        for (call, answer) in calls.iter().zip(answers) {
            match answer.answer.ok_or("neither result nor error")? {
                Answer::Result(result) => self.judge_result(call, status, &result)?,
                Answer::Error(_) => drop(self.seen.refusals.fetch_add(1, Relaxed)),
            }
        }
        Ok(())
    }

    fn judge_result(&self, call: &Call, status: &str, result: &Bytes) -> Result<(), String> {
        // On a chain that is listed as Ethereum, the cache serves the transactions of a block only if they are proved,
        // unless the level is structural, which no test here uses.
        let proved = match self.setting.demand {
            _ if call.asks_for_logs() => are_proved(status),
            Demand::Full => status.starts_with("holdfast; hit"),
            Demand::Auto | Demand::Structural => status == "holdfast; hit; detail=block",
        };
        if proved && !call.is_nothing(result) {
            self.seen.hits.fetch_add(1, Relaxed);
        }
        self.seen.logs.count(call, status, result);
        if self.world.is_true(call, result) {
            if !call.is_nothing(result) {
                self.seen.truths.fetch_add(1, Relaxed);
            }
            return Ok(());
        }
        // The header of a stranger is proved, and its bloom excludes the logs of the block in its place.
        if self.has_shown_strangers && self.world.are_logs_of_some_blocks(call, result) {
            return Ok(());
        }
        self.seen.lies.fetch_add(1, Relaxed);
        if proved || self.setting.on_mismatch == OnMismatch::Reject {
            let shown: String = String::from_utf8_lossy(result).chars().take(300).collect();
            return Err(format!(
                "{} {} was answered with a lie ({status}): {shown}",
                call.method, call.params
            ));
        }
        Ok(())
    }
}

/// Returns whether logs with this `cache-status` must be true and complete. Logs of receipts that only passed structural
/// checks may be lies, as those receipts may. The header of a batch does not tell.
fn are_proved(status: &str) -> bool {
    !status.contains("detail=\"") && status.contains("proof=proved")
}

fn run(setting: Setting, seen: &Seen, steps: &[Happens]) -> Result<(), String> {
    run_in_memory(steps, async {
        let mut run = Run::new(setting, seen);
        // The proxy must know the chain before it can verify answers.
        run.program.ask("eth_chainId", json!([])).await;
        for (position, step) in steps.iter().enumerate() {
            let happened = run.happens(step).await;
            happened.map_err(|error| format!("step {position} ({step:?}): {error}"))?;
        }
        run.join().await.map_err(|error| format!("at the end: {error}"))
    })
}

fn any_program() -> impl Strategy<Value = Vec<Happens>> {
    proptest::collection::vec(happens(), 1..60)
}

fn check(setting: Setting, programs: u32) {
    let seen = Seen::default();
    let ran = check_programs(programs, &any_program(), &setting, |steps| run(setting, &seen, steps));
    println!("{setting:?}: {seen:?}");
    let sources = match setting.demand {
        Demand::Full => &[Source::Receipts, Source::Bloom, Source::Fetched][..],
        Demand::Auto | Demand::Structural => {
            &[Source::Receipts, Source::Bloom, Source::Fetched, Source::Forwarded][..]
        }
    };
    seen.logs.must_reach(sources, ran);
    ran.must_cover("a true answer", 3, seen.truths.load(Relaxed));
    ran.must_cover("a call fails", 3, seen.refusals.load(Relaxed));
    ran.must_cover("a proved answer from the cache", 3, seen.hits.load(Relaxed));
    if setting.on_mismatch == OnMismatch::Pass {
        ran.must_cover("a lie reaches a client", 3, seen.lies.load(Relaxed));
    }
}

/// An answer must have all members, even those that no hash covers.
#[test]
fn answer_with_a_missing_member_is_not_proved() {
    for (question, about) in [
        (Question::Receipt(0), "eth_get*Receipt*"),
        (Question::BlockReceipts(Place::At(1)), "eth_getBlockReceipts"),
        (Question::TransactionByHash(0), "eth_get*"),
        (Question::BlockByNumber(Place::At(1), true), "eth_getBlockByNumber[\"0x*"),
    ] {
        for choice in (0..64).step_by(times(4, 1) as usize) {
            for lie in [Lie::Dropped(choice), Lie::Nulled(choice)] {
                let seen = Seen::default();
                let steps = [
                    Happens::Step(Step::Mine(1, 1)),
                    Happens::Step(Step::Ask(Question::BlockNumber)),
                    Happens::Lie { lie: lie.clone(), about, times: Some(1) },
                    Happens::Step(Step::Ask(question)),
                    Happens::Step(Step::Ask(question)),
                ];
                run(STRICTEST, &seen, &steps).unwrap_or_else(|error| panic!("{lie:?}: {error}"));
            }
        }
    }
}

const STRICTEST: Setting = Setting { demand: Demand::Full, on_mismatch: OnMismatch::Reject, switched: false };

#[test]
fn no_lie_reaches_a_client_in_reject_mode() {
    check(STRICTEST, 600);
}

#[test]
#[ignore = "runs in tests/run --all: a full cache evicts by the real clock"]
fn no_lie_reaches_a_client_with_a_small_window_and_cache() {
    check(Setting { switched: true, ..STRICTEST }, 300);
}

#[test]
fn no_lie_is_cached_as_proved() {
    check(Setting { on_mismatch: OnMismatch::Pass, ..STRICTEST }, 400);
}

#[test]
fn no_lie_is_cached_as_proved_at_level_auto() {
    check(Setting { on_mismatch: OnMismatch::Pass, demand: Demand::Auto, ..STRICTEST }, 300);
}

/// Only some nodes name the contract of a failed creation.
#[test]
fn failed_creation_without_a_contract_address_is_true() {
    let steps = [
        Happens::Step(Step::Mine(2, 1)),
        Happens::Step(Step::Mine(1, 0)),
        Happens::Step(Step::Mine(1, 2)),
        Happens::Step(Step::Reorg { depth: 1, length: 5 }),
        Happens::Step(Step::Shuffle { depth: 1, deal: vec![145] }),
        Happens::Step(Step::Rollback(2)),
        Happens::Step(Step::Mine(1, 3)),
        Happens::Step(Step::Mine(1, 2)),
        Happens::Lie { lie: Lie::OtherReceipt, about: "eth_getBlockBy*", times: None },
        Happens::Step(Step::Shuffle { depth: 4, deal: vec![24, 130, 31, 1] }),
        Happens::Lie { lie: Lie::Nulled(10878153040511489059), about: "eth_get*", times: None },
        Happens::Step(Step::Ask(Question::Receipt(15210))),
    ];
    let seen = Seen::default();
    run(STRICTEST, &seen, &steps).unwrap();
}

/// If the proxy passes on receipts that it cannot verify, logs from them have no proof.
#[test]
fn logs_from_false_receipts_have_no_proof() {
    let filter = LogFilter { example: 0, address: Pick::Any, topics: [Pick::Any; 4], positions: 0 };
    let logs = Question::Logs(LogQuery { span: Span::Hash(0), filter });
    for choice in 0..200 {
        let steps = [
            Happens::Step(Step::Mine(1, 2)),
            Happens::Lie { lie: Lie::Bent(choice), about: "eth_getBlockReceipts", times: None },
            Happens::Step(Step::Ask(logs)),
        ];
        for demand in [Demand::Full, Demand::Auto] {
            let setting = Setting { demand, on_mismatch: OnMismatch::Pass, switched: false };
            run(setting, &Seen::default(), &steps).unwrap_or_else(|error| panic!("{choice}: {error}"));
        }
    }
}

#[test]
fn programs_repeat() {
    for setting in [
        STRICTEST,
        Setting { on_mismatch: OnMismatch::Pass, ..STRICTEST },
        Setting { on_mismatch: OnMismatch::Pass, demand: Demand::Auto, ..STRICTEST },
    ] {
        assert_repeats(&setting, &any_program(), |steps| run(setting, &Seen::default(), steps));
    }
}
