//! Replicas of one chain behind one URL: each request may reach a different replica, and each replica has its own lag. A
//! replica that lags behind a reorg still shows the orphaned branch; with fast finality, even at numbers that are final.
//!
//! The rules:
//! - An answer equals the answer of one replica at some moment during the call, or at most `max_staleness` before the
//!   call arrived, or the final block at its number. No reorg goes below the finalized block, so one lagging replica
//!   must not make an orphan final.
//! - `latest` need not follow a replica that lags, or one whose branch contradicts the finalized block.
//! - After the proxy has shown a block as `latest` or below `latest`, it must not answer `null` about this block or its
//!   content for a while, as long as every replica has the block or is behind it on the same branch, and no replica lacks
//!   a block between that block and a newer head. The call may fail instead.
//! - A forwarded range may lack logs of blocks that its replica does not have. The logs in an answer are of one branch if
//!   the proxy knows the canonical block at each number of the range.
//! - The tags of a batch follow the same rules as with one node.
//! - A failure needs a reason: replicas that differ, or a chain that changed a moment ago.
//!
//! - No replica raises the alarm: within three requests for the finalized block, each replica is asked once.
//!
//! While replicas show two branches, the proxy may follow either.
//!
//! The model assumes, as docs/guarantees.md does, that no replica shows an orphan at a final number for as long as
//! `final_margin`, by the clock or by the timestamps of blocks. A replica that would do so catches up.

mod consumers;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use alloy_primitives::keccak256;
use bytes::Bytes;
use holdfast::{
    config::Config,
    devchain::DevChain,
    jsonrpc::{Answer, read_answers},
    proxy::Follow,
    upstream::{Calls, EndpointConfig, EndpointParts, InProcessTransport, Transport},
};
use proptest::prelude::*;
use serde_json::Value;
use tokio::{
    task::JoinHandle,
    time::{self, Instant},
};
use tower::{ServiceExt, service_fn, util::BoxCloneSyncService};

use self::consumers::Consumer;
use super::{
    FAILURES, FINAL_MARGIN, ORDINARY,
    check::{ProgramCount, assert_repeats, check_programs, run_in_memory},
    judge::{Asked, Finished, UNREST},
    request_all, send_timed, settings, shorten,
    sources::{LogSources, Source, is_forwarded},
    step::{LogFilter, LogQuery, Pick, Place, Question, Span, Step, log_question_about, log_step, question},
    tags::judge_tags,
    world::{Call, Hash, State, World},
};
use crate::support::{
    chains,
    in_memory::{self, InMemory},
};

/// Seconds between blocks. `FINAL_MARGIN` spans a few blocks.
const SLOT: u64 = 4;

/// Time that the proxy waits before it accepts a lower head as a rollback.
const LAG_PATIENCE: Duration = Duration::from_secs(15);

/// A step of a program with replicas.
#[derive(Clone, Debug)]
enum Happens {
    /// Changes the chain, or sends a call.
    Step(Step),
    /// Lets a replica stay this many changes behind the chain. It never returns to an older state.
    Lag { replica: usize, changes: usize },
    /// Keeps a replica behind a reorg until its orphans are at final numbers, and restarts the proxy if `restart` is set.
    /// Then clients ask for `latest`, `finalized`, and the lowest of these numbers.
    StayBehind { replica: usize, restart: bool },
    /// Asks again for the lowest number of the last `StayBehind`.
    AskOrphaned { full: bool },
    /// Keeps all replicas but one behind a new block. A client sees it as `latest`, and another asks for its content.
    ShowHead { ahead: usize, question: Question },
    /// Keeps a replica behind a reorg that moves logs to other blocks. The proxy sees each new block as `latest`, a client
    /// reads the newest receipts, and another asks for logs. If `is_linked` is set, the proxy must know the blocks of the new
    /// branch; it may not find them at replicas that lag.
    SearchBranches { behind: usize, deal: Vec<u8>, logs: Question, is_linked: bool },
    /// A consumer makes the calls of one turn.
    Consume(Consumer),
    /// Changes the replica that each request reaches.
    Shift(u64),
    /// Lets every replica catch up.
    CatchUp,
    /// Restarts the proxy with an empty cache.
    Restart,
}

#[derive(Clone, Copy, Debug)]
struct Setting {
    /// Blocks are final two blocks below the head.
    fast_finality: bool,
    followed: bool,
}

/// Counts over all programs, with which the tests check that replicas did differ.
#[derive(Debug, Default)]
struct Seen {
    answers: AtomicUsize,
    failures: AtomicUsize,
    /// Answers while replicas showed different heads.
    apart: AtomicUsize,
    /// Answers while a replica showed an orphan at a number that was final.
    orphaned: AtomicUsize,
    /// Answers to calls that must not be answered with `null`.
    known: AtomicUsize,
    logs: LogSources,
}

/// One of the nodes behind the URL.
struct Replica {
    chain: DevChain,
    /// Number of changes of the chain that this replica is behind.
    lag: usize,
    /// The states that this replica showed, each with the time from which it showed the state.
    shown: Vec<(Instant, usize)>,
}

/// The distribution of requests over replicas.
#[derive(Clone, Default)]
struct Picks(Arc<Mutex<Spread>>);

#[derive(Default)]
struct Spread {
    /// Seed of the distribution. Each number gives another distribution.
    shift: u64,
    /// Number of times that each call arrived.
    counts: HashMap<Vec<u8>, u64>,
}

/// A block that the proxy showed to a client.
struct Told {
    at: Instant,
    number: u64,
    block: Hash,
    /// Whether the proxy showed it as `latest`.
    is_latest: bool,
}

struct Run<'a> {
    /// The chain without any lag.
    world: World,
    replicas: Vec<Replica>,
    picks: Picks,
    program: InMemory,
    config: Config,
    started: Vec<(Vec<Asked>, JoinHandle<Finished>)>,
    told: Vec<Told>,
    /// A number at which a replica showed an orphan.
    orphaned: Option<u64>,
    /// Whether the proxy knows the blocks of one branch at the numbers of the next call.
    knows_branch: bool,
    seen: &'a Seen,
}

fn happens() -> impl Strategy<Value = Happens> {
    let wait =
        prop_oneof![Just(30u64), Just(300), Just(700), Just(1_001), Just(2_500), Just(6_000), Just(70_000)];
    let recent = prop_oneof![4 => (0i8..6).prop_map(Place::Below), 2 => Just(Place::Latest), 1 => Just(Place::Finalized)];
    let likely = prop_oneof![
        3 => (recent.clone(), any::<bool>()).prop_map(|(place, full)| Question::BlockByNumber(place, full)),
        1 => recent.prop_map(Question::BlockReceipts),
        2 => (0u16..6).prop_map(|choice| Question::Receipt(2 * choice)),
        2 => (0u16..6).prop_map(|choice| Question::TransactionByHash(2 * choice)),
        2 => question(),
    ]
    .boxed();
    let of_branches = (3u8..6).prop_map(|before| Span::Numbers { last: 0, before });
    let head = Place::Below(0);
    let of_head = prop_oneof![
        2 => Just(Question::Receipt(0)),
        2 => Just(Question::TransactionByHash(0)),
        1 => Just(Question::BlockReceipts(head)),
        1 => any::<bool>().prop_map(move |full| Question::BlockByNumber(head, full)),
        1 => Just(Question::TransactionAtNumber(head, 0)),
    ];
    let step = prop_oneof![
        5 => wait.prop_map(Step::Wait),
        8 => (1usize..3, 0usize..3).prop_map(|(blocks, transactions)| Step::Mine(blocks, transactions)),
        4 => (1u64..3, 1usize..4).prop_map(|(depth, length)| Step::Reorg { depth, length }),
        2 => (1u64..3, proptest::collection::vec(any::<u8>(), 1..8))
            .prop_map(|(depth, deal)| Step::Shuffle { depth, deal }),
        24 => likely.clone().prop_map(Step::Ask),
        4 => proptest::collection::vec(likely.clone(), 2..6).prop_map(Step::Batch),
        3 => likely.prop_map(Step::Start),
        2 => Just(Step::Join),
    ];
    prop_oneof![
        40 => step.prop_map(Happens::Step),
        10 => log_step().prop_map(Happens::Step),
        6 => (0usize..3, 0usize..4).prop_map(|(replica, changes)| Happens::Lag { replica, changes }),
        3 => (0usize..3, any::<bool>()).prop_map(|(replica, restart)| Happens::StayBehind { replica, restart }),
        5 => any::<bool>().prop_map(|full| Happens::AskOrphaned { full }),
        4 => (0usize..3, of_head).prop_map(|(ahead, question)| Happens::ShowHead { ahead, question }),
        4 => (0usize..3, proptest::collection::vec(any::<u8>(), 4..12), log_question_about(of_branches.boxed()))
            .prop_map(|(behind, deal, logs)| Happens::SearchBranches { behind, deal, logs, is_linked: false }),
        3 => any::<u64>().prop_map(Happens::Shift),
        2 => Just(Happens::CatchUp),
        3 => Just(Happens::Restart),
    ]
}

/// The proxy in front of the URL.
fn program(replicas: &[Replica], picks: &Picks, config: &Config) -> InMemory {
    let endpoint = EndpointParts {
        address: Some(in_memory::address("balanced")),
        name: "balanced".into(),
        transport: balancer(replicas, picks.clone()),
        config: config.upstream.endpoints[0].clone(),
    };
    in_memory::program_of(vec![endpoint], config).accepting_gzip_mostly()
}

/// Returns a transport to one URL in front of replicas. The first call of a request, and how often it arrived before,
/// select the replica; the order of different calls does not, because it depends on threads.
fn balancer(replicas: &[Replica], picks: Picks) -> Transport {
    let transports: Vec<_> =
        replicas.iter().map(|replica| InProcessTransport::new(replica.chain.clone())).collect();
    BoxCloneSyncService::new(service_fn(move |calls: Calls| {
        let pick = picks.pick(&calls);
        transports[usize::try_from(pick % transports.len() as u64).unwrap()].clone().oneshot(calls)
    }))
}

// === impl Setting ===

impl Setting {
    /// Returns the configuration of the proxy with one node.
    fn ordinary(self) -> super::Setting {
        super::Setting { followed: self.followed, ..ORDINARY }
    }
}

// === impl Seen ===

impl Seen {
    /// Checks that the replicas differed, and that one in `one_in` programs asked for content that must be known.
    fn assert_differed(&self, ran: ProgramCount, one_in: u32) {
        ran.must_cover("an answer while replicas show different heads", 3, self.apart.load(Relaxed));
        ran.must_cover(
            "an answer about a block that the proxy showed before",
            one_in,
            self.known.load(Relaxed),
        );
    }
}

// === impl Picks ===

impl Picks {
    fn pick(&self, calls: &Calls) -> u64 {
        let first = calls
            .iter()
            .next()
            .map(|call| [call.method.as_str().as_bytes(), call.params.as_bytes()].concat());
        let first = first.unwrap_or_default();
        let mut state = self.0.lock().unwrap();
        let Spread { shift, counts } = &mut *state;
        let count = counts.entry(first.clone()).or_insert(0u64);
        // Three equal requests for a header by number reach three replicas: one of them has the finalized block.
        let is_header = String::from_utf8_lossy(&first).starts_with(r#"eth_getBlockByNumber["0x"#)
            && first.ends_with(b",false]");
        let (round, turn) = if is_header { (*count / 3, *count % 3) } else { (*count, 0) };
        *count += 1;
        let mixed = keccak256([&first[..], &round.to_be_bytes(), &shift.to_be_bytes()].concat());
        let steps = if mixed[8] % 2 == 0 { turn } else { 3 - turn };
        u64::from_be_bytes(mixed[..8].try_into().unwrap()) / 2 + steps
    }

    /// Changes the distribution of calls over replicas.
    fn shift(&self, by: u64) {
        let mut state = self.0.lock().unwrap();
        state.shift = state.shift.wrapping_add(by);
    }
}

// === impl Replica ===

impl Replica {
    /// Returns the states that the replica showed between two moments.
    fn between(&self, from: Instant, to: Instant) -> impl Iterator<Item = usize> {
        let first = self.shown.partition_point(|(since, _)| *since < from).saturating_sub(1);
        self.shown[first..].iter().take_while(move |(since, _)| *since <= to).map(|(_, state)| *state)
    }

    fn state(&self) -> usize {
        self.shown.last().unwrap().1
    }
}

// === impl Run ===

impl<'a> Run<'a> {
    fn new(setting: Setting, seen: &'a Seen) -> Self {
        let (mut config, mut node) = settings(setting.ordinary());
        config.upstream.endpoints = vec![EndpointConfig::at("")];
        // A replica does not serve blocks that are not on its own branch.
        node.keep_orphans = false;
        node.slot_seconds = SLOT;
        let (safe, finalized) = if setting.fast_finality { (1, 2) } else { (8, 16) };
        (node.safe_distance, node.finalized_distance) = (safe, finalized);
        let replica = || {
            let (chain, shown) = (chains::chain(&node, 0, 0), vec![(Instant::now(), 0)]);
            Replica { chain, lag: 0, shown }
        };
        let replicas: Vec<_> = (0..3).map(|_| replica()).collect();
        let picks = Picks::default();
        let program = program(&replicas, &picks, &config);
        Self {
            world: World::new(node),
            replicas,
            picks,
            program,
            config,
            started: Vec::new(),
            told: Vec::new(),
            orphaned: None,
            knows_branch: false,
            seen,
        }
    }

    async fn happens(&mut self, what: &Happens) -> Result<(), String> {
        match what {
            Happens::Step(step) => self.step(step).await?,
            Happens::Lag { replica, changes } => {
                self.replicas[*replica].lag = *changes;
                self.follow(Duration::ZERO);
            }
            Happens::StayBehind { replica, restart } => self.stay_behind(*replica, *restart).await?,
            Happens::ShowHead { ahead, question } => {
                self.catch_up();
                (0..self.replicas.len()).filter(|at| at != ahead).for_each(|at| self.replicas[at].lag = 1);
                self.step(&Step::Mine(1, 1)).await?;
                self.step(&Step::Wait(1_001)).await?;
                self.ask(&[Question::BlockByNumber(Place::Latest, false)]).await?;
                self.ask(&[*question]).await?;
            }
            Happens::SearchBranches { behind, deal, logs, is_linked } => {
                self.catch_up();
                for _ in 0..6 {
                    self.step(&Step::Mine(1, 3)).await?;
                    self.step(&Step::Wait(1_001)).await?;
                    self.ask(&[Question::BlockByNumber(Place::Latest, false)]).await?;
                }
                self.replicas[*behind].lag = 1;
                self.step(&Step::Shuffle { depth: 2, deal: deal.clone() }).await?;
                self.step(&Step::Wait(1_001)).await?;
                self.ask(&[Question::BlockReceipts(Place::Below(0))]).await?;
                self.knows_branch = *is_linked;
                self.ask(&[*logs]).await?;
                self.knows_branch = false;
            }
            Happens::AskOrphaned { full } => {
                if let Some(number) = self.orphaned {
                    self.ask(&[Question::BlockByNumber(Place::At(number), *full)]).await?;
                }
            }
            Happens::Consume(consumer) => self.consume(*consumer).await?,
            Happens::Shift(by) => self.picks.shift(*by),
            Happens::Restart => self.restart().await?,
            Happens::CatchUp => self.catch_up(),
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Ask(question) | Step::AskOften(question) => {
                for _ in 0..step.times() {
                    self.ask(&[*question]).await?;
                }
            }
            Step::Batch(questions) => self.ask(questions).await?,
            Step::Start(question) => self.start(&[*question]).await,
            Step::StartBatch(questions) => self.start(questions).await,
            // The model with one node covers these steps.
            Step::Overtake { .. } | Step::BatchAcross { .. } => {}
            Step::LogsOfKnown { query, receipts } => {
                for call in self.world.logs_of_known(*query, *receipts) {
                    self.ask(&[call.question]).await?;
                }
            }
            Step::Join => self.join().await?,
            Step::Wait(millis) => {
                let wait = Duration::from_millis(*millis);
                self.follow(wait);
                time::sleep(wait).await;
            }
            change => {
                self.world.undergo(change).await;
                self.follow(Duration::ZERO);
            }
        }
        Ok(())
    }

    async fn start(&mut self, questions: &[Question]) {
        let (asked, body) = self.packet(questions);
        self.started.push((asked, tokio::spawn(send_timed(self.program.clone(), body))));
        tokio::task::yield_now().await;
    }

    async fn join(&mut self) -> Result<(), String> {
        for (asked, sending) in std::mem::take(&mut self.started) {
            let finished = sending.await.map_err(|error| format!("the task of a call failed: {error}"))?;
            self.judge(&asked, &finished)?;
        }
        Ok(())
    }

    async fn ask(&mut self, questions: &[Question]) -> Result<(), String> {
        self.ask_for(questions).await.map(drop)
    }

    /// Asks questions, and returns the results; `null` for an error.
    async fn ask_for(&mut self, questions: &[Question]) -> Result<Vec<Value>, String> {
        if questions.is_empty() {
            return Ok(Vec::new());
        }
        let (asked, body) = self.packet(questions);
        let finished = send_timed(self.program.clone(), body).await;
        self.judge(&asked, &finished)?;
        let replies: Value = serde_json::from_slice(&finished.body).unwrap();
        let replies = replies.as_array().cloned().unwrap_or_else(|| vec![replies]);
        Ok(replies.into_iter().map(|mut reply| reply["result"].take()).collect())
    }

    fn packet(&self, questions: &[Question]) -> (Vec<Asked>, String) {
        let asked =
            |question: &Question| Asked::new(self.world.call(*question), &self.world, questions.len() == 1);
        let asked: Vec<_> = questions.iter().map(asked).collect();
        let body = request_all(&asked);
        (asked, body)
    }

    fn catch_up(&mut self) {
        self.replicas.iter_mut().for_each(|replica| replica.lag = 0);
        self.follow(Duration::ZERO);
    }

    async fn restart(&mut self) -> Result<(), String> {
        if self.config.chain.follow != Follow::Off {
            // The background follower of the old proxy would keep running.
            return Ok(());
        }
        self.join().await?;
        self.program = program(&self.replicas, &self.picks, &self.config);
        self.told.clear();
        Ok(())
    }

    async fn stay_behind(&mut self, replica: usize, restart: bool) -> Result<(), String> {
        self.replicas[replica].lag = 3;
        for change in [Step::Reorg { depth: 2, length: 2 }, Step::Mine(1, 1), Step::Mine(1, 0)] {
            self.step(&change).await?;
        }
        if restart {
            self.restart().await?;
        }
        self.orphaned = self.lowest_orphan(self.replicas[replica].state()).or(self.orphaned);
        let number = Place::At(self.orphaned.unwrap_or(0));
        for place in [Place::Latest, Place::Finalized, number] {
            self.ask(&[Question::BlockByNumber(place, true)]).await?;
        }
        Ok(())
    }

    // ## Replicas

    /// Updates every replica to the state that its lag allows, or to the newest one if it would otherwise show an orphan at
    /// a final number for too long by the end of `wait`.
    fn follow(&mut self, wait: Duration) {
        let last = self.world.last();
        for at in 0..self.replicas.len() {
            let due = last.saturating_sub(self.replicas[at].lag);
            let due = if self.is_overdue(self.replicas[at].state().max(due), wait) { last } else { due };
            if due > self.replicas[at].state() {
                let head = *self.world.states[due].visible.last().unwrap();
                self.replicas[at].chain.adopt(&self.world.chain, head);
                self.replicas[at].shown.push((Instant::now(), due));
            }
        }
    }

    /// Returns whether a replica in this state would show, at the end of `wait`, an orphan at a number that has been final
    /// for `FINAL_MARGIN`.
    fn is_overdue(&self, state: usize, wait: Duration) -> bool {
        let Some(orphan) = self.lowest_orphan(state) else { return false };
        let states = &self.world.states;
        let Some(since) = states.iter().find(|state| state.called_final >= orphan) else { return false };
        let depth = Duration::from_secs((self.world.called_final - orphan) * SLOT);
        since.since.elapsed() + wait >= FINAL_MARGIN || depth >= FINAL_MARGIN
    }

    /// Returns the lowest number at which this state and the newest one have different blocks.
    fn lowest_orphan(&self, state: usize) -> Option<u64> {
        let (state, newest) = (&self.world.states[state], &self.world.states[self.world.last()]);
        let differs = state.visible.iter().zip(newest.visible.iter()).position(|(one, other)| one != other);
        // A reorg may make the chain shorter.
        differs
            .or((state.visible.len() > newest.visible.len()).then_some(newest.visible.len()))
            .map(|at| at as u64)
    }

    fn states(&self, from: Instant, to: Instant) -> impl Iterator<Item = &State> {
        let shown = self.replicas.iter().flat_map(move |replica| replica.between(from, to));
        shown.map(|state| &self.world.states[state])
    }

    /// Returns whether all replicas showed the same single state from a while before `from` until `to`.
    fn is_calm(&self, from: Instant, to: Instant) -> bool {
        let earlier = from.checked_sub(UNREST).unwrap_or(from);
        let heads = || self.replicas.iter().map(|replica| replica.between(earlier, to).collect::<Vec<_>>());
        let is_one = heads().all(|states| states.len() == 1 && Some(&states) == heads().next().as_ref());
        is_one && self.world.is_calm(from, to)
    }

    // ## Answers

    fn judge(&mut self, asked: &[Asked], finished: &Finished) -> Result<(), String> {
        let answers = read_answers(&finished.body).map_err(|error| error.to_string())?;
        let answers: Option<Vec<_>> = answers.into_iter().map(|answer| answer.answer).collect();
        let answers = answers.ok_or("neither result nor error")?;
        if answers.len() != asked.len() {
            return Err(format!("{} answers to {} calls", answers.len(), asked.len()));
        }
        for (asked, answer) in asked.iter().zip(&answers) {
            if let ([_], Answer::Result(result)) = (&answers[..], answer) {
                self.seen.logs.count(&asked.call, &finished.status, result);
            }
            self.judge_answer(asked, answer, finished)?;
        }
        match asked.first() {
            Some(_) => judge_tags(&self.world, asked, &answers),
            None => Ok(()),
        }
    }

    fn judge_answer(&mut self, asked: &Asked, answer: &Answer, finished: &Finished) -> Result<(), String> {
        let (call, at) = (&asked.call, finished.at);
        let result = match answer {
            Answer::Result(result) => result,
            Answer::Error(error) => {
                let value: Value = serde_json::from_slice(error).map_err(|error| error.to_string())?;
                let failed = value["code"].as_i64().is_some_and(|code| FAILURES.contains(&code));
                if failed && !self.is_calm(asked.arrived, at) {
                    self.seen.failures.fetch_add(1, Relaxed);
                    return Ok(());
                }
                error
            }
        };
        self.note_circumstances();
        let must_be = self.must_be_known(asked, at);
        self.seen.known.fetch_add(usize::from(must_be.is_some()), Relaxed);
        if let Some(block) = must_be.filter(|_| is_nothing(call, result)) {
            return Err(format!(
                "{} {} was answered with {}, though the proxy showed {block} before",
                call.method,
                call.params,
                shorten(result)
            ));
        }
        let earliest = asked.arrived.checked_sub(self.config.chain.max_staleness).unwrap_or(asked.arrived);
        let held: Vec<_> = self.states(earliest, at).collect();
        // Each tag has its own time stamp.
        let is_of_tags = |state: &&State| self.world.allows_range(call, state, held.iter().copied(), result);
        let ever = &self.world.states[..=self.world.last_at(at)];
        let is_between =
            |high: &&State| held.iter().any(|low| self.world.allows_between(call, low, high, result));
        if held.iter().any(|state| self.world.allows(call, state, result))
            || held.iter().any(is_between)
            || held.iter().any(|state| self.world.allows_as_head(call, state, at, result))
            || held.iter().any(|state| self.allows_instead_of_orphan(call, state, at, result))
            || (call.has_its_own_time() && held.iter().any(is_of_tags))
            || (!asked.alone && self.world.allows_ordered(call, &held, result))
            || ever.iter().any(|state| self.world.allows_as_final(call, state, result))
            || self.allows_incomplete(asked, finished, result)
        {
            self.note_told(call, result, at);
            return Ok(());
        }
        Err(format!(
            "{} {} was answered with {}\n({}), which no replica says: they show {:?}; the newest state is {}, {} is final",
            call.method,
            call.params,
            shorten(result),
            finished.status,
            self.replicas.iter().map(Replica::state).collect::<Vec<_>>(),
            self.world.last(),
            self.world.called_final,
        ))
    }

    /// Returns whether `result` is a head that the proxy may keep, because this replica shows another block at a number that
    /// is final on the branch of that head.
    fn allows_instead_of_orphan(&self, call: &Call, shown: &State, until: Instant, result: &Bytes) -> bool {
        let states = &self.world.states[..=self.world.last_at(until)];
        let contradicts = |kept: &State| {
            let is_shared = |state: &&State, number: usize| {
                kept.visible.get(number).is_some_and(|block| state.visible.get(number) == Some(block))
            };
            let finalized = |state: &State| usize::try_from(state.finalized?).ok();
            let shared =
                states.iter().filter(|state| finalized(state).is_some_and(|at| is_shared(state, at)));
            let Some(highest) = shared.filter_map(finalized).max() else { return false };
            let mut blocks = shown.visible.iter().zip(kept.visible.iter()).take(highest + 1);
            blocks.any(|(shown, kept)| shown != kept)
        };
        let kept = states.iter().flat_map(State::heads).filter(|kept| self.world.allows(call, kept, result));
        call.names_the_head() && kept.into_iter().any(|kept| contradicts(&kept))
    }

    /// Returns whether `result` is a search in which replicas left out the logs of blocks that they lack. If the proxy knows
    /// the branch, all logs must be of one branch.
    fn allows_incomplete(&self, asked: &Asked, finished: &Finished, result: &Bytes) -> bool {
        let from = asked.arrived.checked_sub(UNREST).unwrap_or(asked.arrived);
        let states: Vec<_> = self.states(from, finished.at).collect();
        let is_part = |states: &[&State]| self.world.allows_part(&asked.call, states, result);
        is_forwarded(&finished.status)
            && !self.is_calm(asked.arrived, finished.at)
            && if self.knows_branch { states.chunks(1).any(is_part) } else { is_part(&states) }
    }

    fn note_circumstances(&self) {
        let states = || self.replicas.iter().map(Replica::state);
        let is_orphaned =
            |state| self.lowest_orphan(state).is_some_and(|orphan| orphan <= self.world.called_final);
        self.seen.answers.fetch_add(1, Relaxed);
        self.seen.apart.fetch_add(usize::from(states().any(|state| Some(state) != states().next())), Relaxed);
        self.seen.orphaned.fetch_add(usize::from(states().any(is_orphaned)), Relaxed);
    }

    /// Records the block that an answer shows by number or tag.
    fn note_told(&mut self, call: &Call, result: &Bytes, at: Instant) {
        let by_hash = call.block().is_some();
        let value: Value = serde_json::from_slice(result).unwrap_or_default();
        let block = serde_json::from_value::<Hash>(value["hash"].clone())
            .ok()
            .filter(|_| value["parentHash"].is_string());
        let Some(block) = block.filter(|_| !by_hash) else { return };
        if let Some(number) = self.world.number(block) {
            self.told.push(Told { at, number, block, is_latest: call.shows_the_head() });
        }
    }

    /// Returns a block that contains the answer to this call and that the proxy must still know, because it showed the block
    /// before the call arrived.
    ///
    /// The block is too young for an accepted rollback, so `latest` cannot be below it, and no replica shows another block
    /// in its place.
    fn must_be_known(&self, asked: &Asked, at: Instant) -> Option<Hash> {
        let is_known = |told: &&Told| {
            let latest = |other: &Told| other.is_latest && self.world.is_ancestor(told.block, other.block);
            let shown = self.told.iter().filter(|other| latest(other)).map(|other| other.at).min();
            let contains = |state: &State| state.visible.contains(&told.block);
            let mined = self.world.states.iter().find(|state| contains(state)).map(|state| state.since);
            shown.is_some_and(|shown| shown.max(told.at) < asked.arrived)
                && mined.is_some_and(|mined| at < mined + LAG_PATIENCE)
                && !self.shows_another(told, at)
                && !self.may_lose_links(told, at)
        };
        let is_asked_for = |told: &&Told| self.world.is_in(&asked.call, told.number, told.block);
        self.told.iter().filter(is_asked_for).find(is_known).map(|told| told.block)
    }

    /// Returns whether a replica has shown another branch since shortly before the proxy showed this block. The head of
    /// another branch is a reorg, which the proxy may follow at any height.
    fn shows_another(&self, told: &Told, at: Instant) -> bool {
        let before = told.at.checked_sub(self.config.chain.max_staleness).unwrap_or(told.at);
        let is_behind = |state: &State| self.world.is_ancestor(*state.visible.last().unwrap(), told.block);
        self.states(before, at).any(|state| !state.visible.contains(&told.block) && !is_behind(state))
    }

    /// Returns whether a replica has shown a head above this block while another replica lacked a block between the two.
    /// Then the proxy may find no link from that head down to this block, because it asks for a few blocks only.
    fn may_lose_links(&self, told: &Told, at: Instant) -> bool {
        let before = told.at.checked_sub(self.config.chain.max_staleness).unwrap_or(told.at);
        let lowest = usize::try_from(told.number).unwrap() + 1;
        let lacks_one = |ahead: &State, other: &State| {
            let mut between = lowest..ahead.visible.len().saturating_sub(1);
            between.any(|number| other.visible.get(number) != ahead.visible.get(number))
        };
        self.states(before, at).any(|ahead| self.states(before, at).any(|other| lacks_one(ahead, other)))
    }
}

/// Returns whether an answer is `null`, `0x` or an empty list of receipts.
fn is_nothing(call: &Call, result: &Bytes) -> bool {
    call.is_nothing(result) || (result == "[]" && matches!(call.question, Question::BlockReceipts(_)))
}

fn run(setting: Setting, seen: &Seen, steps: &[Happens]) -> Result<(), String> {
    run_in_memory(steps, async {
        let mut run = Run::new(setting, seen);
        for (position, step) in steps.iter().enumerate() {
            let happened = run.happens(step).await;
            happened.map_err(|error| format!("step {position} ({step:?}): {error}"))?;
        }
        run.join().await.map_err(|error| format!("at the end: {error}"))?;
        match run.program.metric("finality_alarms_total") {
            0 => Ok(()),
            _ => Err("a replica that lags raised the alarm".to_owned()),
        }
    })
}

fn any_program() -> impl Strategy<Value = Vec<Happens>> {
    proptest::collection::vec(happens(), 1..60)
}

fn check(setting: Setting, programs: u32) {
    let seen = Seen::default();
    let ran = check_programs(programs, &any_program(), &setting, |steps| run(setting, &seen, steps));
    println!("{setting:?}: {seen:?}");
    seen.assert_differed(ran, 40);
    if setting.fast_finality {
        ran.must_cover(
            "an answer while a replica shows an orphan at a final number",
            3,
            seen.orphaned.load(Relaxed),
        );
    }
    seen.logs.must_reach(setting.ordinary().log_sources(), ran);
}

#[test]
fn every_answer_is_that_of_a_replica() {
    check(Setting { fast_finality: false, followed: false }, 200);
}

#[test]
fn every_answer_is_that_of_a_replica_with_fast_finality() {
    check(Setting { fast_finality: true, followed: false }, 300);
}

#[test]
fn every_answer_is_that_of_a_replica_while_following() {
    check(Setting { fast_finality: true, followed: true }, 100);
}

/// A replica that lags behind a reorg answers for a number that is already final.
#[test]
fn orphan_of_a_lagging_replica_is_not_final() {
    for replica in 0..3 {
        for shift in 0..12 {
            let steps = [
                Happens::Step(Step::Mine(4, 1)),
                Happens::Shift(shift),
                Happens::StayBehind { replica, restart: true },
                Happens::CatchUp,
                Happens::Step(Step::Wait(1_001)),
                Happens::AskOrphaned { full: true },
                Happens::AskOrphaned { full: false },
            ];
            let setting = Setting { fast_finality: true, followed: false };
            run(setting, &Seen::default(), &steps)
                .unwrap_or_else(|error| panic!("{replica}, {shift}: {error}"));
        }
    }
}

/// A replica that lags behind a reorg searches a part of the range.
#[test]
fn logs_of_known_blocks_are_of_one_branch() {
    let filter = LogFilter { example: 0, address: Pick::Any, topics: [Pick::Any; 4], positions: 0 };
    // More blocks than the proxy fetches.
    let logs = Question::Logs(LogQuery { span: Span::Numbers { last: 0, before: 20 }, filter });
    let seen = Seen::default();
    for behind in 0..3 {
        for shift in 0..12 {
            // The new branch is as long as the old one, so that the proxy finds its link to the blocks below.
            let deal = vec![0, 1, 2, 1, 0];
            let search = Happens::SearchBranches { behind, deal, logs, is_linked: true };
            let steps = [Happens::Shift(shift), Happens::Step(Step::Mine(20, 1)), search];
            run(Setting { fast_finality: false, followed: false }, &seen, &steps)
                .unwrap_or_else(|error| panic!("{behind}, {shift}: {error}"));
        }
    }
    seen.logs.must_reach(&[Source::Forwarded], ProgramCount(u32::MAX));
}

/// A replica showed a lower head long ago, and a client asks for logs above the head.
#[test]
fn logs_above_the_head_are_answered_after_a_lag() {
    let filter = LogFilter { example: 0, address: Pick::Any, topics: [Pick::Any; 4], positions: 0 };
    let above = Question::Logs(LogQuery { span: Span::Numbers { last: -1, before: 0 }, filter });
    let head = Question::BlockByNumber(Place::Latest, false);
    for replica in 0..3 {
        for shift in 0..12 {
            let steps = [
                Happens::Step(Step::Mine(3, 1)),
                Happens::Lag { replica, changes: 2 },
                Happens::Step(Step::Mine(1, 1)),
                Happens::Step(Step::Wait(1_001)),
                Happens::Shift(shift),
                Happens::Step(Step::Ask(head)),
                Happens::Step(Step::Wait(1_001)),
                Happens::Step(Step::Ask(head)),
                Happens::CatchUp,
                Happens::Step(Step::Wait(70_000)),
                Happens::Step(Step::Ask(above)),
            ];
            run(Setting { fast_finality: false, followed: false }, &Seen::default(), &steps)
                .unwrap_or_else(|error| panic!("{replica}, {shift}: {error}"));
        }
    }
}

/// Most replicas lack the head that the proxy has just shown.
#[test]
fn known_head_content_is_never_null() {
    for question in
        [Question::Receipt(0), Question::TransactionByHash(0), Question::BlockReceipts(Place::Below(0))]
    {
        for shift in 0..12 {
            let steps = [
                Happens::Step(Step::Mine(3, 1)),
                Happens::Step(Step::Ask(Question::BlockNumber)),
                Happens::Lag { replica: 0, changes: 3 },
                Happens::Lag { replica: 1, changes: 3 },
                Happens::Step(Step::Mine(1, 1)),
                Happens::Step(Step::Wait(1_001)),
                Happens::Shift(shift),
                Happens::Step(Step::Ask(Question::BlockByNumber(Place::Latest, false))),
                Happens::Step(Step::Ask(question)),
                Happens::Step(Step::Wait(1_001)),
                Happens::Step(Step::Ask(question)),
            ];
            let setting = Setting { fast_finality: false, followed: false };
            run(setting, &Seen::default(), &steps)
                .unwrap_or_else(|error| panic!("{question:?}, {shift}: {error}"));
        }
    }
}

/// A replica that lags behind a reorg shows an orphan below the finalized block as its head.
#[test]
fn orphan_below_the_finalized_block_is_not_the_head() {
    for shift in 0..40 {
        let steps = [
            Happens::Step(Step::Mine(1, 1)),
            Happens::Shift(shift),
            Happens::StayBehind { replica: 1, restart: true },
            Happens::Step(Step::Wait(30)),
            Happens::ShowHead { ahead: 0, question: Question::Receipt(0) },
        ];
        let setting = Setting { fast_finality: true, followed: false };
        run(setting, &Seen::default(), &steps).unwrap_or_else(|error| panic!("{shift}: {error}"));
    }
}

/// A replica shows an orphan as its head, at the number of the finalized block.
#[test]
fn orphan_at_the_finalized_number_is_not_the_head() {
    let head = Question::BlockByNumber(Place::Below(0), false);
    for shift in 0..40 {
        let steps = [
            Happens::Step(Step::Mine(7, 0)),
            Happens::Lag { replica: 0, changes: 2 },
            Happens::Step(Step::Reorg { depth: 1, length: 3 }),
            Happens::Step(Step::Reorg { depth: 1, length: 3 }),
            Happens::Shift(shift),
            Happens::Step(Step::Ask(head)),
            Happens::Step(Step::Mine(1, 0)),
            Happens::Step(Step::Wait(1_001)),
            Happens::Step(Step::Start(Question::BlockByNumber(Place::Latest, false))),
            Happens::Step(Step::Ask(head)),
        ];
        let setting = Setting { fast_finality: true, followed: false };
        run(setting, &Seen::default(), &steps).unwrap_or_else(|error| panic!("{shift}: {error}"));
    }
}

#[test]
fn programs_repeat() {
    for setting in [
        Setting { fast_finality: false, followed: false },
        Setting { fast_finality: true, followed: false },
        Setting { fast_finality: true, followed: true },
    ] {
        assert_repeats(&setting, &any_program(), |steps| run(setting, &Seen::default(), steps));
    }
}
