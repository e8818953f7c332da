//! Two nodes of one chain behind one proxy. They may agree, be on two branches, lag, fail, or be replaced by a node of
//! another chain.
//!
//! Every answer must be one that one of the nodes would have given at a moment that docs/guarantees.md allows. When
//! both have been healthy and agreed for a while, the model treats them as one node: no call may fail, and no answer
//! may be older than a head that the proxy has shown.
//!
//! Both chains build the same blocks in the same order and differ only in the canonical branch. Neither serves a block by
//! hash that is not on its branch.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use holdfast::{
    devchain::DevChain,
    jsonrpc::{Answer, read_answers},
    upstream::{EndpointConfig, EndpointParts, IdentityState},
};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{self, Instant},
};

use super::{
    FAILURES, Finished, ORDINARY,
    address::Address,
    check::{assert_repeats, check_programs, run_in_memory},
    judge::UNAVAILABLE,
    request, send_timed, settings, shorten,
    sources::LogSources,
    step::{Finality, Place, Question, Step, log_step, step},
    world::{Call, State, World},
};
use crate::support::in_memory::{self, InMemory};

/// Time after the last fault during which the proxy may still avoid a node or not know its chain.
const RECOVERY: Duration = Duration::from_secs(12);

/// A step of a program with two nodes.
#[derive(Clone, Debug)]
enum Happens {
    /// Applies a step to both nodes; questions are about blocks of the first.
    Both(Step),
    /// Applies a step to one node; questions are about its blocks.
    One(usize, Step),
    /// Lets this node adopt the branch of the other node. If that would undo a finalized block, the other node adopts
    /// the branch of this one.
    Heal(usize),
    /// Replaces this node by one of another chain with the same chain id, higher by this many blocks.
    Stranger(usize, usize),
    /// Ends the replacement.
    Return,
    /// Ends replacements, faults, lag and forks (see `Heal`), and waits until the model treats both as one node.
    Peace(usize),
}

/// Configuration of the proxy.
#[derive(Clone, Copy, Debug)]
struct Setting {
    /// Whether the proxy asks the second node only if the first fails. If not set, both share the load.
    in_order: bool,
    /// Uses a small window and a small cache, neither of which may change an answer.
    switched: bool,
    followed: bool,
}

/// A call in flight.
struct Asked {
    call: Call,
    arrived: Instant,
    may_fail: bool,
    /// Oldest state that may answer the call if the model treats both nodes as one. A head that the proxy showed
    /// excludes older states.
    shown: usize,
}

/// Counts over all programs, with which the tests check that the nodes both differed and agreed.
#[derive(Debug, Default)]
struct Seen {
    answers: AtomicUsize,
    failures: AtomicUsize,
    /// Answers while the nodes were on two branches.
    forked: AtomicUsize,
    /// Answers while the model treated the nodes as one.
    as_one: AtomicUsize,
    /// Answers while the proxy knew that one node served the wrong chain.
    strange: AtomicUsize,
    logs: LogSources,
}

struct Run<'a> {
    nodes: [World; 2],
    addresses: [Address; 2],
    /// The node whose place a node of another chain has taken.
    strange: Option<usize>,
    program: InMemory,
    staleness: Duration,
    started: Vec<(Asked, JoinHandle<Finished>)>,
    /// Whether faults are in force.
    faulty: bool,
    /// Time at which the last fault ended.
    recovered: Option<Instant>,
    /// Time since which both nodes have been healthy and agreed.
    agreed: Option<Instant>,
    /// Newest state whose head the proxy has shown while the model treated both nodes as one. No later answer may be
    /// of an older state.
    shown: usize,
    seen: &'a Seen,
}

fn happens() -> impl Strategy<Value = Happens> {
    let one = prop_oneof![
        3 => (1usize..3, 0usize..4).prop_map(|(blocks, transactions)| Step::Mine(blocks, transactions)),
        1 => (20usize..80).prop_map(|blocks| Step::Mine(blocks, 0)),
        6 => (1u64..5, 1usize..6).prop_map(|(depth, length)| Step::Reorg { depth, length }),
        4 => (1u64..5, proptest::collection::vec(any::<u8>(), 1..8))
            .prop_map(|(depth, deal)| Step::Shuffle { depth, deal }),
        4 => (0u64..4).prop_map(Step::Lag),
        1 => (1u64..4).prop_map(Step::Rollback),
        40 => step(),
    ];
    prop_oneof![
        20 => step().prop_map(Happens::Both),
        20 => (0usize..2, one).prop_map(|(node, step)| Happens::One(node, step)),
        5 => log_step().prop_map(Happens::Both),
        5 => (0usize..2, log_step()).prop_map(|(node, step)| Happens::One(node, step)),
        2 => (0usize..2).prop_map(Happens::Heal),
        2 => (0usize..2, 0usize..3).prop_map(|(node, higher)| Happens::Stranger(node, higher)),
        2 => Just(Happens::Return),
        4 => (0usize..2).prop_map(Happens::Peace),
    ]
}

// === impl Setting ===

impl Setting {
    /// Returns the configuration of the proxy with one node.
    fn ordinary(self) -> super::Setting {
        super::Setting { switched: self.switched, followed: self.followed, ..ORDINARY }
    }
}

// === impl Run ===

impl<'a> Run<'a> {
    fn new(setting: Setting, seen: &'a Seen) -> Self {
        let (mut config, mut node) = settings(setting.ordinary());
        let priorities = if setting.in_order { [0, 1] } else { [0, 0] };
        config.upstream.endpoints =
            priorities.map(|priority| EndpointConfig { priority, ..EndpointConfig::at("") }).to_vec();
        // A node does not serve blocks that are not on its own branch.
        node.keep_orphans = false;
        let nodes = [World::new(node.clone()), World::new(node)];
        let addresses = nodes.each_ref().map(|node| Address::of(&node.chain));
        let endpoints =
            addresses.iter().zip(&config.upstream.endpoints).zip(0..).map(|((address, config), at)| {
                let name = format!("devchain {at}");
                EndpointParts {
                    address: Some(in_memory::address(&name)),
                    name: name.into(),
                    transport: address.transport(),
                    config: config.clone(),
                }
            });
        let program = in_memory::program_of(endpoints.collect(), &config).accepting_gzip_mostly();
        Self {
            addresses,
            strange: None,
            nodes,
            program,
            staleness: config.chain.max_staleness,
            started: Vec::new(),
            faulty: false,
            recovered: None,
            agreed: Some(Instant::now()),
            shown: 0,
            seen,
        }
    }

    async fn happens(&mut self, what: &Happens) -> Result<(), String> {
        match what {
            Happens::Both(step) => self.step(&[0, 1], step).await?,
            Happens::One(node, step) => self.step(&[*node], step).await?,
            Happens::Heal(node) => self.heal(*node),
            Happens::Stranger(node, higher) => self.replace(*node, *higher),
            Happens::Return => self.put_back(),
            Happens::Peace(node) => {
                self.put_back();
                self.heal(*node);
                self.nodes.iter_mut().for_each(|node| node.set_lag(0));
                self.clear_faults();
                self.note_agreement();
                time::sleep(2 * self.staleness + Duration::from_millis(1)).await;
            }
        }
        self.note_agreement();
        Ok(())
    }

    fn note_agreement(&mut self) {
        let [one, other] = &self.nodes;
        let is_well = !self.faulty && self.strange.is_none();
        let agree = is_well && one.states[one.last()].visible == other.states[other.last()].visible;
        self.agreed = agree.then(|| self.agreed.unwrap_or_else(Instant::now));
    }

    async fn step(&mut self, nodes: &[usize], step: &Step) -> Result<(), String> {
        match step {
            Step::Wait(millis) => time::sleep(Duration::from_millis(*millis)).await,
            Step::Mine(blocks, transactions) => {
                self.change(nodes, *blocks as u64, |world| world.mine(*blocks, *transactions));
            }
            Step::Reorg { depth, length } => {
                self.change(nodes, *length as u64, |world| world.reorg(*depth, *length));
            }
            Step::Shuffle { depth, deal } => self.change(nodes, 3, |world| world.shuffle(*depth, deal)),
            Step::IncludeDropped => self.change(nodes, 1, World::include_dropped),
            Step::Rollback(depth) => self.change(nodes, 0, |world| world.rollback(*depth)),
            Step::Lag(lag) => nodes.iter().for_each(|node| self.nodes[*node].set_lag(*lag)),
            Step::Finality(finality) => self.set_finality(*finality),
            Step::Fail(failure, times) => {
                nodes.iter().for_each(|node| self.nodes[*node].fail(*failure, *times));
                self.faulty = true;
            }
            Step::Slow { late, millis } => {
                nodes.iter().for_each(|node| self.nodes[*node].slow(*late, Duration::from_millis(*millis)));
                self.faulty = true;
            }
            Step::ClearFaults => self.clear_faults(),
            Step::Ask(question) | Step::AskOften(question) => {
                for _ in 0..step.times() {
                    self.ask(self.nodes[nodes[0]].call(*question)).await?;
                }
            }
            Step::LogsOfKnown { query, receipts } => {
                for call in self.nodes[nodes[0]].logs_of_known(*query, *receipts) {
                    self.ask(call).await?;
                }
            }
            Step::Batch(questions) => {
                let asked: Vec<_> = questions
                    .iter()
                    .map(|question| self.asked(self.nodes[nodes[0]].call(*question)))
                    .collect();
                let calls: Vec<_> =
                    asked.iter().zip(0..).map(|(asked, id)| request(&asked.call, id)).collect();
                let finished = send_timed(self.program.clone(), json!(calls).to_string()).await;
                self.judge(&asked, &finished)?;
            }
            Step::Start(question) => {
                let asked = self.asked(self.nodes[nodes[0]].call(*question));
                let sending =
                    tokio::spawn(send_timed(self.program.clone(), request(&asked.call, 1).to_string()));
                tokio::task::yield_now().await;
                self.started.push((asked, sending));
            }
            Step::Join => self.join().await?,
            // The model with one node covers these steps. Some of them would make the two nodes differ for good.
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
        }
        Ok(())
    }

    async fn ask(&mut self, call: Call) -> Result<(), String> {
        let asked = self.asked(call);
        let finished = send_timed(self.program.clone(), request(&asked.call, 1).to_string()).await;
        self.judge(&[asked], &finished)
    }

    async fn join(&mut self) -> Result<(), String> {
        for (asked, sending) in std::mem::take(&mut self.started) {
            let finished = sending.await.map_err(|error| format!("the task of a call failed: {error}"))?;
            self.judge(&[asked], &finished)?;
        }
        Ok(())
    }

    // ## Changes

    /// Changes the branch of these nodes, which grows by at most `growth` blocks. Both chains build the new blocks.
    fn change(&mut self, nodes: &[usize], growth: u64, change: impl Fn(&mut World)) {
        self.keep_final_what_is(growth);
        let noted = [0, 1].map(|node: usize| self.nodes[node].states.len());
        let lags = [0, 1].map(|node: usize| self.nodes[node].lag());
        // Ends the lag, because the chains would otherwise build different blocks.
        self.nodes.iter_mut().for_each(|node| node.set_lag(0));
        let before = self.heads();
        let mut after = before;
        let together = nodes.len() == 2 && before[0] == before[1];
        for node in if together { &nodes[..1] } else { nodes } {
            for world in &mut self.nodes {
                world.chain.set_head(before[*node]);
                change(world);
            }
            after[*node] = self.nodes[*node].chain.head().hash;
            if together {
                after = [after[*node]; 2];
            }
        }
        for ((world, head), (noted, lag)) in self.nodes.iter_mut().zip(after).zip(noted.into_iter().zip(lags))
        {
            world.chain.set_head(head);
            // Drops the intermediate states, which the node never showed.
            world.states.truncate(noted);
            world.set_lag(lag);
        }
        self.share_floor();
    }

    /// Lets `node` adopt the branch of the other node. If that would undo a finalized block, the other node adopts
    /// the branch of `node`.
    fn heal(&mut self, node: usize) {
        let [one, other] = [node, 1 - node].map(|node| &self.nodes[node]);
        let replaces = |number| one.chain.hash_at(number) != other.chain.hash_at(number);
        let finalized = one.states.last().and_then(|state| state.finalized);
        let undone = other.chain.head().number < one.floor || finalized.is_some_and(replaces);
        let node = if undone { 1 - node } else { node };
        let (head, other) = (self.heads()[1 - node], self.nodes[1 - node].chain.clone());
        self.nodes[node].chain.adopt(&other, head);
        self.nodes[node].note();
        self.share_floor();
    }

    /// Ends a fork before growth by `growth` blocks could make a block above the fork final.
    fn keep_final_what_is(&mut self, growth: u64) {
        let [one, other] = &self.nodes;
        let (one, other) = (&one.chain, &other.chain);
        let top = one.head().number.max(other.head().number);
        let distance = one.config().finalized_distance;
        let shared = (0..=top).take_while(|number| one.hash_at(*number) == other.hash_at(*number)).count();
        let final_then = (top + growth).saturating_sub(distance).max(self.nodes[0].floor);
        if self.heads()[0] != self.heads()[1] && final_then >= shared as u64 {
            self.heal(usize::from(one_is_higher(&self.nodes)));
        }
    }

    fn set_finality(&mut self, finality: Finality) {
        // The finalized block might be above the fork.
        if matches!(finality, Finality::At(_)) && self.heads()[0] != self.heads()[1] {
            return;
        }
        self.nodes.iter_mut().for_each(|node| node.set_finality(finality));
        self.share_floor();
    }

    fn share_floor(&mut self) {
        let floor = self.nodes[0].floor.max(self.nodes[1].floor);
        self.nodes.iter_mut().for_each(|node| node.floor = floor);
    }

    /// Replaces a node by one of another chain, unless one is already replaced or the proxy does not know both nodes yet.
    fn replace(&mut self, node: usize, higher: usize) {
        let is_known = |at: usize| self.identity(at) == Some(true);
        if self.strange.is_some() || !is_known(0) || !is_known(1) {
            return;
        }
        let mut config = self.nodes[node].chain.config();
        config.seed += 1;
        let stranger = DevChain::new(config);
        let blocks = usize::try_from(self.nodes[node].chain.head().number).unwrap() + higher;
        stranger.mine_many(blocks, 1);
        self.addresses[node].stands(Some(stranger));
        self.strange = Some(node);
    }

    fn put_back(&mut self) {
        if let Some(node) = self.strange.take() {
            self.addresses[node].stands(None);
            self.recovered = Some(Instant::now());
        }
    }

    /// Returns whether this node serves the right chain, or `None` if the proxy does not know.
    fn identity(&self, node: usize) -> Option<bool> {
        match self.program.upstream.status().0[node].identity {
            Some(IdentityState::Known(_)) => Some(true),
            Some(IdentityState::WrongChain(_)) => Some(false),
            Some(IdentityState::Unknown(_)) | None => None,
        }
    }

    fn clear_faults(&mut self) {
        self.nodes.iter().for_each(|node| node.chain.clear_faults());
        if self.faulty {
            self.recovered = Some(Instant::now());
        }
        self.faulty = false;
    }

    fn heads(&self) -> [alloy_primitives::B256; 2] {
        [0, 1].map(|node: usize| self.nodes[node].chain.head().hash)
    }

    // ## Answers

    fn asked(&self, call: Call) -> Asked {
        let shown = if call.has_its_own_time() { 0 } else { self.shown };
        Asked { call, arrived: Instant::now(), may_fail: self.may_fail(), shown }
    }

    fn may_fail(&self) -> bool {
        self.faulty
            || self.strange.is_some()
            // Both connections are still lost, because no call has tried them since the nodes recovered.
            || self.addresses.iter().all(Address::is_lost)
            || self.recovered.is_some_and(|recovered| recovered.elapsed() < RECOVERY)
    }

    /// Returns whether both nodes had been healthy and agreed for long enough when a call arrived.
    fn are_as_one(&self, arrived: Instant) -> bool {
        self.agreed.is_some_and(|agreed| agreed + 2 * self.staleness < arrived)
    }

    fn judge(&mut self, asked: &[Asked], finished: &Finished) -> Result<(), String> {
        let is_alone = asked.len() == 1;
        let answers = read_answers(&finished.body).map_err(|error| error.to_string())?;
        if answers.len() != asked.len() {
            return Err(format!("{} answers to {} calls", answers.len(), asked.len()));
        }
        for (asked, answer) in asked.iter().zip(answers) {
            if let (true, Some(Answer::Result(result))) = (is_alone, &answer.answer) {
                self.seen.logs.count(&asked.call, &finished.status, result);
            }
            self.judge_answer(asked, &finished.status, &answer.answer.ok_or("neither result nor error")?)?;
        }
        Ok(())
    }

    fn judge_answer(&mut self, asked: &Asked, status: &str, answer: &Answer) -> Result<(), String> {
        let result = match answer {
            Answer::Result(result) => result,
            Answer::Error(error) => {
                let value: Value = serde_json::from_slice(error).map_err(|error| error.to_string())?;
                let code = value["code"].as_i64().unwrap_or_default();
                let failed = FAILURES.contains(&code);
                // The proxy may give up if nodes differ, lag, or change their branch.
                let (arrived, now) = (asked.arrived, Instant::now());
                let is_calm =
                    self.nodes.iter().all(|node| node.is_calm(arrived, now)) && self.are_as_one(arrived);
                // The tags of a batch may be inconsistent if the chain grew after the request for one of them.
                let earliest = arrived.checked_sub(self.staleness).unwrap_or(arrived);
                let is_of_batch =
                    value["message"].as_str().is_some_and(|text| text.contains("left the chain meanwhile"));
                let is_apart = is_of_batch && self.nodes.iter().any(|node| node.has_changed(earliest, now));
                if code == UNAVAILABLE && (!is_calm || is_apart) {
                    self.seen.failures.fetch_add(1, Relaxed);
                    return Ok(());
                }
                // A fault may have ended between the call and this check.
                let was_troubled = self.recovered.is_some_and(|recovered| recovered >= asked.arrived);
                if failed && (asked.may_fail || was_troubled || self.may_fail()) {
                    self.seen.failures.fetch_add(1, Relaxed);
                    return Ok(());
                }
                error
            }
        };
        let as_one = self.are_as_one(asked.arrived);
        self.seen.answers.fetch_add(1, Relaxed);
        self.seen.as_one.fetch_add(usize::from(as_one), Relaxed);
        self.seen.forked.fetch_add(usize::from(self.heads()[0] != self.heads()[1]), Relaxed);
        let is_found_out = self.strange.is_some_and(|node| self.identity(node) == Some(false));
        self.seen.strange.fetch_add(usize::from(is_found_out), Relaxed);
        let earliest = asked.arrived.checked_sub(self.staleness).unwrap_or(asked.arrived);
        let mut held = self
            .nodes
            .each_ref()
            .map(|node| node.states.iter().rposition(|state| state.since < earliest).unwrap_or(0));
        if as_one {
            held[0] = held[0].max(asked.shown);
        }
        let counted = if as_one { &self.nodes[..1] } else { &self.nodes[..] };
        for (node, from) in counted.iter().zip(held) {
            let found = node.states[from..].iter().position(|state| node.allows(&asked.call, state, result));
            let Some(position) = found else { continue };
            if as_one && asked.call.shows_the_head() {
                self.shown = self.shown.max(from + position);
            }
            return Ok(());
        }
        // Each tag has its own time stamp.
        let is_of_tags = |(node, from): (&World, usize)| {
            let states = &node.states[from..];
            states.iter().any(|state| node.allows_range(&asked.call, state, states, result))
        };
        if asked.call.has_its_own_time() && counted.iter().zip(held).any(is_of_tags) {
            return Ok(());
        }
        let states = || {
            let nodes = self.nodes.iter().zip(held);
            nodes.flat_map(|(node, from)| node.states[from..].iter().map(move |state| (node, state)))
        };
        let is_between = |(node, high): (&World, &State)| {
            states().any(|(_, low)| node.allows_between(&asked.call, low, high, result))
        };
        let is_ordered = |(node, from): (&World, usize)| {
            node.allows_ordered(&asked.call, &node.states[from..].iter().collect::<Vec<_>>(), result)
        };
        if self.was_head(&asked.call, held, result)
            || states().any(is_between)
            || counted.iter().zip(held).any(is_ordered)
        {
            return Ok(());
        }
        Err(format!(
            "{} {} was answered with {}\n({status}), which no state from {held:?} on allows; as one: {as_one}; \
             now the heads are {:?}",
            asked.call.method,
            asked.call.params,
            shorten(result),
            self.nodes.each_ref().map(|node| (node.chain.head(), node.lag())),
        ))
    }

    /// Returns whether `result` is a head that one of the nodes showed before and whose branch contains the head of
    /// an allowed state. The proxy does not follow a lagging node backwards at `latest`, even if another node showed
    /// the higher head. A number above the lagging node's head is then answered from the same branch.
    fn was_head(&self, call: &Call, held: [usize; 2], result: &Bytes) -> bool {
        let states = || self.nodes.iter().flat_map(|node| &node.states);
        self.nodes.iter().zip(held).any(|(node, from)| {
            node.states[from..].iter().filter(|state| call.names_the_head() || call.is_above(state)).any(
                |state| {
                    let earlier = states().filter(|earlier| earlier.since <= state.since);
                    let Some(visible) = state.visible.last() else { return false };
                    earlier.filter(|earlier| earlier.visible.contains(visible)).any(|earlier| {
                        node.allows(call, earlier, result)
                            || node.allows_range(call, earlier, &node.states, result)
                    })
                },
            )
        })
    }
}

fn one_is_higher(nodes: &[World; 2]) -> bool {
    nodes[0].chain.head().number >= nodes[1].chain.head().number
}

fn run(setting: Setting, seen: &Seen, steps: &[Happens]) -> Result<(), String> {
    run_in_memory(steps, async {
        let mut run = Run::new(setting, seen);
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
    for (event, one_in, count) in [
        ("an answer while the nodes are on two branches", 3, &seen.forked),
        ("an answer while the nodes act as one", 3, &seen.as_one),
        ("a call fails", 12, &seen.failures),
        ("an answer while the proxy knows that one node serves the wrong chain", 7, &seen.strange),
    ] {
        ran.must_cover(event, one_in, count.load(Relaxed));
    }
    seen.logs.must_reach(setting.ordinary().log_sources(), ran);
}

const IN_ORDER: Setting = Setting { in_order: true, switched: false, followed: false };

/// The batch may know the number of an older head, above which the block of `safe` is now.
#[test]
fn tags_of_a_batch_may_be_apart_after_growth() {
    let steps = [
        Step::Wait(6_000),
        Step::Ask(Question::BlockByNumber(Place::Below(0), false)),
        Step::Mine(20, 0),
        Step::Batch(vec![Question::RawReceipts(Place::Safe), Question::BlockNumber]),
    ]
    .map(Happens::Both);
    for in_order in [true, false] {
        run(Setting { in_order, ..IN_ORDER }, &Seen::default(), &steps).unwrap();
    }
}

#[test]
fn every_answer_is_that_of_a_node_with_priorities() {
    check(IN_ORDER, 200);
}

#[test]
fn every_answer_is_that_of_a_node_with_shared_load() {
    check(Setting { in_order: false, ..IN_ORDER }, 200);
}

#[test]
#[ignore = "runs in tests/run --all: a full cache evicts by the real clock"]
fn every_answer_is_that_of_a_node_with_a_small_window_and_cache() {
    check(Setting { switched: true, ..IN_ORDER }, 100);
}

#[test]
fn every_answer_is_that_of_a_node_while_following() {
    check(Setting { followed: true, in_order: false, ..IN_ORDER }, 100);
}

#[test]
fn programs_repeat() {
    for setting in [
        IN_ORDER,
        Setting { in_order: false, ..IN_ORDER },
        Setting { followed: true, in_order: false, ..IN_ORDER },
    ] {
        assert_repeats(&setting, &any_program(), |steps| run(setting, &Seen::default(), steps));
    }
}
/// A node must not leave a block that it called final on its own branch.
#[test]
fn final_block_above_a_fork_stays() {
    let steps = [
        Happens::Both(Step::Ask(Question::BlockNumber)),
        Happens::One(0, Step::Mine(3, 3)),
        Happens::One(1, Step::Reorg { depth: 1, length: 5 }),
        Happens::Stranger(0, 0),
        Happens::Both(Step::Slow { late: false, millis: 20 }),
        Happens::One(0, Step::Batch(vec![Question::Receipt(47_339), Question::Receipt(8_174)])),
        Happens::Heal(1),
        Happens::One(0, Step::Wait(1_001)),
        Happens::One(
            0,
            Step::Batch(vec![Question::BlockNumber, Question::BlockByNumber(Place::Below(0), false)]),
        ),
    ];
    run(IN_ORDER, &Seen::default(), &steps).unwrap();
}
