//! One of two nodes goes wrong without failing: it serves another chain, hangs, stalls, or has pruned history.

use std::time::Duration;

use holdfast::{
    config::Config,
    devchain::{DevChain, Fault, Lie, Pruned, TagTarget},
    upstream::{EndpointConfig, EndpointParts, Health, InProcessTransport},
};
use serde_json::{Value, json};
use tokio::time::{self, Instant};
use tower::util::BoxCloneSyncService;

use crate::support::{
    client, eventually,
    in_memory::{self, InMemory},
    method::{BALANCE, BLOCK_BY_HASH, BLOCK_BY_NUMBER, RECEIPT},
    nodes::{
        FIRST, SECOND, followed, hash, head, heads, in_order, introduced, is_known, pair, somebody, truth,
        twins,
    },
    one_node::{agrees, raw, tx_hash},
    proxy, upstream,
};

/// Puts another chain of `blocks` blocks behind the node's address.
fn becomes_another(node: &DevChain, blocks: usize) {
    let mut config = node.config();
    config.seed += 1;
    node.restart(config);
    node.mine_many(blocks, 2);
}

// ## Another chain

#[tokio::test(start_paused = true)]
async fn wrong_chain_node_does_not_move_the_head() {
    for blocks in [100, 120, 125, 300] {
        let (first, second, program) = pair().await;
        let window = json!([hash(&second, 119), false]);
        program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        program.ask(BLOCK_BY_NUMBER, json!(["0x77", false])).await;
        becomes_another(&first, blocks);
        for _ in 0..5 {
            time::sleep(Duration::from_secs(2)).await;
            let latest = program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
            assert_eq!(latest["hash"], hash(&second, 120), "{blocks} blocks");
            assert_eq!(head(&program).await, "0x78", "{blocks} blocks");
            assert_eq!(program.ask(BLOCK_BY_NUMBER, json!(["0x77", false])).await["hash"], window[0]);
        }
        assert_eq!(followed(&program).as_deref(), SECOND);
        assert_eq!(program.metric("finality_alarms_total"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_chain_node_does_not_move_finality() {
    let (first, _, program) = pair().await;
    let before = program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    becomes_another(&first, 120);
    time::sleep(Duration::from_secs(2)).await;
    let after = program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    assert_eq!(after, before);
    assert_eq!(program.metric("finality_alarms_total"), 0);
}

#[tokio::test(start_paused = true)]
async fn wrong_chain_endpoint_invalidates_all_canonicity() {
    let (node, right) = twins();
    let program = in_memory::program(&node, &Config::default());
    introduced(&program).await;
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    let number = |number| json!([format!("{number:#x}"), true]);
    program.ask(BLOCK_BY_NUMBER, number(5)).await;
    time::sleep(Duration::from_secs(2)).await;
    head(&program).await;
    // Another node answers over the same connection, for example behind a load balancer, and nothing has shown the
    // change yet.
    becomes_another(&node, 120);
    agrees(&program, &node, BLOCK_BY_NUMBER, number(8)).await;
    time::sleep(Duration::from_secs(2)).await;
    // The head of the other chain reveals the change.
    let (_, reply) = program.call(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    assert_eq!(reply["error"]["code"], -32010, "{reply}");
    for (method, params) in [
        (BLOCK_BY_NUMBER, number(8)),
        (BLOCK_BY_NUMBER, number(5)),
        (RECEIPT, json!([format!("0x{}", "07".repeat(32))])),
        ("eth_gasPrice", json!([])),
    ] {
        let (_, reply) = program.call(method, params).await;
        assert_eq!(reply["error"]["code"], -32010, "{method}: {reply}");
    }
    agrees(&program, &right, BLOCK_BY_HASH, json!([hash(&right, 5), true])).await;
    assert_eq!(program.metric("finality_alarms_total"), 0);
    node.restart(right.config());
    node.mine_many(120, 3);
    while program.call(BLOCK_BY_NUMBER, json!(["latest", false])).await.1["error"].is_object() {
        time::sleep(Duration::from_secs(1)).await;
    }
    agrees(&program, &right, BLOCK_BY_NUMBER, number(8)).await;
}

/// No call fails, because only idle connections close, and the next call opens a new connection.
#[tokio::test]
async fn node_replaced_while_idle_is_identified_before_use() {
    let node = |seed| {
        upstream::devchain().blocks(120, 2).config(move |config| {
            config.chain_id = 1;
            config.seed += seed;
        })
    };
    let first = node(0).run().await;
    let proxy = proxy::new().upstream(&first).run().await;
    let client = client::http(&proxy);
    client.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await.unwrap();
    client.ask(BLOCK_BY_NUMBER, json!(["0x5", true])).await.unwrap();
    let (address, chain) = (first.address(), DevChain::clone(&first));
    drop(first);
    let second = node(1).run_on(address).await;
    time::sleep(Duration::from_millis(100)).await;
    let reply = client.call(BLOCK_BY_NUMBER, json!(["0x6", true])).await;
    assert_eq!(reply.code(), Some(-32010), "{:?}", reply.json());
    drop(second);
    let _again = node(0).run_on(address).await;
    let right = truth(&chain, BLOCK_BY_NUMBER, &json!(["0x6", true]));
    eventually("the right node is used again", async || {
        client.call(BLOCK_BY_NUMBER, json!(["0x6", true])).await.json()["result"] == right
    })
    .await;
}

/// Returns a node, a proxy that knows it, and the transport between them.
async fn on_one_transport() -> (DevChain, InProcessTransport<DevChain>, InMemory) {
    let (node, _) = twins();
    let transport = InProcessTransport::new(node.clone());
    let parts = in_memory::endpoint(&node, "closing", EndpointConfig::at(""));
    let parts = EndpointParts { transport: BoxCloneSyncService::new(transport.clone()), ..parts };
    let program = in_memory::program_of(vec![parts], &Config::default());
    introduced(&program).await;
    (node, transport, program)
}

#[tokio::test(start_paused = true)]
async fn node_that_closes_connections_is_rarely_reidentified() {
    let (node, closing, program) = on_one_transport().await;
    node.clear_calls();
    for _ in 0..600 {
        closing.disconnect();
        program.ask(BALANCE, somebody()).await;
        time::sleep(Duration::from_secs(1)).await;
    }
    let asked = node.calls().iter().filter(|call| call.method == "eth_chainId").count();
    assert!((20..30).contains(&asked), "{asked} times in ten minutes");
}

/// The node may have executed the write. The client must get the answer, although it came over a new connection, and
/// the node does not identify itself.
#[tokio::test(start_paused = true)]
async fn write_is_answered_although_identification_hangs() {
    let (node, closing, program) = on_one_transport().await;
    time::sleep(Duration::from_secs(2)).await;
    // A slow write leaves little time to wait for the identification.
    node.fail(Fault::Delay(Duration::from_secs(8))).on("eth_sendRawTransaction").always();
    node.fail(Fault::Hang).on("eth_chainId").always();
    closing.disconnect();
    let transaction = node.generate(1).remove(0);
    let told = program.ask("eth_sendRawTransaction", json!([raw(&transaction)])).await;
    assert_eq!(told, tx_hash(&transaction));
}

#[tokio::test(start_paused = true)]
async fn head_of_a_wrong_chain_is_dropped_on_recovery() {
    let (first, second, program) = pair().await;
    head(&program).await;
    let highest = || program.upstream.status().0[0].head.map(|head| head.0);
    assert_eq!(highest(), Some(120));
    becomes_another(&first, 300);
    time::sleep(Duration::from_secs(2)).await;
    head(&program).await;
    first.restart(second.config());
    first.mine_many(120, 3);
    let begun = Instant::now();
    while !is_known(&program, 0) {
        program.ask(BALANCE, somebody()).await;
        time::sleep(Duration::from_secs(1)).await;
        assert!(begun.elapsed() < Duration::from_secs(120), "its return is not noticed");
    }
    assert!(highest().is_none_or(|highest| highest <= 120), "{:?}", highest());
}

#[tokio::test(start_paused = true)]
async fn wrong_chain_endpoint_does_not_slow_failing_calls() {
    let (first, second, program) = pair().await;
    becomes_another(&first, 120);
    time::sleep(Duration::from_secs(2)).await;
    head(&program).await;
    second.fail(Fault::Reset).any().always();
    while program.upstream.status().0[1].health == Health::Closed {
        program.call(BALANCE, somebody()).await;
    }
    second.clear_faults();
    second.fail(Fault::Hang).any().always();
    first.clear_calls();
    let begun = Instant::now();
    let mut slow = 0;
    for _ in 0..200 {
        let called = Instant::now();
        let (_, reply) = program.call(BALANCE, somebody()).await;
        assert!(matches!(reply["error"]["code"].as_i64(), Some(-32010 | -32011)), "{reply}");
        slow += u32::from(called.elapsed() > Duration::from_millis(100));
        time::sleep(Duration::from_millis(20)).await;
    }
    // Now and then a call probes whether the first node is back.
    assert!(slow <= 5, "{slow} of 200 waited");
    let asked = first.count("eth_chainId");
    assert!(asked <= begun.elapsed().as_secs() + 1, "{asked} times in {:?}", begun.elapsed());
}

// ## A node that hangs

#[tokio::test(start_paused = true)]
async fn readiness_checks_do_not_make_calls_wait() {
    for count in [1, 2] {
        let (first, second) = twins();
        let nodes = &[&first, &second][..count];
        let mut config = in_order();
        // A call has a deadline of 30 s, before which the attempts on all nodes must end.
        config.upstream.timeout = Duration::from_secs(if count == 1 { 25 } else { 10 });
        let program = in_memory::program_over(nodes, &config);
        introduced(&program).await;
        for node in nodes {
            node.fail(Fault::Hang).any().always();
        }
        let is_shut = || program.upstream.status().0.iter().all(|endpoint| endpoint.health != Health::Closed);
        while !is_shut() {
            program.call(BALANCE, somebody()).await;
        }
        for second in 0..20 {
            assert!(program.upstream.outage().is_some());
            time::sleep(Duration::from_millis(400)).await;
            for (method, params) in [(BALANCE, somebody()), (BLOCK_BY_NUMBER, json!(["0x5", true]))] {
                let begun = Instant::now();
                let (status, reply) = program.call(method, params).await;
                let took = begun.elapsed();
                assert!(took < Duration::from_secs(1), "{count} nodes, {second}: {took:?}");
                assert_eq!((status, &reply["error"]["code"]), (502, &json!(-32010)), "{reply}");
            }
        }
        // The same checks notice that the nodes are back.
        nodes.iter().for_each(|node| node.clear_faults());
        let begun = Instant::now();
        while program.upstream.outage().is_some() {
            time::sleep(Duration::from_secs(1)).await;
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
        program.ask(BALANCE, somebody()).await;
    }
}

// ## A node that stalls

/// Mines on both nodes while the first is the primary. Afterwards the first node stalls, because the tests mine on
/// the second only.
async fn until_it_stands_still(program: &InMemory, first: &DevChain, second: &DevChain, block: Duration) {
    for _ in 0..20 {
        time::sleep(block).await;
        first.mine(1);
        second.mine(1);
        head(program).await;
    }
    assert_eq!(followed(program).as_deref(), FIRST);
}

#[tokio::test(start_paused = true)]
async fn stalled_primary_is_replaced_by_an_advancing_one() {
    for (block, patience) in [(2, 30), (12, 80)] {
        let (first, second, program) = pair().await;
        let block = Duration::from_secs(block);
        until_it_stands_still(&program, &first, &second, block).await;
        let frozen = Instant::now();
        while head(&program).await != format!("{:#x}", second.head().number) || frozen.elapsed() < 2 * block {
            time::sleep(block).await;
            second.mine(1);
            assert!(frozen.elapsed() < Duration::from_secs(patience), "{:?}", frozen.elapsed());
        }
        assert_eq!(followed(&program).as_deref(), SECOND);
        // The second node stays the primary, although the first comes first in order.
        for _ in 0..100 {
            time::sleep(block).await;
            second.mine(1);
            assert_eq!(head(&program).await, format!("{:#x}", second.head().number));
        }
        assert_eq!(program.metric("finality_alarms_total"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn stalled_chain_is_rarely_compared_with_the_spare() {
    let (first, second, program) = pair().await;
    until_it_stands_still(&program, &first, &second, Duration::from_secs(2)).await;
    assert!(heads(&second) <= 1, "an advancing primary is compared rarely");
    for _ in 0..600 {
        time::sleep(Duration::from_secs(1)).await;
        head(&program).await;
    }
    assert_eq!(followed(&program).as_deref(), FIRST);
    assert!((1..15).contains(&heads(&second)), "{} times", heads(&second));
}

#[tokio::test(start_paused = true)]
async fn primary_far_behind_is_replaced_by_one_ahead() {
    let (first, second) = twins();
    second.mine_many(20, 1);
    let program = in_memory::program_over(&[&first, &second], &in_order());
    introduced(&program).await;
    let begun = Instant::now();
    while head(&program).await != format!("{:#x}", second.head().number) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        time::sleep(Duration::from_secs(2)).await;
        first.mine(1);
        second.mine(1);
    }
    assert_eq!(followed(&program).as_deref(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn primary_slightly_behind_stays_primary() {
    let (first, second) = twins();
    second.mine(1);
    second.mine(1);
    let program = in_memory::program_over(&[&first, &second], &in_order());
    introduced(&program).await;
    for _ in 0..400 {
        time::sleep(Duration::from_secs(2)).await;
        first.mine(1);
        second.mine(1);
        head(&program).await;
    }
    assert_eq!(followed(&program).as_deref(), FIRST);
    assert!((1..5).contains(&heads(&second)), "{} times", heads(&second));
}

// ## A node that has pruned history

#[tokio::test(start_paused = true)]
async fn pruned_history_is_fetched_from_the_second_node() {
    let asked = [
        (BLOCK_BY_NUMBER, json!(["0x5", true])),
        (BLOCK_BY_NUMBER, json!(["0x6", false])),
        ("eth_getBlockTransactionCountByNumber", json!(["0x7"])),
        ("eth_getUncleCountByBlockNumber", json!(["0x8"])),
        ("eth_getTransactionByBlockNumberAndIndex", json!(["0x9", "0x0"])),
        ("eth_getBlockReceipts", json!(["0xa"])),
    ];
    for finality in [TagTarget::Trailing, TagTarget::Error, TagTarget::Null] {
        let forgetful = || {
            let (first, second) = twins();
            first.prune_below(50, Pruned::Null);
            [&first, &second].iter().for_each(|node| node.set_finalized(finality));
            let program = in_memory::program_over(&[&first, &second], &in_order());
            (first, second, program)
        };
        // Sends each call as the very first, then all calls one after the other, then all in one batch.
        for (method, params) in &asked {
            let (_first, second, program) = forgetful();
            agrees(&program, &second, method, params.clone()).await;
        }
        let (_first, second, program) = forgetful();
        for (method, params) in &asked {
            agrees(&program, &second, method, params.clone()).await;
        }
        let (_first, second, program) = forgetful();
        let answers = program.batch(&asked).await;
        for ((method, params), answer) in asked.iter().zip(answers) {
            assert_eq!(answer, truth(&second, method, params), "{finality:?}: {method}");
        }
    }
}

// ## Unprovable heads

#[tokio::test(start_paused = true)]
async fn unprovable_heads_do_not_favour_a_lagging_node() {
    let (first, second, program) = pair().await;
    for node in [&first, &second] {
        // The heads have an unknown member, as if a fork had added it.
        node.fail(Fault::Lie(Lie::Disguised(3))).on(BLOCK_BY_NUMBER).always();
    }
    second.lag(5);
    for number in 121..140u64 {
        time::sleep(Duration::from_secs(2)).await;
        first.mine(1);
        second.mine(1);
        assert_eq!(head(&program).await, format!("{number:#x}"));
        assert_eq!(followed(&program).as_deref(), FIRST);
    }
}

#[tokio::test(start_paused = true)]
async fn null_at_an_index_is_not_asked_of_another_branch() {
    let (first, _, program) = pair().await;
    // A reorg makes the primary's last block empty. The second node has not seen the reorg.
    let empty = first.reorg_with(1, vec![Vec::new()]);
    time::sleep(Duration::from_secs(2)).await;
    let latest = program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    assert_eq!(latest["hash"], format!("{:#x}", empty.hash));
    for index in ["0x0", "0x1", "0x2"] {
        let said = program.ask("eth_getTransactionByBlockNumberAndIndex", json!(["0x78", index])).await;
        assert_eq!(said, Value::Null, "{index}");
    }
}
