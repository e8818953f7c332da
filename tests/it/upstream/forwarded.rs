//! Failures of forwarded calls: the proxy replaces a primary that fails all of them, and the calls of one client
//! cannot make an endpoint unavailable to others.

use std::time::Duration;

use holdfast::{
    config::Config,
    devchain::{DevChain, Fault},
    upstream::Health,
};
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use crate::support::{
    in_memory,
    method::{BALANCE, CALL, FILTER_CHANGES, NEW_BLOCK_FILTER, SEND},
    nodes::{FIRST, SECOND, followed, head, health, in_order, introduced, pair, somebody, twins},
    one_node::raw,
};

/// Consecutive failures after which another endpoint becomes the primary.
const FEW: usize = 5;

/// A transaction that the node accepts.
fn signed(chain: &DevChain) -> Value {
    json!([raw(&chain.generate(1)[0])])
}

#[tokio::test(start_paused = true)]
async fn primary_that_hangs_on_forwarded_calls_is_replaced() {
    let (first, second, program) = pair().await;
    first.fail(Fault::Hang).on(CALL).always();
    let mut waited = Vec::new();
    for _ in 0..5 {
        // The heads of the first node still arrive.
        time::sleep(Duration::from_secs(2)).await;
        head(&program).await;
        let begun = Instant::now();
        program.call(CALL, json!([{}, "latest"])).await;
        waited.push(begun.elapsed() >= Duration::from_secs(2));
    }
    assert_eq!(waited, [true, true, false, false, false]);
    assert_eq!(followed(&program).as_deref(), SECOND);
    assert_eq!(second.count(CALL), 5);
}

#[tokio::test(start_paused = true)]
async fn primary_that_fails_writes_or_filters_is_replaced() {
    for (method, fault) in [
        (SEND, Fault::Status(500)),
        (SEND, Fault::Reset),
        (NEW_BLOCK_FILTER, Fault::Status(500)),
        (NEW_BLOCK_FILTER, Fault::Reset),
    ] {
        let (first, second, program) = pair().await;
        first.fail(fault.clone()).on(method).always();
        let mut failed = 0;
        for _ in 0..8 {
            time::sleep(Duration::from_secs(2)).await;
            head(&program).await;
            let params = if method == SEND { signed(&second) } else { json!([]) };
            failed += usize::from(program.call(method, params).await.0 != 200);
        }
        assert_eq!(failed, FEW, "{method} {fault:?}");
        assert_eq!(followed(&program).as_deref(), SECOND, "{method} {fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn answered_forwarded_call_clears_earlier_failures() {
    for fault in [Fault::Hang, Fault::Reset, Fault::Status(500)] {
        let (first, _, program) = pair().await;
        first.fail(fault.clone()).on(CALL).always();
        for _ in 0..3 * FEW {
            let bad = [(); FEW].map(|()| {
                let program = program.clone();
                tokio::spawn(async move { program.call(CALL, json!([{}, "latest"])).await })
            });
            program.ask(BALANCE, somebody()).await;
            time::sleep(Duration::from_secs(3)).await;
            program.ask(BALANCE, somebody()).await;
            for bad in bad {
                bad.await.unwrap();
            }
        }
        assert_eq!(followed(&program).as_deref(), FIRST, "{fault:?}");
        assert_eq!(health(&program, 0), Health::Closed, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn call_that_fails_everywhere_moves_no_primary() {
    let (first, second, program) = pair().await;
    for node in [&first, &second] {
        node.fail(Fault::Reset).on(CALL).always();
    }
    for _ in 0..4 * FEW {
        program.call(CALL, json!([{}, "latest"])).await;
        assert_eq!(followed(&program).as_deref(), FIRST);
    }
}

#[tokio::test(start_paused = true)]
async fn refused_write_goes_to_another_endpoint() {
    for fault in [Fault::RateLimited { retry_after: Some(1) }, Fault::Status(401), Fault::Status(403)] {
        let (first, second, program) = pair().await;
        first.fail(fault.clone()).on(SEND).always();
        for sent in 1..=2 {
            program.ask(SEND, signed(&second)).await;
            assert_eq!(second.count(SEND), sent, "{fault:?}");
            second.mine(0);
            // The primary answers in between; otherwise, two rate limits in a row would replace it.
            time::sleep(Duration::from_secs(1)).await;
            program.ask(BALANCE, somebody()).await;
        }
        // A filter call does not go to the second node, because filter ids belong to the primary.
        first.clear_faults();
        time::sleep(Duration::from_secs(2)).await;
        first.fail(fault.clone()).on(FILTER_CHANGES).once();
        let (_, reply) = program.call(FILTER_CHANGES, json!(["0x1"])).await;
        assert!(reply["error"].is_object(), "{fault:?}: {reply}");
        assert_eq!(second.count(FILTER_CHANGES), 0, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn primary_that_limits_every_call_is_replaced() {
    let (first, _, program) = pair().await;
    first.fail(Fault::RateLimited { retry_after: Some(1) }).any().always();
    for _ in 0..FEW {
        time::sleep(Duration::from_millis(1100)).await;
        head(&program).await;
    }
    assert_eq!(followed(&program).as_deref(), SECOND);
    let begun = Instant::now();
    for _ in 0..5 {
        program.ask(NEW_BLOCK_FILTER, json!([])).await;
        program.ask(BALANCE, somebody()).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn calls_that_a_node_hangs_up_on_do_not_open_its_breaker() {
    let (node, _) = twins();
    let program = in_memory::program(&node, &Config::default());
    introduced(&program).await;
    node.fail(Fault::Reset).on(CALL).always();
    for _ in 0..20 {
        for _ in 0..2 * FEW {
            assert_eq!(program.call(CALL, json!([{}, "latest"])).await.0, 502);
        }
        program.ask(BALANCE, somebody()).await;
        time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(health(&program, 0), Health::Closed);
}

#[tokio::test(start_paused = true)]
async fn slow_calls_do_not_open_the_breaker_while_others_are_answered() {
    let (node, _) = twins();
    let config = Config { upstream: in_order().upstream, ..Config::default() };
    let program = in_memory::program(&node, &config);
    introduced(&program).await;
    node.fail(Fault::Hang).on(CALL).always();
    // Only this client and the head refreshes make calls.
    for _ in 0..3 {
        let slow = [(); 2 * FEW].map(|()| {
            let program = program.clone();
            tokio::spawn(async move { program.call(CALL, json!([{}, "latest"])).await })
        });
        time::sleep(Duration::from_millis(1500)).await;
        head(&program).await;
        for slow in slow {
            slow.await.unwrap();
        }
        program.ask(BALANCE, somebody()).await;
    }
    assert_eq!(health(&program, 0), Health::Closed);
}
