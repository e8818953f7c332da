//! Tags: one head for a batch, and tags that the node does not know.

use alloy_primitives::B256;
use holdfast::{
    config::Config,
    devchain::{Fault, Lie, TagTarget},
};
use serde_json::{Value, json};
use tokio::time;

use crate::support::{
    in_memory,
    method::{BLOCK_BY_HASH, BLOCK_BY_NUMBER, RECEIPTS, TRANSACTION_AT_NUMBER},
    nodes::{hex, truth},
    one_node::{SOON, STALE},
    upstream,
};

/// The node has rolled back below its finalized block, so Holdfast forwards calls by tag.
#[tokio::test(start_paused = true)]
async fn tags_of_a_batch_mean_one_head_without_canonicity() {
    let chain = upstream::devchain().blocks(20, 3).chain();
    let mut config = in_memory::consistent();
    config.http.batch_concurrency = 1;
    let program = in_memory::program(&chain, &config);
    chain.set_finalized(15);
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    chain.rollback(10);
    chain.set_finalized(5);
    for tags in [["latest", "latest"], ["latest", "safe"], ["finalized", "latest"]] {
        time::sleep(STALE).await;
        // A single call is forwarded.
        let head = hex(chain.head().hash);
        assert_eq!(program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await["hash"], head);
        let slow = format!(r#"{BLOCK_BY_NUMBER}["{}"*"#, tags[0]);
        chain.fail(Fault::Delay(STALE * 2)).on(&slow).once();
        let mining = tokio::spawn({
            let chain = chain.clone();
            async move {
                time::sleep(SOON).await;
                chain.reorg(1, 3);
                chain.set_safe(chain.head().number);
            }
        });
        let calls = tags.map(|tag| (BLOCK_BY_NUMBER, json!([tag, false])));
        let answers = program.call_batch(&calls).await;
        mining.await.unwrap();
        let (first, second) = (&answers[0]["result"], &answers[1]);
        assert!(first["hash"].is_string(), "{first}");
        match tags {
            // The reorg has taken the block away from the node's chain, but not the block itself.
            ["latest", "latest"] => assert_eq!(second["result"]["hash"], first["hash"]),
            ["latest", "safe"] => assert_eq!(second["error"]["code"], -32010, "safe is above latest"),
            _ => assert!(second["result"]["number"].is_string(), "{second}"),
        }
    }
}

/// The node denies its finalized block, and its head is higher than the one that Holdfast tracks.
#[tokio::test(start_paused = true)]
async fn tags_of_a_batch_mean_a_higher_head_without_canonicity() {
    let chain = upstream::devchain().blocks(20, 3).chain();
    let program = in_memory::program(&chain, &in_memory::consistent());
    chain.set_finalized(15);
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    chain.fail(Fault::Null).on(r#"eth_getBlockByNumber["0xf"*"#).always();
    chain.set_finalized(TagTarget::Null);
    chain.reorg(10, 200);
    chain.set_safe(100);
    time::sleep(STALE).await;
    let calls = ["latest", "safe"].map(|tag| (BLOCK_BY_NUMBER, json!([tag, false])));
    for ((method, params), answer) in calls.iter().zip(program.batch(&calls).await) {
        assert_eq!(answer["hash"], truth(&chain, method, params)["hash"], "{params}");
    }
}

#[tokio::test(start_paused = true)]
async fn tags_of_a_batch_mean_one_head() {
    let chain = upstream::devchain().blocks(10, 3).chain();
    let mut config = Config::default();
    // The proxy answers one entry at a time, so that the chain can grow in between.
    config.http.batch_concurrency = 1;
    let program = in_memory::program(&chain, &config);
    let head = chain.head();
    program.ask("eth_blockNumber", json!([])).await;
    chain.fail(Fault::Delay(STALE * 2)).on(BLOCK_BY_HASH).once();
    let moving = tokio::spawn({
        let (chain, program) = (chain.clone(), program.clone());
        async move {
            time::sleep(SOON).await;
            chain.mine(5);
            time::sleep(STALE).await;
            // Another client sees the new head in the meantime.
            program.ask("eth_blockNumber", json!([])).await
        }
    });
    let answers = program
        .batch(&[
            (BLOCK_BY_NUMBER, json!(["latest", true])),
            (BLOCK_BY_NUMBER, json!(["latest", false])),
            ("eth_blockNumber", json!([])),
            (TRANSACTION_AT_NUMBER, json!(["latest", 1])),
            ("eth_getBlockTransactionCountByNumber", json!(["latest"])),
            (RECEIPTS, json!(["latest"])),
        ])
        .await;
    assert_eq!(moving.await.unwrap(), hex(head.number + 1));
    assert_eq!(answers[0]["hash"], hex(head.hash));
    assert_eq!(answers[1]["hash"], hex(head.hash));
    assert_eq!(answers[2], hex(head.number));
    assert_eq!(answers[3]["blockHash"], hex(head.hash));
    assert_eq!(answers[4], "0x3");
    assert_eq!(answers[5][0]["blockHash"], hex(head.hash));
}

/// The proxy asks a node without finality for the tags, but not several times with each call.
#[tokio::test(start_paused = true)]
async fn unsupported_tags_cost_few_additional_calls() {
    let chain = upstream::devchain().blocks(3, 1).chain();
    chain.set_finalized(TagTarget::Error);
    chain.set_safe(TagTarget::Null);
    let program = in_memory::program(&chain, &Config::default());
    assert_eq!(program.call("eth_blockNumber", json!([])).await.0, 200);
    chain.clear_calls();
    for _ in 0..10 {
        let (_, reply) = program.call("eth_getBlockByNumber", json!(["finalized", false])).await;
        assert!(reply["error"].is_object(), "{reply}");
        let (_, reply) = program.call("eth_getBlockByNumber", json!(["safe", false])).await;
        assert_eq!(reply["result"], Value::Null, "{reply}");
    }
    // The proxy forwards each call, and refreshes each tag once.
    assert!(chain.count("eth_getBlockByNumber") <= 22, "{}", chain.count("eth_getBlockByNumber"));
}

/// The node does not show its head, but answers calls for transactions in it.
#[tokio::test(start_paused = true)]
async fn missing_transaction_of_an_unknown_head_fits_no_other_tag() {
    for method in [TRANSACTION_AT_NUMBER, "eth_getRawTransactionByBlockNumberAndIndex"] {
        let chain = upstream::devchain().blocks(3, 0).chain();
        let program = in_memory::program(&chain, &Config::default());
        let refusal = Fault::Error { code: -32008, message: "Response is too big".to_owned() };
        chain.fail(refusal).on(r#"eth_getBlockByNumber["latest"*"#).always();
        let calls = [(BLOCK_BY_NUMBER, json!(["safe", false])), (method, json!(["latest", "0x0"]))];
        let replies = program.call_batch(&calls).await;
        assert_eq!(replies[0]["result"]["hash"], hex(chain.hash_at(0).unwrap()), "{replies:?}");
        assert_eq!(replies[1]["error"]["code"], -32010, "{replies:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn tag_that_was_null_gets_its_block_in_a_batch() {
    let chain = upstream::devchain().blocks(10, 1).chain();
    for (tag, number) in [("safe", 9), ("finalized", 8)] {
        let set = |target| if tag == "safe" { chain.set_safe(target) } else { chain.set_finalized(target) };
        set(TagTarget::Null);
        let program = in_memory::program(&chain, &Config::default());
        assert_eq!(program.call(BLOCK_BY_NUMBER, json!([tag, false])).await.1["result"], Value::Null);
        set(TagTarget::At(number));
        let tags = ["latest", tag].map(|tag| (BLOCK_BY_NUMBER, json!([tag, false])));
        let answers = program.batch(&tags).await;
        let numbers = [&answers[0]["number"], &answers[1]["number"]];
        assert_eq!(numbers, [&hex(10), &hex(number)]);
    }
}

/// The blocks of the node do not link to each other, so only the node can say what its tags mean.
#[tokio::test(start_paused = true)]
async fn one_node_decides_on_a_tag_whose_block_does_not_link() {
    let chain = upstream::devchain().blocks(10, 1).chain();
    chain.fail(Lie::Everywhere("parentHash".to_owned(), json!(B256::repeat_byte(7)))).always();
    let program = in_memory::program(&chain, &in_memory::consistent());
    chain.set_safe(9);
    for tag in ["latest", "safe", "latest"] {
        let answer = program.ask(BLOCK_BY_NUMBER, json!([tag, false])).await;
        assert_eq!(answer["number"], hex(if tag == "safe" { 9 } else { 10 }), "{tag}");
    }
}

/// The node shows no head, as a test double with a few blocks may do.
#[tokio::test(start_paused = true)]
async fn logs_by_number_need_no_head() {
    let chain = upstream::devchain().blocks(3, 2).chain();
    chain.fail(Fault::Null).on(r#"eth_getBlockByNumber["latest"*"#).always();
    let program = in_memory::program(&chain, &Config::default());
    let logs = program.ask("eth_getLogs", json!([{ "fromBlock": "0x1", "toBlock": "0x2" }])).await;
    assert!(logs.as_array().is_some_and(|logs| !logs.is_empty()), "{logs}");
}
