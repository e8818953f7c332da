//! Probes of endpoints that are unidentified or have failed. They are early and cheap, and only the endpoint's answer
//! decides their outcome.

use std::time::Duration;

use holdfast::{
    config::Config,
    devchain::Fault,
    upstream::{Health, IdentityState},
};
use serde_json::json;
use tokio::time::{self, Instant};

use crate::support::{
    in_memory,
    method::{BALANCE, BLOCK_BY_NUMBER, CHAIN_ID},
    nodes::{
        FIRST, SECOND, followed, health, impostor, in_order, introduced, is_known, pair, somebody, twins,
    },
};

/// The default time-outs: 25 s for an attempt, 30 s for a call.
fn unhurried() -> Config {
    let mut config = in_order();
    config.upstream.timeout = Config::default().upstream.timeout;
    config
}

// ## Identity

#[tokio::test(start_paused = true)]
async fn temporarily_unavailable_genesis_leaves_the_chain_unknown() {
    let refused = |status, code, message: &str| Fault::Refused { status, code, message: message.to_owned() };
    let error = |code, message: &str| Fault::Error { code, message: message.to_owned() };
    for fault in [
        error(-32005, "rate limit exceeded"),
        error(-32603, "internal error"),
        error(-32000, "request timed out"),
        refused(503, -32000, "no backend"),
        refused(500, -32603, "internal error"),
        refused(401, -32600, "Must be authenticated!"),
    ] {
        let ((first, _), second) = (twins(), impostor());
        second.fail(fault.clone()).on(BLOCK_BY_NUMBER).times(3);
        let program = in_memory::program_over(&[&first, &second], &in_order());
        introduced(&program).await;
        for _ in 0..120 {
            assert!(is_known(&program, 0) && !is_known(&program, 1), "{fault:?}");
            time::sleep(Duration::from_secs(1)).await;
        }
        let state = program.upstream.status().0[1].identity.clone();
        assert!(matches!(state, Some(IdentityState::WrongChain(_))), "{fault:?}: {state:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unidentified_spare_is_probed_when_the_primary_is_demoted() {
    let (first, second, program) = pair().await;
    first.fail(Fault::Status(500)).on("eth_gasPrice").once();
    second.fail(Fault::Reset).on("eth_gasPrice").once();
    program.call("eth_gasPrice", json!([])).await;
    second.clear_calls();
    let leave_the_first = || {
        program.upstream.demote(program.upstream.status().0[0].id);
        followed(&program)
    };
    assert_eq!(leave_the_first().as_deref(), FIRST, "the spare is not identified");
    time::sleep(Duration::from_millis(100)).await;
    assert_eq!(second.count(CHAIN_ID), 1);
    assert_eq!(leave_the_first().as_deref(), SECOND, "no call had to wait");
}

// ## Recovery

#[tokio::test(start_paused = true)]
async fn slow_probing_call_does_not_block_others() {
    let (node, _) = twins();
    let program = in_memory::program(&node, &Config::default());
    introduced(&program).await;
    node.fail(Fault::Status(503)).on(BALANCE).always();
    while health(&program, 0) != Health::Open {
        program.call(BALANCE, somebody()).await;
    }
    node.clear_faults();
    node.fail(Fault::Queue(Duration::from_secs(20))).on("eth_getLogs").always();
    time::sleep(Duration::from_secs(1)).await;
    let trying = {
        let program = program.clone();
        tokio::spawn(async move { program.call("eth_getLogs", json!([{}])).await })
    };
    time::sleep(Duration::from_millis(10)).await;
    assert_eq!(health(&program, 0), Health::HalfOpen);
    let begun = Instant::now();
    while program.call(BALANCE, somebody()).await.0 != 200 {
        time::sleep(Duration::from_millis(100)).await;
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
    assert!(!trying.is_finished());
    assert_eq!(trying.await.unwrap().0, 200);
}

#[tokio::test(start_paused = true)]
async fn readiness_checks_probe_a_node_once_a_second() {
    // The first node stays identified, the second loses its identification with its connection, and the third hangs.
    for (fault, most) in [(Fault::Status(503), 11), (Fault::Reset, 11), (Fault::Hang, 1)] {
        let (node, _) = twins();
        let program = in_memory::program(&node, &Config::default());
        introduced(&program).await;
        node.fail(fault.clone()).any().always();
        while program.upstream.outage().is_none() {
            program.call(BALANCE, somebody()).await;
        }
        time::sleep(Duration::from_secs(30)).await;
        node.clear_calls();
        for _ in 0..1000 {
            assert!(program.upstream.outage().is_some());
            time::sleep(Duration::from_millis(10)).await;
        }
        let asked = node.count(BLOCK_BY_NUMBER);
        assert!((1..=most).contains(&asked), "{fault:?}: {asked} times in 10 s");
    }
}

#[tokio::test(start_paused = true)]
async fn breakers_of_two_hanging_endpoints_both_open() {
    for method in [BALANCE, "eth_call"] {
        let (first, second) = twins();
        let program = in_memory::program_over(&[&first, &second], &unhurried());
        introduced(&program).await;
        [&first, &second].iter().for_each(|node| node.fail(Fault::Hang).any().always());
        let begun = Instant::now();
        while [0, 1].iter().any(|at| health(&program, *at) == Health::Closed) {
            program.call(method, somebody()).await;
            assert!(begun.elapsed() < Duration::from_secs(150), "{method}");
        }
        // At most one call probes each endpoint, and no other call waits.
        for _ in 0..2 {
            let program = program.clone();
            tokio::spawn(async move { program.call(method, somebody()).await });
        }
        time::sleep(Duration::from_millis(100)).await;
        let begun = Instant::now();
        program.call(method, somebody()).await;
        assert!(begun.elapsed() < Duration::from_secs(1), "{method}: {:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn client_hang_ups_do_not_count_against_an_endpoint() {
    let (node, _) = twins();
    let program = in_memory::program(&node, &Config::default());
    introduced(&program).await;
    node.fail(Fault::Queue(Duration::from_secs(6))).on(BALANCE).always();
    for (patience, others) in [(1, false), (5, true)] {
        for _ in 0..20 {
            let asking = program.call(BALANCE, somebody());
            let asking = time::timeout(Duration::from_secs(patience), asking);
            let other = async {
                time::sleep(Duration::from_secs(1)).await;
                if others {
                    program.ask("eth_gasPrice", json!([])).await;
                }
            };
            assert!(tokio::join!(asking, other).0.is_err());
        }
        assert_eq!(health(&program, 0), Health::Closed);
        assert!(program.upstream.outage().is_none());
    }
}
