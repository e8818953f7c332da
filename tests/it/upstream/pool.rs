//! Several endpoints of one chain: if one fails a call, another answers it.

use std::time::Duration;

use futures_util::future::join_all;
use holdfast::{
    config::Config,
    devchain::{DevChain, Fault, Lie, Pruned},
    upstream::{EndpointConfig, Health, IdentityState, RateConfig},
    verify::{Demand, OnMismatch},
};
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use crate::support::{
    client, eventually, in_memory,
    method::{BALANCE, BLOCK_BY_HASH, BLOCK_BY_NUMBER, RECEIPT},
    nodes::{
        FIRST, SECOND, followed, hash, health, in_order, introduced, pair, pair_with, somebody, truth, twins,
    },
    one_node::agrees,
    program::{Program, file, holdfast},
    proxy, upstream,
};

#[tokio::test(start_paused = true)]
async fn failed_call_is_answered_by_another_endpoint() {
    let failures = [
        Fault::Hang,
        Fault::Reset,
        Fault::ResetMidBody,
        Fault::Status(500),
        Fault::Status(403),
        Fault::RateLimited { retry_after: None },
        Fault::RateLimited { retry_after: Some(30) },
        Fault::Garbage,
        Fault::Truncated,
        Fault::WrongId,
        Fault::Error { code: -32005, message: "daily request count exceeded".to_owned() },
        Fault::Error { code: -32007, message: "50/second request limit reached".to_owned() },
        Fault::Error { code: 4444, message: "pruned history unavailable".to_owned() },
        Fault::Lie(Lie::Field("gasUsed".to_owned(), json!("0x1"))),
        Fault::Lie(Lie::EmptiedTransactions),
        Fault::Null,
    ];
    for fault in failures {
        let (first, second, program) =
            pair_with(|config| config.verify.on_mismatch = OnMismatch::Reject).await;
        first.fail(fault.clone()).on("eth_getBlockByHash").always();
        for number in [5, 6, 7] {
            let params = json!([hash(&first, number), true]);
            let (_, reply) = program.call(BLOCK_BY_HASH, params.clone()).await;
            assert_eq!(reply["result"], truth(&second, BLOCK_BY_HASH, &params), "{fault:?}: {reply}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn first_in_order_gets_all_calls_while_it_answers() {
    let (first, second, program) = pair().await;
    second.clear_calls();
    for number in 1..60 {
        program.ask(BLOCK_BY_HASH, json!([hash(&first, number), true])).await;
        program.ask(BALANCE, somebody()).await;
    }
    assert_eq!(second.calls_total(), 0);
}

#[tokio::test(start_paused = true)]
async fn equal_priority_shares_content_but_not_forwarded_calls() {
    let (first, second, program) = pair_with(|config| {
        config.upstream.endpoints =
            vec![EndpointConfig { weight: 3, ..EndpointConfig::at("") }, EndpointConfig::at("")];
    })
    .await;
    for number in 1..=120 {
        program.ask(BLOCK_BY_HASH, json!([hash(&first, number), true])).await;
        program.ask(BALANCE, somebody()).await;
    }
    let (one, other) = (first.count(BLOCK_BY_HASH), second.count(BLOCK_BY_HASH));
    assert!(other > 6 && one > other, "{one} and {other} blocks");
    let mut forwarded = [first.count(BALANCE), second.count(BALANCE)];
    forwarded.sort_unstable();
    assert_eq!(forwarded, [0, 120]);
}

/// A client that has seen a head must not get an answer for an older one, because the answer does not name its block.
#[tokio::test(start_paused = true)]
async fn forwarded_calls_are_not_answered_behind_the_shown_head() {
    let (first, second, program) =
        pair_with(|config| config.upstream.endpoints = vec![EndpointConfig::at(""), EndpointConfig::at("")])
            .await;
    let behind = match followed(&program).as_deref() {
        FIRST => &second,
        _ => &first,
    };
    behind.lag(1);
    for _ in 0..50 {
        let (one, two) = (first.mine(1).number, second.mine(1).number);
        assert_eq!(one, two);
        time::sleep(Duration::from_secs(2)).await;
        let head = program.ask("eth_blockNumber", json!([])).await;
        assert_eq!(head, format!("{one:#x}"));
        for _ in 0..4 {
            let fees = program.ask("eth_feeHistory", json!(["0x1", "latest", []])).await;
            assert_eq!(fees["oldestBlock"], head);
            program.ask(BALANCE, json!([somebody()[0], head])).await;
            program.ask("eth_call", json!([{ "to": somebody()[0] }, head])).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn missing_block_is_asked_of_one_other_endpoint() {
    let (first, second, program) = pair().await;
    first.fail(Fault::Error { code: -32000, message: "header not found".to_owned() }).on("eth_call").always();
    let call = |at: Value| json!([{ "to": somebody()[0] }, at]);
    for at in [json!("0x78"), json!("latest"), json!({ "blockNumber": "0x50" })] {
        assert_eq!(program.ask("eth_call", call(at.clone())).await, "0x", "{at}");
    }
    assert_eq!(second.calls().iter().filter(|call| call.method == "eth_call").count(), 3);
    // No node can have a block above the head.
    let (_, reply) = program.call("eth_call", call(json!("0x79"))).await;
    assert_eq!(reply["error"]["message"], "header not found");
    assert_eq!(second.calls().iter().filter(|call| call.method == "eth_call").count(), 3);
}

/// A gateway, for example, reports its chain id even if its node is down.
#[tokio::test(start_paused = true)]
async fn breaker_opens_although_identification_succeeds() {
    let (node, _) = twins();
    let program = in_memory::program(&node, &Config::default());
    introduced(&program).await;
    node.fail(Fault::Status(503)).on(BALANCE).always();
    node.clear_calls();
    for _ in 0..600 {
        program.call(BALANCE, somebody()).await;
        // A monitor that polls `/ready` has the same effect.
        program.upstream.outage();
        time::sleep(Duration::from_millis(100)).await;
    }
    let (asked, named) = (node.count(BALANCE), node.count("eth_chainId"));
    assert!(asked < 30, "{asked} calls and {named} identifications in a minute");
    let (_, reply) = program.call(BALANCE, somebody()).await;
    assert_eq!(reply["error"]["code"], -32010, "{reply}");
    // Readiness checks alone notice the recovery, and the next call succeeds.
    node.clear_faults();
    while program.upstream.outage().is_some() {
        time::sleep(Duration::from_secs(1)).await;
    }
    program.ask(BALANCE, somebody()).await;
    assert_eq!(health(&program, 0), Health::Closed);
}

#[tokio::test(start_paused = true)]
async fn forwarded_calls_alone_restore_the_first_in_order() {
    let (first, _, program) = pair().await;
    first.fail(Fault::Status(500)).any().always();
    for _ in 0..8 {
        program.ask(BALANCE, somebody()).await;
    }
    assert_eq!(followed(&program).as_deref(), SECOND);
    first.clear_faults();
    for _ in 0..70 {
        time::sleep(Duration::from_secs(1)).await;
        program.ask(BALANCE, somebody()).await;
    }
    assert_eq!(followed(&program).as_deref(), FIRST);
}

#[tokio::test(start_paused = true)]
async fn wrong_chain_endpoint_only_gets_identity_calls() {
    let (first, _) = twins();
    let others: [fn(&mut holdfast::devchain::Config); 2] =
        [|config| config.chain_id = 5, |config| config.seed += 1];
    for change in others {
        let stranger =
            upstream::devchain().config(|config| config.chain_id = 1).config(change).blocks(9, 1).chain();
        let program = in_memory::program_over(&[&first, &stranger], &in_order());
        introduced(&program).await;
        stranger.clear_calls();
        first.fail(Fault::Status(500)).on(BALANCE).always();
        let (status, reply) = program.call(BALANCE, somebody()).await;
        assert_eq!((status, &reply["error"]["code"]), (502, &json!(-32010)), "{reply}");
        assert_eq!(stranger.count(BALANCE), 0);
        let state = &program.upstream.status().0[1].identity;
        assert!(matches!(state, Some(IdentityState::WrongChain(_))), "{state:?}");
        first.clear_faults();
    }
}

#[tokio::test(start_paused = true)]
async fn without_nodes_final_data_is_served_and_the_rest_fails() {
    let (first, second, program) = pair().await;
    let (kept, missing) = (json!(["0x5", true]), json!(["0x6", true]));
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    let block = program.ask(BLOCK_BY_NUMBER, kept.clone()).await;
    let receipt = json!([block["transactions"][0]["hash"]]);
    program.ask(RECEIPT, receipt.clone()).await;
    for node in [&first, &second] {
        node.fail(Fault::Reset).any().always();
    }
    for _ in 0..20 {
        time::sleep(Duration::from_secs(1)).await;
        assert_eq!(program.ask(BLOCK_BY_NUMBER, kept.clone()).await, block);
        program.ask(RECEIPT, receipt.clone()).await;
        let begun = Instant::now();
        let (status, reply) = program.call(BLOCK_BY_NUMBER, missing.clone()).await;
        assert_eq!((status, &reply["error"]["code"]), (502, &json!(-32010)), "{reply}");
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
    second.clear_faults();
    let begun = Instant::now();
    while program.call(BLOCK_BY_NUMBER, missing.clone()).await.0 != 200 {
        time::sleep(Duration::from_millis(100)).await;
        assert!(begun.elapsed() < Duration::from_secs(6), "the proxy does not notice that a node is back");
    }
}

/// After a load balancer has taken the program out of service, no calls arrive that could notice that the node is back.
#[tokio::test]
async fn readiness_is_lost_with_the_upstream_and_comes_back_by_itself() {
    let node = upstream::devchain().blocks(3, 1).run().await;
    let address = node.address();
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    assert_eq!(client.get(&proxy.admin_url("/ready")).await.status, 200);
    drop(node);
    eventually("a failed call", || async { client.call(BALANCE, somebody()).await.status != 200 }).await;
    let ready = client.get(&proxy.admin_url("/ready")).await;
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("degraded"), "{}", ready.text());
    let _node = upstream::devchain().blocks(3, 1).run_on(address).await;
    eventually("readiness", || async { client.get(&proxy.admin_url("/ready")).await.status == 200 }).await;
}

#[tokio::test]
async fn endpoint_list_changes_at_runtime() {
    let (first, second) = (upstream::devchain().blocks(5, 2), upstream::devchain().blocks(5, 2));
    let (first, second) = (first.run().await, second.run().await);
    let endpoints = |node: &upstream::Node| format!("[[upstream.endpoints]]\nurl = '{}'\n", node.url());
    let path = file("pool.toml", &endpoints(&first));
    let flags = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let program =
        Program::start(holdfast(&[&["serve", "--config", path.to_str().unwrap()], &flags[..]].concat()));
    let client = client::at(&format!("http://{}", program.rpc_address().await));
    let block = json!([hash(&first, 3), true]);
    client.ask(BLOCK_BY_HASH, block.clone()).await.unwrap();
    client.ask(BALANCE, somebody()).await.unwrap();
    assert_eq!((first.count(BALANCE), second.count(BALANCE)), (1, 0));
    std::fs::write(&path, endpoints(&second)).unwrap();
    program.signal(rustix::process::Signal::HUP);
    program.line("configuration reloaded").await;
    client.ask(BALANCE, somebody()).await.unwrap();
    client.ask(BLOCK_BY_HASH, block).await.unwrap();
    assert_eq!((first.count(BALANCE), second.count(BALANCE)), (1, 1));
    assert_eq!(second.count(BLOCK_BY_HASH), 0, "cached blocks stay cached");
    // A wrong-chain endpoint does not take the place of the former node.
    let stranger = upstream::devchain().config(|config| config.chain_id += 1).blocks(5, 2).run().await;
    std::fs::write(&path, endpoints(&stranger)).unwrap();
    program.signal(rustix::process::Signal::HUP);
    program.line("not using it").await;
    assert_eq!(client.call(BALANCE, somebody()).await.code(), Some(-32010));
    assert_eq!(stranger.count(BALANCE), 0);
}

#[tokio::test(start_paused = true)]
async fn call_waiting_for_a_replaced_endpoint_completes() {
    let (first, second) = twins();
    let mut config = in_order();
    config.upstream.timeout = Duration::from_secs(600);
    let program = in_memory::program_over(&[&first], &config);
    introduced(&program).await;
    // The connection breaks, and the next identification hangs.
    first.fail(Fault::Reset).on(BALANCE).once();
    program.call(BALANCE, somebody()).await;
    first.fail(Fault::Hang).any().always();
    let params = json!([hash(&first, 5), true]);
    let waiting = {
        let (program, params) = (program.clone(), params.clone());
        tokio::spawn(async move { program.call(BLOCK_BY_HASH, params).await })
    };
    time::sleep(Duration::from_millis(100)).await;
    let parts = in_memory::endpoint(&second, "the new one", EndpointConfig::at(""));
    program.upstream.replace(vec![parts], &config.upstream);
    let begun = Instant::now();
    agrees(&program, &second, BLOCK_BY_HASH, params).await;
    waiting.await.unwrap();
    program.ask(BALANCE, somebody()).await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn null_does_not_replace_an_earlier_unproved_answer() {
    let (first, second, program) = pair().await;
    // The first node has a block that cannot be proved, the second has no such block.
    first.fail(Fault::Lie(Lie::Disguised(3))).on(BLOCK_BY_HASH).always();
    second.fail(Fault::Null).on(BLOCK_BY_HASH).always();
    assert_eq!(program.ask(BLOCK_BY_HASH, json!([hash(&first, 5), true])).await["strange"], "0x1");
}

/// The answer alone looks right, but the block that the proxy fetches as a proof contradicts it.
#[tokio::test(start_paused = true)]
async fn answer_contradicted_by_its_block_is_asked_elsewhere() {
    let wrong = [("transactionIndex", json!("0x2")), ("blockNumber", json!("0x9"))];
    for method in [RECEIPT, "eth_getTransactionByHash"] {
        for (member, lie) in &wrong {
            let (first, second, program) = pair_with(|config| {
                config.verify.level = Demand::Full;
                config.verify.on_mismatch = OnMismatch::Reject;
            })
            .await;
            let lie = Lie::Everywhere((*member).to_owned(), lie.clone());
            first.fail(Fault::Lie(lie)).on(method).always();
            let transaction = first.transactions_of(first.hash_at(100).unwrap())[0];
            agrees(&program, &second, method, json!([format!("{transaction:#x}")])).await;
        }
    }
}

/// A node is far behind, for example, if it syncs from the start or was restored from a backup.
#[tokio::test(start_paused = true)]
async fn final_blocks_are_served_while_a_node_is_far_behind() {
    let (first, second) = (long(), long());
    let mut config = in_order();
    config.chain.window = 8;
    let program = in_memory::program_over(&[&first, &second], &config);
    introduced(&program).await;
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    first.lag(200);
    time::sleep(Duration::from_secs(2)).await;
    program.call(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    for number in [60, 100, 150] {
        agrees(&program, &second, BLOCK_BY_NUMBER, json!([format!("{number:#x}"), true])).await;
    }
}

fn long() -> DevChain {
    upstream::devchain().config(|config| config.chain_id = 1).blocks(230, 1).chain()
}

#[tokio::test(start_paused = true)]
async fn unprovable_answer_is_asked_elsewhere_first() {
    for on_mismatch in [OnMismatch::Pass, OnMismatch::Reject] {
        let (first, second, program) = pair_with(|config| config.verify.on_mismatch = on_mismatch).await;
        first.fail(Fault::Lie(Lie::Disguised(3))).on(BLOCK_BY_HASH).always();
        agrees(&program, &second, BLOCK_BY_HASH, json!([hash(&first, 5), true])).await;
    }
}

#[tokio::test(start_paused = true)]
async fn status_shows_which_endpoint_sent_a_wrong_answer() {
    let (first, _, program) = pair().await;
    first.fail(Fault::Lie(Lie::Field("gasUsed".to_owned(), json!("0x1")))).on(BLOCK_BY_HASH).once();
    program.ask(BLOCK_BY_HASH, json!([hash(&first, 5), true])).await;
    let mismatches: Vec<_> =
        program.upstream.status().0.iter().map(|endpoint| endpoint.last_mismatch.is_some()).collect();
    assert_eq!(mismatches, [true, false]);
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_capped() {
    let (first, _) = twins();
    let program = in_memory::program_over(&[&first], &in_order());
    introduced(&program).await;
    first.fail(Fault::RateLimited { retry_after: Some(999_999_999) }).on(BALANCE).once();
    assert_eq!(program.call(BALANCE, somebody()).await.0, 429);
    time::sleep(Duration::from_secs(61)).await;
    assert_eq!(program.call(BALANCE, somebody()).await.0, 200);
}

/// The status is 200, as for every answer of a node, because only the proxy's own errors have other statuses.
#[tokio::test(start_paused = true)]
async fn rate_limit_error_of_all_nodes_is_passed_on() {
    let (first, second, program) = pair().await;
    let limit = Fault::Error { code: -32005, message: "daily request count exceeded".to_owned() };
    for node in [&first, &second] {
        node.fail(limit.clone()).on(BALANCE).always();
    }
    let (status, reply) = program.call(BALANCE, somebody()).await;
    assert_eq!(
        (status, &reply["error"]["message"]),
        (200, &json!("daily request count exceeded")),
        "{reply}"
    );
}

#[tokio::test(start_paused = true)]
async fn endpoint_rate_is_respected() {
    let (first, second) = twins();
    let mut config = in_order();
    config.upstream.endpoints[0].rate = Some(RateConfig { per_second: 5, burst: 5 });
    let program = in_memory::program_over(&[&first, &second], &config);
    introduced(&program).await;
    time::sleep(Duration::from_secs(5)).await;
    first.clear_calls();
    second.clear_calls();
    let begun = Instant::now();
    // Forwarded calls wait for the primary; content comes from the other endpoint.
    for _ in 0..15 {
        program.ask(BALANCE, somebody()).await;
    }
    assert!(begun.elapsed() >= Duration::from_millis(1_800), "{:?}", begun.elapsed());
    assert_eq!((first.count(BALANCE), second.count(BALANCE)), (15, 0));
    let begun = Instant::now();
    for number in 1..40 {
        program.ask(BLOCK_BY_HASH, json!([hash(&first, number), true])).await;
    }
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    assert!(
        first.count(BLOCK_BY_HASH) <= 8 && second.count(BLOCK_BY_HASH) >= 31,
        "{}",
        first.count(BLOCK_BY_HASH)
    );
    // If there is only one endpoint, calls wait for it, too.
    let alone = in_memory::program_over(&[&first], &config);
    alone.ask("eth_blockNumber", json!([])).await;
    let begun = Instant::now();
    for _ in 0..15 {
        alone.ask(BALANCE, somebody()).await;
    }
    assert!(begun.elapsed() >= Duration::from_millis(1_800), "{:?}", begun.elapsed());
}

/// Head refreshes take precedence over calls that wait for the rate limit, and clients get no older head from the other
/// endpoint.
#[tokio::test(start_paused = true)]
async fn rate_limited_calls_do_not_delay_head_refreshes() {
    let (first, second, program) =
        pair_with(|config| config.upstream.endpoints[0].rate = Some(RateConfig { per_second: 5, burst: 5 }))
            .await;
    second.lag(5);
    let hurried = async || loop {
        time::sleep(Duration::from_millis(10)).await;
        program.call(BALANCE, somebody()).await;
    };
    let crowd = join_all((0..50).map(|_| hurried()));
    let heads = async {
        for _ in 0..10 {
            first.mine(1);
            second.mine(1);
            for _ in 0..4 {
                time::sleep(Duration::from_millis(1_500)).await;
                let head = program.ask("eth_blockNumber", json!([])).await;
                assert_eq!(head, format!("{:#x}", first.head().number));
            }
            let fresh = json!([format!("{:#x}", first.head().number - 20), true]);
            agrees(&program, &first, BLOCK_BY_NUMBER, fresh).await;
        }
    };
    tokio::select! {
        () = heads => {}
        _ = crowd => {},
    }
    assert_eq!(program.metric("heads_total{reason=\"reorg\"}"), 0);
}

/// Slow forwarded calls do not delay head refreshes, either, even for the client that makes them.
#[tokio::test(start_paused = true)]
async fn refresh_of_the_head_needs_no_slot() {
    let (node, _) = twins();
    let mut config = Config::default();
    (config.upstream.max_in_flight, config.upstream.max_per_client) = (4, Some(4));
    config.http.keys = vec![proxy::key("busy", "hf_BUSY")];
    let program = in_memory::program(&node, &config).with_key("hf_BUSY");
    program.ask("eth_blockNumber", json!([])).await;
    node.fail(Fault::Queue(Duration::from_secs(20))).on(BALANCE).always();
    let crowd = join_all((0..4).map(|_| program.call(BALANCE, somebody())));
    let heads = async {
        for _ in 0..4 {
            node.mine(1);
            time::sleep(Duration::from_millis(1_500)).await;
            for tag in ["latest", "safe", "finalized"] {
                agrees(&program, &node, BLOCK_BY_NUMBER, json!([tag, false])).await;
            }
        }
    };
    tokio::select! {
        () = heads => {}
        _ = crowd => panic!("the slow calls ended, so the slots are free"),
    }
}

#[tokio::test(start_paused = true)]
async fn head_does_not_move_back_to_a_lagging_endpoint() {
    for fault in [Fault::Reset, Fault::RateLimited { retry_after: Some(30) }] {
        let (first, second) = twins();
        second.lag(5);
        let program = in_memory::program_over(&[&first, &second], &in_order());
        introduced(&program).await;
        // The head tracker knows a minute of the chain.
        for _ in 0..5 {
            first.mine(1);
            second.mine(1);
            time::sleep(Duration::from_secs(12)).await;
            program.ask("eth_blockNumber", json!([])).await;
        }
        first.fail(fault.clone()).any().always();
        for _ in 0..5 {
            time::sleep(Duration::from_secs(2)).await;
            assert_eq!(program.ask("eth_blockNumber", json!([])).await, "0x7d", "{fault:?}");
        }
        // If the second node stays behind, the head goes back to it in the end.
        time::sleep(Duration::from_secs(10)).await;
        while program.ask("eth_blockNumber", json!([])).await != "0x78" {
            time::sleep(Duration::from_secs(2)).await;
        }
        assert_eq!(program.metric("heads_total{reason=\"reorg\"}"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn pruned_final_blocks_do_not_change_the_primary() {
    for pruned in [Pruned::Null, Pruned::Error4444] {
        let (first, second, program) = pair().await;
        program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        first.prune_below(50, pruned);
        for number in 10..14 {
            agrees(&program, &second, BLOCK_BY_NUMBER, json!([format!("{number:#x}"), true])).await;
        }
        assert_eq!(followed(&program).as_deref(), FIRST, "{pruned:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn lagging_endpoint_is_not_asked_for_newer_blocks() {
    let (first, second, program) = pair().await;
    first.lag(10);
    time::sleep(Duration::from_secs(2)).await;
    // This refresh reveals the lag.
    program.ask("eth_blockNumber", json!([])).await;
    for (method, params) in
        [(BLOCK_BY_NUMBER, json!(["0x76", true])), ("eth_getBlockTransactionCountByNumber", json!(["0x75"]))]
    {
        agrees(&program, &second, method, params).await;
    }
    for _ in 0..10 {
        time::sleep(Duration::from_secs(5)).await;
        assert_eq!(program.ask("eth_blockNumber", json!([])).await, "0x78", "the second is not behind");
    }
    assert_eq!(followed(&program).as_deref(), SECOND);
}
