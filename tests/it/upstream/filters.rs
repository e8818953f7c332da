//! Filter methods go to the primary endpoint, with the node's own ids.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::join_all;
use holdfast::{
    config::Config,
    devchain::{DevChain, Fault},
    upstream::{RateConfig, UpstreamError},
};
use serde_json::{Value, json};
use tokio::time;
use tower::{ServiceExt, service_fn, util::BoxCloneSyncService};

use crate::support::{
    in_memory::{self, InMemory},
    method::{FILTER_CHANGES, NEW_BLOCK_FILTER, UNINSTALL_FILTER},
    nodes::{FIRST, SECOND, followed, hash, in_order, introduced, pair, pair_with, parts, twins},
};

async fn not_found(program: &InMemory, method: &str, id: &Value) {
    let (status, reply) = program.call(method, json!([id])).await;
    assert_eq!(
        (status, &reply["error"]),
        (200, &json!({ "code": -32000, "message": "filter not found" })),
        "{reply}"
    );
}

#[tokio::test(start_paused = true)]
async fn single_node_chooses_its_filter_ids() {
    let (node, _) = twins();
    let program = in_memory::program(&node, &Config::default());
    // This filter is created on the node directly.
    node.answer(NEW_BLOCK_FILTER, json!([])).unwrap();
    node.mine(1);
    assert_eq!(program.ask(FILTER_CHANGES, json!(["0x1"])).await, json!([hash(&node, 121)]));
    for (method, params, id) in [
        (NEW_BLOCK_FILTER, json!([]), "0x2"),
        ("eth_newFilter", json!([{}]), "0x3"),
        ("eth_newPendingTransactionFilter", json!([]), "0x4"),
    ] {
        assert_eq!(program.ask(method, params).await, id);
    }
    node.mine(1);
    assert_eq!(program.ask(FILTER_CHANGES, json!(["0x2"])).await, json!([hash(&node, 122)]));
    assert_eq!(program.ask(FILTER_CHANGES, json!(["0x2"])).await, json!([]));
    let logs: Value = serde_json::from_slice(&node.answer("eth_getFilterLogs", ["0x3"]).unwrap()).unwrap();
    assert_eq!(program.ask("eth_getFilterLogs", json!(["0x3"])).await, logs);
    assert_eq!(program.ask(UNINSTALL_FILTER, json!(["0x2"])).await, true);
    assert_eq!(program.ask(UNINSTALL_FILTER, json!(["0x2"])).await, false);
    not_found(&program, FILTER_CHANGES, &json!("0x2")).await;
    not_found(&program, FILTER_CHANGES, &json!("0x99")).await;
    let (_, reply) = program.call(FILTER_CHANGES, json!([])).await;
    assert_eq!(reply["error"]["code"], -32602);
    // An unreachable node is an upstream failure, not a missing filter.
    node.fail(Fault::Reset).any().always();
    assert_eq!(program.call(FILTER_CHANGES, json!(["0x3"])).await.0, 502);
}

#[tokio::test(start_paused = true)]
async fn filter_calls_are_never_retried() {
    for fault in [Fault::Hang, Fault::Reset, Fault::Status(500), Fault::Garbage, Fault::Truncated] {
        let (first, second, program) = pair().await;
        let filter = program.ask(NEW_BLOCK_FILTER, json!([])).await;
        first.clear_calls();
        first.fail(fault.clone()).on(FILTER_CHANGES).once();
        let (_, reply) = program.call(FILTER_CHANGES, json!([filter])).await;
        assert!(reply["error"].is_object(), "{fault:?}: {reply}");
        assert_eq!((first.count(FILTER_CHANGES), second.count(FILTER_CHANGES)), (1, 0), "{fault:?}");
        // The node still has the filter.
        assert_eq!(program.ask(FILTER_CHANGES, json!([filter])).await, json!([]));
        first.fail(fault.clone()).on(NEW_BLOCK_FILTER).once();
        let (_, reply) = program.call(NEW_BLOCK_FILTER, json!([])).await;
        assert!(reply["error"].is_object(), "{fault:?}: {reply}");
        assert_eq!((first.count(NEW_BLOCK_FILTER), second.count(NEW_BLOCK_FILTER)), (1, 0), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_polls_are_not_coalesced() {
    let (first, _, program) = pair().await;
    let filter = program.ask(NEW_BLOCK_FILTER, json!([])).await;
    first.mine(1);
    first.clear_calls();
    let params = json!([filter]);
    let answers = program
        .batch(&[
            (FILTER_CHANGES, params.clone()),
            (FILTER_CHANGES, params.clone()),
            (FILTER_CHANGES, params),
        ])
        .await;
    assert_eq!(first.count(FILTER_CHANGES), 3);
    assert_eq!(answers.iter().filter(|answer| **answer != json!([])).count(), 1, "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_switch_the_new_node_says_filter_not_found() {
    let (first, second) = twins();
    let config = in_order();
    let program = in_memory::program_over(&[&first, &second], &config);
    let is_down = Arc::new(AtomicBool::new(false));
    let mut endpoints = parts(&[("devchain 0", &first), ("devchain 1", &second)], &config);
    // Without its address, the proxy treats this as a new endpoint instead of the one from before.
    endpoints[0].address = None;
    let (reached, is_off) = (endpoints[0].transport.clone(), is_down.clone());
    endpoints[0].transport = BoxCloneSyncService::new(service_fn(move |calls| {
        let (reached, is_off) = (reached.clone(), is_off.load(Relaxed));
        async move {
            if is_off {
                return Err(UpstreamError::Connect(Arc::new(std::io::Error::other("refused"))));
            }
            reached.oneshot(calls).await
        }
    }));
    program.upstream.replace(endpoints, &config.upstream);
    introduced(&program).await;
    let filter = program.ask(NEW_BLOCK_FILTER, json!([])).await;
    assert_eq!((first.count(NEW_BLOCK_FILTER), second.count(NEW_BLOCK_FILTER)), (1, 0));
    is_down.store(true, Relaxed);
    // While the first node is the primary, no other node gets the call, because the id may name another client's
    // filter there.
    let (status, reply) = program.call(FILTER_CHANGES, json!([filter])).await;
    assert_eq!((status, &reply["error"]["code"]), (502, &json!(-32010)), "{reply}");
    assert_eq!(program.call(NEW_BLOCK_FILTER, json!([])).await.0, 502);
    assert_eq!((second.count(FILTER_CHANGES), second.count(NEW_BLOCK_FILTER)), (0, 0));
    assert_eq!(followed(&program).as_deref(), FIRST);
    time::sleep(Duration::from_secs(2)).await;
    program.ask("eth_blockNumber", json!([])).await;
    assert_eq!(followed(&program).as_deref(), SECOND);
    not_found(&program, FILTER_CHANGES, &filter).await;
    assert_eq!(second.count(FILTER_CHANGES), 1);
    // The client creates the filter again and continues.
    let again = program.ask(NEW_BLOCK_FILTER, json!([])).await;
    assert_eq!((first.count(NEW_BLOCK_FILTER), second.count(NEW_BLOCK_FILTER)), (1, 1));
    second.mine(1);
    assert_eq!(program.ask(FILTER_CHANGES, json!([again])).await, json!([hash(&second, 121)]));
}

#[tokio::test(start_paused = true)]
async fn filters_wait_for_the_primary_at_its_rate() {
    let (_, second, program) =
        pair_with(|config| config.upstream.endpoints[0].rate = Some(RateConfig { per_second: 5, burst: 5 }))
            .await;
    time::sleep(Duration::from_secs(2)).await;
    let filter = program.ask(NEW_BLOCK_FILTER, json!([])).await;
    // Sends more polls than the primary's rate allows within the time that a call waits.
    let polls = join_all((0..40).map(|_| program.call(FILTER_CHANGES, json!([filter])))).await;
    let (answered, limited): (Vec<_>, Vec<_>) = polls.into_iter().partition(|(status, _)| *status == 200);
    assert!(answered.len() >= 5 && limited.len() >= 5, "{} of 40 were answered", answered.len());
    assert!(answered.iter().all(|(_, reply)| reply["result"] == json!([])), "{answered:?}");
    assert!(limited.iter().all(|(_, reply)| reply["error"]["code"] == -32005), "{limited:?}");
    assert_eq!(second.count(FILTER_CHANGES), 0);
    assert_eq!(followed(&program).as_deref(), FIRST);
}

#[tokio::test(start_paused = true)]
async fn filters_stay_with_the_primary_until_it_is_removed() {
    let (first, second) = twins();
    let config = Config::default();
    let program = in_memory::program(&first, &config);
    assert_eq!(program.ask(NEW_BLOCK_FILTER, json!([])).await, "0x1");
    let replace = |chains: &[(&str, &DevChain)]| {
        program.upstream.replace(parts(chains, &config), &config.upstream);
    };
    // The first node keeps its filters when a second node is added.
    replace(&[("devchain 0", &first), ("devchain 1", &second)]);
    introduced(&program).await;
    first.mine(1);
    second.mine(2);
    assert_eq!(program.ask(FILTER_CHANGES, json!(["0x1"])).await, json!([hash(&first, 121)]));
    replace(&[("devchain 1", &second)]);
    introduced(&program).await;
    not_found(&program, FILTER_CHANGES, &json!("0x1")).await;
}
