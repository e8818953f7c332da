//! Programs that are stopped, killed and started again over a directory, and share a Redis: in real time, for both are real.
//! The nodes fail, are slow, behind, or silent of finality meanwhile; there is one of them, or two of one chain.
//!
//! What is called final is even replaced at times, which must not happen. A program that runs may then tell what it took to be
//! final until it has given the alarm or was told, and one that has met no node since its start may. No other must.

mod damage;
mod instance;
mod judge;
mod run;

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use holdfast::verify::Demand;
use proptest::prelude::*;
use tokio::{runtime::Builder, time::Instant};

use self::run::Run;
use super::{
    check_programs,
    step::{Finality, Place, Question, Step, question, step},
};
use crate::support::redis::redis;

const STALENESS: Duration = Duration::from_millis(40);

#[derive(Clone, Copy, Debug)]
struct Setting {
    nodes: usize,
    demand: Demand,
}

#[derive(Clone, Debug)]
enum Happens {
    /// To this node, or the chain; a question is for one of those who share.
    Step {
        step: Step,
        which: usize,
        node: usize,
    },
    /// Something that is likely to be final.
    AskFinal(Question, usize),
    /// What is final is asked for, and so becomes known.
    Finalized(usize),
    /// Stopped in order, or killed, and started again.
    Restart {
        which: usize,
        killed: bool,
    },
    /// Started while there is no node, or just before it is gone, and asked; then the node comes back.
    RestartAlone {
        which: usize,
        meets: bool,
        asked: Vec<Question>,
    },
    Flush,
    KillRedis,
    StartRedis,
    DamageFile(u64),
    DamageValue(u64),
    /// What was final is replaced.
    Replace {
        below: u64,
        more: usize,
    },
    /// The head goes down, at a client's word.
    SetHead {
        which: usize,
        depth: u64,
    },
    /// What was final is replaced, and a client says that the node is another, while these are on their way and Redis
    /// takes its time. Then they are asked again.
    SetHeadBelowFinal {
        which: usize,
        below: u64,
        asked: Vec<Question>,
    },
    /// For a while one of another chain stands in a node's place, and so much higher.
    Stranger {
        which: usize,
        node: usize,
        higher: usize,
        asked: Vec<Question>,
    },
}

/// What was seen in all programs.
#[derive(Debug, Default)]
struct Seen {
    steps: AtomicU64,
    answers: AtomicU64,
    /// Answers that were right only for one who may tell what was once final.
    believed: AtomicU64,
    errors: AtomicU64,
    /// Errors though nothing was wrong: the machine was busy.
    unexplained: AtomicU64,
    started: AtomicU64,
    sent: AtomicU64,
    resets: AtomicU64,
    strangers: AtomicU64,
    restarts: AtomicU64,
    alone: AtomicU64,
    replaced: AtomicU64,
    alarms: AtomicU64,
    disk: AtomicU64,
    redis: AtomicU64,
}

fn final_question() -> impl Strategy<Value = Question> {
    // Few of them, so that what is asked for was asked for before; and as high as what is replaced.
    let place = prop_oneof![(16i8..24).prop_map(Place::Below), (38u64..46).prop_map(Place::At)];
    let transaction = prop_oneof![any::<u16>(), 76u16..92].prop_map(|choice| choice | 1);
    prop_oneof![
        3 => (place.clone(), any::<bool>()).prop_map(|(place, full)| Question::BlockByNumber(place, full)),
        2 => place.clone().prop_map(Question::BlockReceipts),
        1 => (place, 0u8..3).prop_map(|(place, index)| Question::TransactionAtNumber(place, index)),
        2 => transaction.clone().prop_map(Question::TransactionByHash),
        2 => transaction.prop_map(Question::Receipt),
    ]
}

/// Time is real: nothing takes more of it than it is worth.
fn quick(step: Step) -> Step {
    match step {
        Step::Wait(millis) => Step::Wait(millis.min(60)),
        Step::Slow { late, millis } => Step::Slow { late, millis: millis.min(90) },
        step => step,
    }
}

/// What makes a node other than it should be, or ends that.
fn trouble(nodes: usize) -> impl Strategy<Value = Step> {
    // One that fails is left alone for a while, and then there must be another.
    let failing = if nodes > 1 { 3 } else { 1 };
    let step = step().prop_filter("not of a node", |step| {
        matches!(
            step,
            Step::Fail(..) | Step::Slow { .. } | Step::Lag(_) | Step::Rollback(_) | Step::Finality(_)
        )
    });
    let failing_step = step_that(|step| matches!(step, Step::Fail(..)));
    prop_oneof![
        failing => failing_step,
        6 => step,
        3 => Just(Step::Finality(Finality::Trailing)),
        2 => Just(Step::Lag(0)),
        2 => Just(Step::ClearFaults),
    ]
}

fn step_that(fits: impl Fn(&Step) -> bool + 'static) -> impl Strategy<Value = Step> {
    step().prop_filter("another", fits)
}

fn happens(nodes: usize) -> impl Strategy<Value = Happens> {
    let which = 0usize..2;
    // Where it is the only one, nothing else can be done before it is gone.
    let strangers = if nodes > 1 { 3 } else { 1 };
    let some = || proptest::collection::vec(prop_oneof![question(), final_question()], 1..6);
    let one = |step: BoxedStrategy<Step>| {
        (step, 0usize..2, 0..nodes).prop_map(|(step, which, node)| Happens::Step {
            step: quick(step),
            which,
            node,
        })
    };
    prop_oneof![
        34 => one(step().boxed()),
        6 => one(trouble(nodes).boxed()),
        3 => one(final_question().prop_map(Step::Start).boxed()),
        60 => (final_question(), which.clone()).prop_map(|(question, which)| Happens::AskFinal(question, which)),
        6 => which.clone().prop_map(Happens::Finalized),
        9 => (which.clone(), any::<bool>()).prop_map(|(which, killed)| Happens::Restart { which, killed }),
        2 => (which.clone(), any::<bool>(), some())
            .prop_map(|(which, meets, asked)| Happens::RestartAlone { which, meets, asked }),
        1 => Just(Happens::Flush),
        1 => Just(Happens::KillRedis),
        2 => Just(Happens::StartRedis),
        1 => any::<u64>().prop_map(Happens::DamageFile),
        2 => any::<u64>().prop_map(Happens::DamageValue),
        1 => (1u64..30, 0usize..40).prop_map(|(below, more)| Happens::Replace { below, more }),
        1 => (which.clone(), 1u64..5).prop_map(|(which, depth)| Happens::SetHead { which, depth }),
        2 => (which.clone(), 1u64..30, proptest::collection::vec(final_question(), 0..5))
            .prop_map(|(which, below, asked)| Happens::SetHeadBelowFinal { which, below, asked }),
        strangers => (which, 0..nodes, 0usize..3, some())
            .prop_map(|(which, node, higher, asked)| Happens::Stranger { which, node, higher, asked }),
    ]
}

fn check(test: &str, setting: Setting, programs: u32) {
    let nodes = setting.nodes;
    let seen = Seen::default();
    let server = redis(test);
    let has_redis = server.is_some();
    let server = Mutex::new(server);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let begun = Instant::now();
    let ran = AtomicU64::new(0);
    check_programs(programs, &proptest::collection::vec(happens(nodes), 40..120), &setting, |steps| {
        let mut server = server.lock().unwrap();
        let number = ran.fetch_add(1, Relaxed) + 1;
        runtime.block_on(async {
            let mut run = Run::new(setting, server.as_mut(), &seen).await;
            for (position, step) in steps.iter().enumerate() {
                let happened = run.happens(step).await;
                happened
                    .map_err(|error| format!("program {number}, step {position} ({step:?}): {error}"))
                    // To shrink it takes long.
                    .inspect_err(|error| println!("{error}"))?;
            }
            run.join(|_| true).await.map_err(|error| format!("program {number}, at the end: {error}"))
        })
    });
    println!("{setting:?}, {ran:?} programs, {:?}: {seen:?}", begun.elapsed());
    let count = |counter: &AtomicU64| counter.load(Relaxed);
    assert!(count(&seen.disk) > 3, "the disk is not asked any more");
    assert!(count(&seen.redis) > 3 || !has_redis, "Redis is not asked any more");
    assert!(count(&seen.errors) < count(&seen.answers) / 4, "too much is not answered");
    assert!(count(&seen.unexplained) <= count(&seen.answers) / 100, "too much fails for no reason");
}

#[test]
fn every_answer_is_allowed_over_tiers_and_restarts() {
    let setting = Setting { nodes: 1, demand: Demand::Auto };
    check("every_answer_is_allowed_over_tiers_and_restarts", setting, 12);
}

#[test]
fn every_answer_is_allowed_over_tiers_and_two_nodes() {
    let setting = Setting { nodes: 2, demand: Demand::Auto };
    check("every_answer_is_allowed_over_tiers_and_two_nodes", setting, 10);
}

#[test]
fn every_answer_is_allowed_over_tiers_where_nothing_is_proved() {
    let setting = Setting { nodes: 1, demand: Demand::Structural };
    check("every_answer_is_allowed_over_tiers_where_nothing_is_proved", setting, 8);
}
