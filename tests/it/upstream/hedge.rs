//! Hedging: a slow call also goes to another node, if the operator enables it.

use std::time::Duration;

use holdfast::{
    config::Config,
    devchain::{DevChain, Fault, Lie},
    upstream::Percentile,
    verify::OnMismatch,
};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{
    in_memory::{self, InMemory},
    method::{BALANCE, BLOCK_BY_HASH},
    nodes::{FIRST, followed, hash, in_order, introduced, somebody, truth, twins},
    one_node::agrees,
};

/// A delay that is long enough to be noticed, but too short to make a call fail.
const SLOW: Duration = Duration::from_millis(1_000);

fn hedging() -> Config {
    let mut config = in_order();
    config.upstream.hedge = Percentile::try_new(0.9);
    config.verify.on_mismatch = OnMismatch::Reject;
    config
}

/// Returns two identified endpoints whose usual latency is known.
async fn practised(config: &Config) -> (DevChain, DevChain, InMemory) {
    let (first, second) = twins();
    let program = in_memory::program_over(&[&first, &second], config);
    introduced(&program).await;
    for _ in 0..50 {
        program.ask(BALANCE, somebody()).await;
    }
    first.clear_calls();
    second.clear_calls();
    (first, second, program)
}

fn hedges(program: &InMemory) -> (u64, u64) {
    (program.metric("upstream_hedges_total"), program.metric("upstream_hedge_wins_total"))
}

#[tokio::test(start_paused = true)]
async fn slow_call_is_answered_by_another_endpoint() {
    let (first, second, program) = practised(&hedging()).await;
    first.fail(Fault::Delay(SLOW)).any().always();
    let begun = Instant::now();
    program.ask(BALANCE, somebody()).await;
    agrees(&program, &second, BLOCK_BY_HASH, json!([hash(&first, 5), true])).await;
    assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
    assert_eq!((first.count(BALANCE), second.count(BALANCE)), (1, 1));
    assert_eq!(hedges(&program), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn fast_calls_are_not_hedged() {
    let (first, second, program) = practised(&hedging()).await;
    first.fail(Fault::Delay(Duration::from_millis(3))).any().always();
    for _ in 0..50 {
        program.ask(BALANCE, somebody()).await;
    }
    assert_eq!((first.count(BALANCE), second.count(BALANCE)), (50, 0));
    assert_eq!(hedges(&program), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn generally_slow_calls_are_not_hedged() {
    let (first, second, program) = practised(&hedging()).await;
    for node in [&first, &second] {
        node.fail(Fault::Delay(SLOW)).any().always();
    }
    for _ in 0..100 {
        program.ask(BALANCE, somebody()).await;
    }
    second.clear_calls();
    for _ in 0..50 {
        program.ask(BALANCE, somebody()).await;
    }
    assert!(second.count(BALANCE) <= 5, "{} of 50 asked twice", second.count(BALANCE));
}

#[tokio::test(start_paused = true)]
async fn first_endpoint_may_still_win() {
    let (first, second, program) = practised(&hedging()).await;
    first.fail(Fault::Delay(SLOW)).any().always();
    second.fail(Fault::Delay(2 * SLOW)).any().always();
    let begun = Instant::now();
    program.ask(BALANCE, somebody()).await;
    assert!(begun.elapsed() < SLOW + Duration::from_millis(100), "{:?}", begun.elapsed());
    assert_eq!(hedges(&program), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn failure_does_not_win_over_a_later_answer() {
    let failures = [
        Fault::Lie(Lie::Field("gasUsed".to_owned(), json!("0x1"))),
        Fault::Lie(Lie::WrongHash),
        Fault::Status(500),
        Fault::Garbage,
        Fault::Reset,
        Fault::Null,
        Fault::Error { code: -32005, message: "daily request count exceeded".to_owned() },
        Fault::Error { code: -32000, message: "internal".to_owned() },
    ];
    for fault in failures {
        // Each endpoint in turn is the one that fails.
        for liar in 0..2 {
            let (first, second, program) = practised(&hedging()).await;
            let (false_one, true_one) = if liar == 0 { (&first, &second) } else { (&second, &first) };
            false_one.fail(Fault::Delay(SLOW)).on(BLOCK_BY_HASH).always();
            false_one.fail(fault.clone()).on(BLOCK_BY_HASH).always();
            true_one.fail(Fault::Delay(SLOW + SLOW / 2)).on(BLOCK_BY_HASH).always();
            let params = json!([hash(&first, 5), true]);
            let (_, reply) = program.call(BLOCK_BY_HASH, params.clone()).await;
            assert_eq!(reply["result"], truth(true_one, BLOCK_BY_HASH, &params), "{liar} {fault:?}: {reply}");
            assert_eq!((first.count(BLOCK_BY_HASH), second.count(BLOCK_BY_HASH)), (1, 1), "{liar} {fault:?}");
            assert_eq!(hedges(&program), (1, u64::from(liar == 0)), "{liar} {fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn writes_and_filters_are_never_hedged() {
    let (first, second, program) = practised(&hedging()).await;
    let filter = program.ask("eth_newBlockFilter", json!([])).await;
    first.fail(Fault::Delay(SLOW)).any().always();
    program.call("eth_sendRawTransaction", json!(["0x00"])).await;
    program.ask("eth_newBlockFilter", json!([])).await;
    program.ask("eth_getFilterChanges", json!([filter])).await;
    for method in ["eth_sendRawTransaction", "eth_newBlockFilter", "eth_getFilterChanges"] {
        assert_eq!(second.count(method), 0, "{method}");
    }
    assert_eq!(hedges(&program), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn head_and_canonicity_wait_for_the_primary() {
    let (first, second, program) = practised(&hedging()).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    first.fail(Fault::Delay(SLOW)).any().always();
    second.mine(1);
    assert_eq!(program.ask("eth_blockNumber", json!([])).await, "0x78");
    program.ask("eth_getBlockByNumber", json!(["0x70", true])).await;
    assert_eq!(second.calls_total(), 0);
    assert_eq!(followed(&program).as_deref(), FIRST);
}

#[tokio::test(start_paused = true)]
async fn hedges_use_the_retry_budget() {
    let (first, second, program) = practised(&hedging()).await;
    first.fail(Fault::Delay(SLOW)).any().always();
    let calls: Vec<_> = (0..500).map(|_| (BALANCE, somebody())).collect();
    program.batch(&calls).await;
    let twice = second.count(BALANCE);
    assert!((1..=300).contains(&twice), "{twice} of 500 asked twice");
}

#[tokio::test(start_paused = true)]
async fn hedging_is_off_by_default() {
    let (first, second, program) = practised(&in_order()).await;
    first.fail(Fault::Delay(SLOW)).any().always();
    let begun = Instant::now();
    program.ask(BALANCE, somebody()).await;
    program.ask(BLOCK_BY_HASH, json!([hash(&first, 5), true])).await;
    assert!(begun.elapsed() >= 2 * SLOW);
    assert_eq!(second.calls_total(), 0);
    assert_eq!(hedges(&program), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn single_endpoint_is_not_hedged() {
    let (first, _) = twins();
    let program = in_memory::program(&first, &hedging());
    for _ in 0..50 {
        program.ask(BALANCE, somebody()).await;
    }
    first.fail(Fault::Delay(SLOW)).any().always();
    first.clear_calls();
    program.ask(BALANCE, somebody()).await;
    assert_eq!(first.count(BALANCE), 1);
}
