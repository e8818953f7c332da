//! Two proxies that share a Redis and are stopped, killed and restarted. The first has a disk tier; the second has one
//! only if there is no Redis. Disk and Redis are real, so the tests run in real time. The proxies are in front of one
//! node, or of two nodes of one chain, which fail, are slow, lag, or do not report finality.
//!
//! At times a reorg even replaces finalized blocks, which no node may do. Afterwards, a proxy may still serve the old
//! branch if it was already running and has neither raised the alarm nor seen a write that resets the chain, or if it
//! has reached no node since its start. No other proxy may serve it.

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
    check::check_programs,
    step::{Finality, Place, Question, Span, Step, log_question_about, question, step},
};
use crate::support::redis::redis;

const STALENESS: Duration = Duration::from_millis(40);

/// Number of programs from which on the counts must be plausible. These programs are long, so a few are enough.
const ENOUGH: u32 = 8;

#[derive(Clone, Copy, Debug)]
struct Setting {
    nodes: usize,
    demand: Demand,
}

#[derive(Clone, Debug)]
enum Happens {
    /// Changes node `node` or the chain, or sends a call to proxy `which`.
    Step {
        step: Step,
        which: usize,
        node: usize,
    },
    /// Asks for content that is probably final.
    AskFinal(Question, usize),
    /// Asks for `latest` and `finalized`, so that the proxy knows both blocks.
    Finalized(usize),
    /// Stops or kills a proxy, and starts it again.
    Restart {
        which: usize,
        killed: bool,
    },
    /// Restarts a proxy while no node answers, or, if `meets` is set, just before the nodes stop answering. Then sends
    /// calls, and lets the nodes answer again.
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
    /// Replaces finalized blocks.
    Replace {
        below: u64,
        more: usize,
    },
    /// Lowers the head, and announces it through a proxy with `debug_setHead`.
    SetHead {
        which: usize,
        depth: u64,
    },
    /// Replaces finalized blocks, and announces it with `debug_setHead` while these calls are in flight and Redis is slow.
    /// Then sends the calls again.
    SetHeadBelowFinal {
        which: usize,
        below: u64,
        asked: Vec<Question>,
    },
    /// Replaces a node for a while by one of another chain, higher by `higher` blocks.
    Stranger {
        which: usize,
        node: usize,
        higher: usize,
        asked: Vec<Question>,
    },
}

/// Counts over all programs.
#[derive(Debug, Default)]
struct Seen {
    steps: AtomicU64,
    answers: AtomicU64,
    /// Answers with logs.
    logs: AtomicU64,
    /// Answers that are allowed only because the proxy may still serve replaced finalized blocks.
    believed: AtomicU64,
    errors: AtomicU64,
    /// Errors without a cause in the program, such as timeouts on a busy machine.
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
    // The questions use few places, so that calls repeat, at the heights at which blocks are replaced.
    let place = prop_oneof![(16i8..24).prop_map(Place::Below), (38u64..46).prop_map(Place::At)];
    let span = prop_oneof![
        2 => (16i8..24, 0u8..5).prop_map(|(last, before)| Span::Numbers { last, before }),
        1 => any::<u16>().prop_map(Span::Hash),
    ];
    let transaction = prop_oneof![any::<u16>(), 76u16..92].prop_map(|choice| choice | 1);
    prop_oneof![
        3 => (place.clone(), any::<bool>()).prop_map(|(place, full)| Question::BlockByNumber(place, full)),
        2 => place.clone().prop_map(Question::BlockReceipts),
        1 => (place, 0u8..3).prop_map(|(place, index)| Question::TransactionAtNumber(place, index)),
        2 => transaction.clone().prop_map(Question::TransactionByHash),
        2 => transaction.prop_map(Question::Receipt),
        3 => log_question_about(span.boxed()),
    ]
}

/// Shortens waits, because these tests run in real time.
fn quick(step: Step) -> Step {
    match step {
        Step::Wait(millis) => Step::Wait(millis.min(60)),
        Step::Slow { late, millis } => Step::Slow { late, millis: millis.min(90) },
        step => step,
    }
}

/// Steps that disturb a node, or end a disturbance.
fn trouble(nodes: usize) -> impl Strategy<Value = Step> {
    // The proxy avoids a failing node for a while, so failures are rarer if there is no second node.
    let failing = if nodes > 1 { 3 } else { 1 };
    let step = step().prop_filter("the step does not disturb a node", |step| {
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
    step().prop_filter("another kind of step", fits)
}

fn happens(nodes: usize) -> impl Strategy<Value = Happens> {
    let which = 0usize..2;
    // With a single node, the program must wait until the proxy uses the node again, so replacements are rarer.
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
    let begun_programs = AtomicU64::new(0);
    let program = proptest::collection::vec(happens(nodes), 40..120);
    let ran = check_programs(programs, &program, &setting, |steps| {
        let mut server = server.lock().unwrap();
        let number = begun_programs.fetch_add(1, Relaxed) + 1;
        runtime.block_on(async {
            let mut run = Run::new(setting, server.as_mut(), &seen).await;
            for (position, step) in steps.iter().enumerate() {
                let happened = run.happens(step).await;
                happened
                    .map_err(|error| format!("program {number}, step {position} ({step:?}): {error}"))
                    // Prints the error at once, because shrinking takes long.
                    .inspect_err(|error| println!("{error}"))?;
            }
            run.join(|_, _| true).await.map_err(|error| format!("program {number}, at the end: {error}"))
        })
    });
    println!("{setting:?}, {ran:?}, {:?}: {seen:?}", begun.elapsed());
    let count = |counter: &AtomicU64| counter.load(Relaxed);
    let must_cover =
        |event: &str, count: u64| ran.must_cover_after(ENOUGH, event, usize::try_from(count).unwrap());
    must_cover("a read from the disk tier", count(&seen.disk));
    if has_redis {
        must_cover("a read from the Redis tier", count(&seen.redis));
    }
    must_cover("an answer has logs", count(&seen.logs));
    if ran.0 >= ENOUGH {
        let (answers, errors, unexplained) =
            (count(&seen.answers), count(&seen.errors), count(&seen.unexplained));
        assert!(errors < answers / 4, "too many calls fail: {errors}, with {answers} answers");
        assert!(
            unexplained <= answers / 100,
            "too many calls fail without a reason: {unexplained}, with {answers} answers"
        );
    }
}

#[test]
#[ignore = "runs in tests/run --all: real time, so a seed does not repeat a run"]
fn every_answer_is_allowed_with_tiers_and_restarts() {
    let setting = Setting { nodes: 1, demand: Demand::Auto };
    check("every_answer_is_allowed_with_tiers_and_restarts", setting, 12);
}

#[test]
#[ignore = "runs in tests/run --all: real time, so a seed does not repeat a run"]
fn every_answer_is_allowed_with_tiers_and_two_nodes() {
    let setting = Setting { nodes: 2, demand: Demand::Auto };
    check("every_answer_is_allowed_with_tiers_and_two_nodes", setting, 10);
}

#[test]
#[ignore = "runs in tests/run --all: real time, so a seed does not repeat a run"]
fn every_answer_is_allowed_with_tiers_and_structural_checks() {
    let setting = Setting { nodes: 1, demand: Demand::Structural };
    check("every_answer_is_allowed_with_tiers_and_structural_checks", setting, 8);
}
