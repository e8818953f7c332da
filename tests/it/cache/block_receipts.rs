//! `eth_getBlockReceipts`: empty blocks, and blocks named by an object.

use holdfast::{
    config::Config,
    verify::{Demand, OnMismatch},
};
use serde_json::{Value, json};

use crate::support::{
    client, in_memory,
    method::{BLOCK_BY_NUMBER, RECEIPTS, TRANSACTION_COUNT},
    proxy, upstream,
};

#[tokio::test]
async fn proved_empty_block_has_no_receipts() {
    let node = upstream::devchain().blocks(2, 0).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    for full in [true, false] {
        let number = if full { "0x1" } else { "0x2" };
        client.ask(BLOCK_BY_NUMBER, json!([number, full])).await.unwrap();
        node.clear_calls();
        for _ in 0..2 {
            let answer = client.call(RECEIPTS, json!([number])).await;
            assert_eq!(answer.json()["result"], json!([]));
            assert!(answer.header("cache-status").unwrap().contains("hit"), "{answer:?}");
        }
        assert_eq!(node.count(RECEIPTS), 0);
    }
}

/// Sends the same batches as an indexer. The receipts can arrive before the block that proves them.
#[tokio::test]
async fn empty_block_and_its_receipts_in_a_batch_raise_no_warning() {
    let node = upstream::devchain().config(|config| config.chain_id = 1).blocks(20, 0).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    for number in (1..20).map(|number| format!("{number:#x}")) {
        let batch = json!([
            { "jsonrpc": "2.0", "id": 1, "method": RECEIPTS, "params": [number] },
            { "jsonrpc": "2.0", "id": 2, "method": BLOCK_BY_NUMBER, "params": [number, true] },
        ]);
        let answers = client.send(batch.to_string()).await.json();
        assert_eq!((&answers[0]["result"], &answers[1]["result"]["number"]), (&json!([]), &json!(number)));
    }
    assert_eq!(proxy.metric("holdfast_unprovable_total").await, 0);
}

#[tokio::test(start_paused = true)]
async fn block_may_be_named_by_an_object() {
    let chain = upstream::devchain().blocks(3, 2).chain();
    let program = in_memory::program(&chain, &Config::default());
    let hash = format!("{:#x}", chain.hash_at(3).unwrap());
    program.ask(BLOCK_BY_NUMBER, json!(["latest", true])).await;
    program.ask(RECEIPTS, json!(["latest"])).await;
    chain.clear_calls();
    for block in [
        json!({ "blockNumber": "0x3" }),
        json!({ "blockHash": hash }),
        json!({ "blockHash": hash, "requireCanonical": false }),
        json!({ "blockHash": hash, "requireCanonical": true }),
    ] {
        let own: Value = serde_json::from_slice(&chain.answer(RECEIPTS, json!([block])).unwrap()).unwrap();
        assert_eq!(program.ask(RECEIPTS, json!([block])).await, own, "{block}");
    }
    assert_eq!(chain.count(RECEIPTS), 0, "all from the cache");
}

/// An orphan is served by its hash, but not to a client that demands a canonical block.
#[tokio::test]
async fn required_canonicity_is_left_to_the_node_after_a_reorg() {
    let node = upstream::devchain().blocks(3, 2).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    let orphan = format!("{:#x}", node.hash_at(3).unwrap());
    client.ask(RECEIPTS, json!([orphan])).await.unwrap();
    node.reorg(1, 2);
    node.clear_calls();
    let by_hash = client.call(RECEIPTS, json!([{ "blockHash": orphan }])).await.json();
    assert!(by_hash["result"].is_array(), "{by_hash}");
    assert_eq!(node.count(RECEIPTS), 0);
    let canonical = json!([{ "blockHash": orphan, "requireCanonical": true }]);
    let refused: Value = client.call(RECEIPTS, canonical.clone()).await.json();
    let own = node.answer(RECEIPTS, &canonical).unwrap_err();
    assert_eq!(refused["error"]["code"], own.code, "{refused}");
}

/// Where clients get proved data only, the node does not answer calls that Holdfast cannot read.
#[tokio::test(start_paused = true)]
async fn unread_parameters_are_refused_where_proof_is_required() {
    let chain = upstream::devchain().blocks(3, 2).chain();
    let mut config = Config::default();
    config.verify.level = Demand::Full;
    config.verify.on_mismatch = OnMismatch::Reject;
    let program = in_memory::program(&chain, &config);
    let hash = format!("{:#x}", chain.hash_at(3).unwrap());
    for (method, params) in [
        (RECEIPTS, json!([1])),
        (RECEIPTS, json!(["0x02"])),
        (RECEIPTS, json!(["0x2", 1])),
        (RECEIPTS, json!([{ "blockNumber": "0x02" }])),
        (TRANSACTION_COUNT, json!(["0x02"])),
        ("eth_getUncleCountByBlockHash", json!([hash, 2])),
    ] {
        let (_, reply) = program.call(method, params.clone()).await;
        assert_eq!(reply["error"]["code"], -32602, "{method} {params}: {reply}");
        assert_eq!(chain.count(method), 0, "{method} {params}");
    }
    let orphan = json!([{ "blockHash": format!("0x{}", "ab".repeat(32)), "requireCanonical": true }]);
    let (_, reply) = program.call(RECEIPTS, orphan).await;
    assert_eq!(reply["error"]["code"], -32012, "{reply}");
}
