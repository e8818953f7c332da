//! Endpoints that answer with an error object where another has an answer.

use std::time::Duration;

use holdfast::{devchain::Fault, upstream::Health};
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use crate::support::{
    in_memory,
    method::{BALANCE, BLOCK_BY_HASH, BLOCK_BY_NUMBER, CALL, SEND},
    nodes::{
        SECOND, first_is_back, followed, hash, health, in_order, introduced, pair, pair_with, somebody,
        truth, twins,
    },
    one_node::agrees,
};

/// Refusals of gateways and providers: status, code, message.
const REFUSALS: [(u16, i64, &str); 9] = [
    (401, -32600, "Must be authenticated!"),
    (402, -32003, "payment required"),
    (403, -32002, "this key has expired"),
    (403, -32052, "API key is not allowed to access blockchain"),
    (500, -32603, "internal error"),
    (502, -32010, "the upstream failed: cannot connect: Connection refused"),
    (503, -32013, "too many calls at once"),
    (503, -32000, "no backends available"),
    (504, -32011, "the upstream is too slow"),
];

fn refused((status, code, message): (u16, i64, &str)) -> Fault {
    Fault::Refused { status, code, message: message.to_owned() }
}

fn error(code: i64, message: &str) -> Fault {
    Fault::Error { code, message: message.to_owned() }
}

fn contract() -> Value {
    json!([{ "to": format!("0x{}", "22".repeat(20)), "data": "0x" }, "latest"])
}

#[tokio::test(start_paused = true)]
async fn primary_that_refuses_everything_is_replaced() {
    for refusal in REFUSALS {
        let (first, second, program) =
            pair_with(|config| config.chain.max_staleness = Duration::from_millis(100)).await;
        first.fail(refused(refusal)).any().always();
        for number in 5..45 {
            time::sleep(Duration::from_millis(200)).await;
            let params = json!([hash(&first, number), true]);
            let (status, reply) = program.call(BLOCK_BY_HASH, params.clone()).await;
            assert_eq!(
                (status, &reply["result"]),
                (200, &truth(&second, BLOCK_BY_HASH, &params)),
                "{refusal:?}"
            );
            assert_eq!(program.ask(BALANCE, somebody()).await, truth(&second, BALANCE, &somebody()));
            assert_eq!(program.ask("eth_blockNumber", json!([])).await, "0x78", "{refusal:?}");
            assert_eq!(
                program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await["number"],
                "0x78",
                "{refusal:?}"
            );
        }
        assert_eq!(followed(&program).as_deref(), SECOND, "{refusal:?}");
        assert_ne!(health(&program, 0), Health::Closed, "{refusal:?}");
        assert!(program.upstream.outage().is_none(), "the second endpoint is available");
        first.clear_faults();
        first_is_back(&program).await;
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_of_eth_call_alone_open_the_breaker() {
    for refusal in REFUSALS {
        let (first, _, program) = pair().await;
        first.fail(refused(refusal)).any().always();
        for _ in 0..300 {
            time::sleep(Duration::from_millis(10)).await;
            let (_, reply) = program.call(CALL, contract()).await;
            assert!(reply["result"].is_string(), "{refusal:?}: {reply}");
        }
        assert_ne!(health(&program, 0), Health::Closed, "{refusal:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_own_error_is_passed_on_if_no_node_answers() {
    for refusal in REFUSALS {
        let (first, second) = twins();
        for nodes in [vec![&first], vec![&first, &second]] {
            let program = in_memory::program_over(&nodes, &in_order());
            introduced(&program).await;
            for node in &nodes {
                node.fail(refused(refusal)).on(BALANCE).always();
            }
            let (status, reply) = program.call(BALANCE, somebody()).await;
            let (_, code, message) = refusal;
            assert_eq!((status, &reply["error"]), (200, &json!({ "code": code, "message": message })));
            nodes.iter().for_each(|node| node.clear_faults());
        }
        // The refusal of one call does not become the answer to other calls.
        let program = in_memory::program_over(&[&first], &in_order());
        introduced(&program).await;
        first.fail(refused(refusal)).any().always();
        for _ in 0..20 {
            program.call(BALANCE, somebody()).await;
        }
        let (_, reply) = program.call(CALL, contract()).await;
        assert!(reply["error"].is_object(), "{reply}");
        if health(&program, 0) == Health::Open {
            assert_eq!(reply["error"]["code"], -32010, "{reply}");
        }
        assert!(program.upstream.outage().is_some(), "{refusal:?}");
        first.clear_faults();
    }
}

#[tokio::test(start_paused = true)]
async fn errors_of_one_call_do_not_affect_its_endpoint() {
    let (first, second, program) = pair().await;
    second.clear_calls();
    for fault in [
        refused((500, 3, "execution reverted: no")),
        refused((500, -32000, "execution reverted: no")),
        refused((403, -32601, "the method is not available")),
        refused((400, -32000, "no such block")),
        error(3, "execution reverted: rate limit exceeded"),
        error(-32603, "internal error"),
        error(-32000, "out of gas"),
        Fault::Status(413),
        Fault::Status(400),
    ] {
        first.fail(fault.clone()).on(CALL).always();
        for _ in 0..10 {
            assert!(program.call(CALL, contract()).await.1["error"].is_object());
        }
        assert_eq!((second.count(CALL), health(&program, 0)), (0, Health::Closed), "{fault:?}");
        let begun = Instant::now();
        program.ask(BALANCE, somebody()).await;
        assert_eq!((second.count(BALANCE), begun.elapsed().as_millis()), (0, 0), "{fault:?}");
        first.clear_faults();
    }
    // A method outside a provider's plan goes to another endpoint; the provider still serves the rest.
    first.fail(refused((403, -32600, "not available on the free tier"))).on("eth_getProof").always();
    for _ in 0..10 {
        program.call("eth_getProof", json!([format!("0x{}", "11".repeat(20)), [], "latest"])).await;
    }
    assert_eq!(health(&program, 0), Health::Closed);
    assert!(second.count("eth_getProof") > 0);
}

#[tokio::test(start_paused = true)]
async fn limit_errors_of_contracts_and_pools_pause_no_endpoint() {
    for (method, params, fault) in [
        (CALL, contract(), error(3, "execution reverted: rate limit exceeded")),
        (CALL, contract(), error(-32000, "execution reverted: too many requests")),
        (SEND, json!(["0x00"]), error(-32000, "account limit exceeded")),
        ("eth_getLogs", json!([{}]), error(-32005, "query returned more than 10000 results")),
        ("eth_getLogs", json!([{}]), error(-32005, "limit exceeded")),
    ] {
        let (only, _) = twins();
        let program = in_memory::program_over(&[&only], &in_order());
        introduced(&program).await;
        only.fail(fault.clone()).on(method).always();
        for _ in 0..10 {
            assert!(program.call(method, params.clone()).await.1["error"].is_object());
            let begun = Instant::now();
            program.ask(BALANCE, somebody()).await;
            assert_eq!(begun.elapsed(), Duration::ZERO, "{fault:?}: another client has to wait");
        }
        assert_eq!(program.upstream.status().0[0].pause, Duration::ZERO, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn internal_error_is_retried_on_one_other_endpoint() {
    for code in [-32603, -32010, -32013] {
        let (first, second, program) =
            pair_with(|config| config.chain.max_staleness = Duration::from_millis(100)).await;
        first.fail(error(code, "first")).any().always();
        assert_eq!(program.ask(BALANCE, somebody()).await, truth(&second, BALANCE, &somebody()));
        agrees(&program, &second, BLOCK_BY_HASH, json!([hash(&first, 7), true])).await;
        time::sleep(Duration::from_secs(1)).await;
        assert_eq!(program.ask("eth_blockNumber", json!([])).await, "0x78");
        assert_eq!(followed(&program).as_deref(), SECOND, "the first node cannot return a head");
        // If both nodes answer with internal errors, the client gets that of the primary.
        for (failing, message) in [
            (error(code, "second"), "second"),
            (error(-32005, "rate limit"), "first"),
            (Fault::Status(500), "first"),
        ] {
            second.fail(failing).on("eth_gasPrice").always();
            let (_, reply) = program.call("eth_gasPrice", json!([])).await;
            assert_eq!(reply["error"], json!({ "code": code, "message": message }), "{reply}");
            second.clear_faults();
            // The wait is short enough that the proxy does not identify the first endpoint again, which would fail,
            // too.
            time::sleep(Duration::from_secs(40)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn write_is_retried_only_after_a_key_or_rate_refusal() {
    let errors = [error(-32603, "internal error"), error(-32010, "nobody"), error(-32013, "busy")];
    let refusals = REFUSALS.into_iter().filter(|(status, ..)| ![401, 403, 429].contains(status)).map(refused);
    let lost = [Fault::Hang, Fault::Reset, Fault::ResetMidBody, Fault::Status(502), Fault::Garbage];
    for fault in refusals.chain(errors).chain(lost) {
        let (first, second, program) = pair().await;
        first.fail(fault.clone()).on(SEND).always();
        let (_, reply) = program.call(SEND, json!(["0x00"])).await;
        assert!(reply["error"].is_object(), "{fault:?}: {reply}");
        if let Fault::Refused { message, .. } | Fault::Error { message, .. } = &fault {
            assert_eq!(reply["error"]["message"], *message, "{fault:?}");
        }
        assert_eq!((first.count(SEND), second.count(SEND)), (1, 0), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unsent_write_goes_to_another_endpoint() {
    for fault in [Fault::Status(500), Fault::Garbage, Fault::Hang, error(-32000, "still starting")] {
        for _ in 0..6 {
            let (first, second, program) = pair().await;
            program.upstream.identity().require_recheck();
            // The node does not identify itself, so it gets no further calls.
            first.fail(fault.clone()).any().always();
            let (_, reply) = program.call(SEND, json!(["0x00"])).await;
            assert_eq!((first.count(SEND), second.count(SEND)), (0, 1), "{fault:?}: {reply}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn null_answer_does_not_wait_for_a_rate_limited_spare() {
    let (_, _, program) = pair_with(|config| {
        config.upstream.endpoints[1].rate = Some(holdfast::upstream::RateConfig { per_second: 1, burst: 1 });
    })
    .await;
    for number in 0..6 {
        let begun = Instant::now();
        let unknown = json!([format!("{:#066x}", number + 1), true]);
        let (_, reply) = program.call(BLOCK_BY_HASH, unknown).await;
        assert_eq!(reply["result"], Value::Null, "{reply}");
        assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn pruned_history_is_retried_after_a_while() {
    let (first, second, program) = pair().await;
    let asked = |params: &str| first.calls().iter().filter(|call| call.params.contains(params)).count();
    first.fail(error(4444, "pruned history unavailable")).on(BLOCK_BY_NUMBER).once();
    for (number, times, wait) in [(10, 1, 0), (11, 0, 0), (12, 0, 500), (13, 1, 101), (14, 1, 0)] {
        time::sleep(Duration::from_secs(wait)).await;
        let params = json!([format!("{number:#x}"), true]);
        agrees(&program, &second, BLOCK_BY_NUMBER, params.clone()).await;
        assert_eq!(asked(&params[0].to_string()), times, "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn primary_without_a_head_is_replaced() {
    for fault in [error(-32000, "no healthy upstream"), Fault::Null] {
        let (first, second, program) =
            pair_with(|config| config.chain.max_staleness = Duration::from_millis(100)).await;
        first.fail(fault.clone()).on(BLOCK_BY_NUMBER).always();
        for _ in 0..5 {
            time::sleep(Duration::from_secs(1)).await;
            second.mine(1);
            let head = json!(format!("{:#x}", second.head().number));
            assert_eq!(program.ask("eth_blockNumber", json!([])).await, head, "{fault:?}");
        }
        assert_eq!(followed(&program).as_deref(), SECOND, "{fault:?}");
    }
}
