//! Filters live at the node that made them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use holdfast::{
    config::Config,
    devchain::{DevChain, Fault},
    upstream::{EndpointConfig, EndpointParts, UpstreamError},
};
use serde_json::{Value, json};
use tower::{ServiceExt, service_fn, util::BoxCloneSyncService};

use crate::{
    pool::{hash, in_order, introduced, twins},
    support::in_memory::{self, InMemory},
};

const NEW: &str = "eth_newBlockFilter";
const CHANGES: &str = "eth_getFilterChanges";
const UNINSTALL: &str = "eth_uninstallFilter";

/// Two nodes of one rank, of which the one that is not wanted is out of reach.
async fn filter_at(program: &InMemory, other: &DevChain) -> Value {
    other.fail(Fault::Status(500)).on(NEW).always();
    let filter = loop {
        let (_, reply) = program.call(NEW, json!([])).await;
        if reply["result"].is_string() {
            break reply["result"].clone();
        }
    };
    other.clear_faults();
    filter
}

fn equals() -> Config {
    let mut config = in_order();
    config.upstream.endpoints = vec![EndpointConfig::at(""), EndpointConfig::at("")];
    config
}

async fn not_found(program: &InMemory, method: &str, id: &Value) {
    let (status, reply) = program.call(method, json!([id])).await;
    assert_eq!(
        (status, &reply["error"]),
        (200, &json!({ "code": -32000, "message": "filter not found" })),
        "{reply}"
    );
}

fn parts(chains: &[(&str, &DevChain)]) -> Vec<EndpointParts> {
    let part = |(name, chain): &(&str, &DevChain)| in_memory::endpoint(chain, name, EndpointConfig::at(""));
    chains.iter().map(part).collect()
}

#[tokio::test(start_paused = true)]
async fn alone_a_node_gives_ids_as_it_likes() {
    let (node, _) = twins();
    let program = in_memory::program(&node, &Config::default());
    // Made before our time.
    node.answer(NEW, json!([])).unwrap();
    node.mine(1);
    assert_eq!(program.ask(CHANGES, json!(["0x1"])).await, json!([hash(&node, 121)]));
    for (method, params, id) in [
        (NEW, json!([]), "0x2"),
        ("eth_newFilter", json!([{}]), "0x3"),
        ("eth_newPendingTransactionFilter", json!([]), "0x4"),
    ] {
        assert_eq!(program.ask(method, params).await, id);
    }
    node.mine(1);
    assert_eq!(program.ask(CHANGES, json!(["0x2"])).await, json!([hash(&node, 122)]));
    assert_eq!(program.ask(CHANGES, json!(["0x2"])).await, json!([]));
    assert_eq!(program.ask("eth_getFilterLogs", json!(["0x3"])).await, json!([]));
    assert_eq!(program.ask(UNINSTALL, json!(["0x2"])).await, true);
    assert_eq!(program.ask(UNINSTALL, json!(["0x2"])).await, false);
    not_found(&program, CHANGES, &json!("0x2")).await;
    not_found(&program, CHANGES, &json!("0x99")).await;
    let (_, reply) = program.call(CHANGES, json!([])).await;
    assert_eq!(reply["error"]["code"], -32602);
    // Out of reach, it is out of reach, and nothing is said of its filters.
    node.fail(Fault::Reset).any().always();
    assert_eq!(program.call(CHANGES, json!(["0x3"])).await.0, 502);
}

#[tokio::test(start_paused = true)]
async fn filters_of_two_nodes_with_the_same_id_are_two() {
    let (first, second) = twins();
    let program = in_memory::program_over(&[&first, &second], &equals());
    introduced(&program).await;
    let at_first = filter_at(&program, &second).await;
    let at_second = filter_at(&program, &first).await;
    assert_ne!(at_first, at_second);
    for id in [&at_first, &at_second] {
        assert_eq!(id.as_str().unwrap().len(), 34, "{id}");
    }
    first.mine(1);
    second.mine_many(3, 1);
    first.clear_calls();
    second.clear_calls();
    assert_eq!(program.ask(CHANGES, json!([at_first])).await, json!([hash(&first, 121)]));
    let three: Vec<_> = (121..=123).map(|number| hash(&second, number)).collect();
    assert_eq!(program.ask(CHANGES, json!([at_second])).await, json!(three));
    for id in [&at_first, &at_second] {
        assert_eq!(program.ask(CHANGES, json!([id])).await, json!([]));
    }
    assert_eq!((first.count(CHANGES), second.count(CHANGES)), (2, 2));
    // What the nodes call them is nobody's filter here.
    not_found(&program, CHANGES, &json!("0x1")).await;
    not_found(&program, UNINSTALL, &json!("0x1")).await;
    not_found(&program, CHANGES, &json!(1)).await;
    assert_eq!(program.ask(UNINSTALL, json!([at_first])).await, true);
    not_found(&program, CHANGES, &at_first).await;
    assert_eq!(program.ask(CHANGES, json!([at_second])).await, json!([]));
    let (_, reply) = program.call(CHANGES, json!([])).await;
    assert_eq!(reply["error"]["code"], -32602);
}

#[tokio::test(start_paused = true)]
async fn a_filter_is_made_and_polled_once_whatever_comes_of_it() {
    for fault in [Fault::Hang, Fault::Reset, Fault::Status(500), Fault::Garbage, Fault::Truncated] {
        let (first, second) = twins();
        let program = in_memory::program_over(&[&first, &second], &in_order());
        introduced(&program).await;
        let filter = program.ask(NEW, json!([])).await;
        first.clear_calls();
        first.fail(fault.clone()).on(CHANGES).once();
        let (_, reply) = program.call(CHANGES, json!([filter])).await;
        assert!(reply["error"].is_object(), "{fault:?}: {reply}");
        assert_eq!((first.count(CHANGES), second.count(CHANGES)), (1, 0), "{fault:?}");
        // The node has it still.
        assert_eq!(program.ask(CHANGES, json!([filter])).await, json!([]));
        first.fail(fault.clone()).on(NEW).once();
        let (_, reply) = program.call(NEW, json!([])).await;
        assert!(reply["error"].is_object(), "{fault:?}: {reply}");
        assert_eq!((first.count(NEW), second.count(NEW)), (1, 0), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn polls_of_one_moment_are_as_many_at_the_node() {
    let (first, second) = twins();
    let program = in_memory::program_over(&[&first, &second], &in_order());
    introduced(&program).await;
    let filter = program.ask(NEW, json!([])).await;
    first.mine(1);
    first.clear_calls();
    let params = json!([filter]);
    let answers =
        program.batch(&[(CHANGES, params.clone()), (CHANGES, params.clone()), (CHANGES, params)]).await;
    assert_eq!(first.count(CHANGES), 3);
    assert_eq!(answers.iter().filter(|answer| **answer != json!([])).count(), 1, "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_batch_asks_of_a_filter_is_asked_in_its_order() {
    let (first, second) = twins();
    let program = in_memory::program_over(&[&first, &second], &in_order());
    introduced(&program).await;
    let filter = program.ask(NEW, json!([])).await;
    first.mine(1);
    first.fail(Fault::Queue(Duration::from_millis(100))).on(CHANGES).once();
    let params = json!([filter]);
    let calls = [(CHANGES, params.clone()), (CHANGES, params.clone()), (UNINSTALL, params)];
    assert_eq!(
        program.batch(&calls).await,
        [json!([hash(&first, 121)]), json!([]), json!(true)],
        "the last call is not carried out before the first"
    );
}

#[tokio::test(start_paused = true)]
async fn where_nothing_listens_any_more_there_is_no_filter() {
    let (first, second) = twins();
    let config = in_order();
    let program = in_memory::program_over(&[&first, &second], &config);
    let is_down = Arc::new(AtomicBool::new(false));
    let mut endpoints = parts(&[("devchain 0", &first), ("devchain 1", &second)]);
    for (endpoint, configured) in endpoints.iter_mut().zip(&config.upstream.endpoints) {
        endpoint.config = configured.clone();
    }
    // Another than before.
    endpoints[0].reach = None;
    let (reached, is_off) = (endpoints[0].leaf.clone(), is_down.clone());
    endpoints[0].leaf = BoxCloneSyncService::new(service_fn(move |calls| {
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
    let filter = program.ask(NEW, json!([])).await;
    assert_eq!((first.count(NEW), second.count(NEW)), (1, 0));
    is_down.store(true, Relaxed);
    not_found(&program, CHANGES, &filter).await;
    assert_eq!(second.count(CHANGES), 0);
    // What was never sent can be made elsewhere.
    let again = program.ask(NEW, json!([])).await;
    assert_eq!((first.count(NEW), second.count(NEW)), (1, 1));
    assert_eq!(program.ask(CHANGES, json!([again])).await, json!([]));
}

#[tokio::test(start_paused = true)]
async fn with_its_node_a_filter_is_lost_and_no_other_takes_its_place() {
    let (first, second) = twins();
    let program = in_memory::program_over(&[&first, &second], &in_order());
    introduced(&program).await;
    let filter = program.ask(NEW, json!([])).await;
    // The second has one of that id too.
    second.answer(NEW, json!([])).unwrap();
    first.fail(Fault::Reset).any().always();
    for _ in 0..10 {
        let (_, reply) = program.call(CHANGES, json!([filter])).await;
        assert!(reply["error"].is_object(), "{reply}");
    }
    not_found(&program, CHANGES, &filter).await;
    assert_eq!(second.count(CHANGES), 0);
    // A client makes it again, and goes on.
    let again = program.ask(NEW, json!([])).await;
    second.mine(1);
    assert_eq!(program.ask(CHANGES, json!([again])).await, json!([hash(&second, 121)]));
    // Back, it does not get back what its clients were told to be gone.
    first.clear_faults();
    tokio::time::sleep(Duration::from_secs(10)).await;
    not_found(&program, CHANGES, &filter).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_taken_away_takes_its_filters_along() {
    let (first, second) = twins();
    let config = Config::default();
    let program = in_memory::program(&first, &config);
    assert_eq!(program.ask(NEW, json!([])).await, "0x1");
    let replace = |chains: &[(&str, &DevChain)]| {
        program.upstream.replace(parts(chains), &config.upstream);
    };
    // With a second one beside it, it keeps what it has.
    replace(&[("devchain 0", &first), ("devchain 1", &second)]);
    introduced(&program).await;
    first.mine(1);
    second.mine(2);
    assert_eq!(program.ask(CHANGES, json!(["0x1"])).await, json!([hash(&first, 121)]));
    second.answer(NEW, json!([])).unwrap();
    replace(&[("devchain 1", &second)]);
    introduced(&program).await;
    not_found(&program, CHANGES, &json!("0x1")).await;
    assert_eq!(second.count(CHANGES), 0);
}
