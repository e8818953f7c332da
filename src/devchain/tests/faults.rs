//! Every fault and lie.

use super::{
    super::{Fault, Lie},
    *,
};
use alloy_consensus::proofs::calculate_transaction_root;
use std::time::Duration;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// Returns a chain of three blocks with a few transactions each.
fn node() -> DevChain {
    let chain = chain();
    chain.mine_many(3, 4);
    chain
}

async fn ask_head(chain: &DevChain) -> NodeResponse {
    chain.serve(request(1, "eth_blockNumber", ())).await
}

fn truthful(served: &NodeResponse) -> bool {
    let truth = r#"{"jsonrpc":"2.0","id":1,"result":"0x3"}"#;
    matches!(served, NodeResponse::Reply { status: 200, body, drip: None, .. } if body == truth)
}

#[tokio::test(start_paused = true)]
async fn fault_applies_to_its_methods_as_often_as_set() {
    let chain = node();
    chain.fail(Fault::Hang).on("eth_block*").times(2);
    assert!(!matches!(chain.serve(request(1, "eth_chainId", ())).await, NodeResponse::Hang));
    assert_eq!(ask_head(&chain).await, NodeResponse::Hang);
    assert_eq!(ask_head(&chain).await, NodeResponse::Hang);
    assert!(truthful(&ask_head(&chain).await));
    chain.fail(Fault::Hang).any().always();
    for _ in 0..5 {
        assert_eq!(ask_head(&chain).await, NodeResponse::Hang);
    }
    chain.clear_faults();
    assert!(truthful(&ask_head(&chain).await));
    assert_eq!(chain.count("eth_blockNumber"), 9, "faults are recorded like any call");
}

#[tokio::test(start_paused = true)]
async fn delayed_answer_is_old_and_queued_answer_is_fresh() {
    let chain = node();
    for (fault, number) in [(Fault::Delay(SECOND), "0x3"), (Fault::Queue(SECOND), "0x5")] {
        chain.fail(fault).once();
        let start = Instant::now();
        let asker = {
            let chain = chain.clone();
            tokio::spawn(async move { post(&chain, "eth_blockNumber", ()).await })
        };
        tokio::time::sleep(SECOND / 2).await;
        chain.mine(0);
        assert_eq!(asker.await.unwrap()["result"], number);
        assert_eq!(start.elapsed(), SECOND);
    }
}

#[tokio::test]
async fn fault_decides_whether_a_sent_transaction_arrives() {
    use alloy_eips::eip2718::Encodable2718;
    for (fault, arrives) in [
        (Fault::Status(502), false),
        (Fault::Reset, false),
        (Fault::Error { code: -32000, message: String::from("busy") }, false),
        (Fault::ResetMidBody, true),
        (Fault::Garbage, true),
        (Fault::Null, true),
    ] {
        let chain = node();
        chain.fail(fault.clone()).once();
        let tx = chain.generate(1).remove(0);
        chain
            .serve(request(1, "eth_sendRawTransaction", [alloy_primitives::Bytes::from(tx.encoded_2718())]))
            .await;
        assert_eq!(chain.mempool().len(), usize::from(arrives), "{fault:?}");
    }
}

#[tokio::test]
async fn content_faults_hit_entries_and_transport_faults_batches() {
    let chain = node();
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"},
        {"jsonrpc":"2.0","id":"b","method":"eth_chainId"}]"#;
    let replies = async || match chain.serve(batch.into()).await {
        NodeResponse::Reply { status: 200, body, .. } => parse::<Vec<Value>>(&body),
        other => panic!("{other:?}"),
    };
    chain
        .fail(Fault::Error { code: -32005, message: String::from("limit exceeded") })
        .on("eth_chainId")
        .once();
    let got = replies().await;
    assert_eq!(got[0]["result"], "0x3");
    assert_eq!(got[1]["error"], json!({ "code": -32005, "message": "limit exceeded" }));

    chain.fail(Fault::Null).on("eth_blockNumber").once();
    chain.fail(Fault::WrongId).on("eth_chainId").once();
    let got = replies().await;
    assert_eq!(got[0], json!({ "jsonrpc": "2.0", "id": 1, "result": null }));
    assert_ne!(got[1]["id"], "b");
    assert_eq!(got[1]["result"], "0x6fdd2d");

    chain.fail(Fault::Status(500)).on("eth_chainId").once();
    assert!(matches!(chain.serve(batch.into()).await, NodeResponse::Reply { status: 500, .. }));
    assert_eq!(replies().await.len(), 2);
}

/// Returns the answer to a call while the node lies once, and the true answer.
async fn lied(chain: &DevChain, lie: Lie, method: &str, params: impl Serialize + Clone) -> (Value, Value) {
    chain.fail(lie).on(method).once();
    let told = post(chain, method, params.clone()).await["result"].clone();
    let truth = ask(chain, method, params);
    assert_ne!(told, truth, "{method}");
    (told, truth)
}

#[tokio::test]
async fn wrong_hash_answers_with_other_true_content() {
    let chain = node();
    let (hash, below) = (chain.hash_at(2).unwrap(), chain.hash_at(1).unwrap());
    for full in [true, false] {
        let (told, _) = lied(&chain, Lie::WrongHash, "eth_getBlockByHash", (hash, full)).await;
        assert_eq!(told, parse::<Value>(&chain.block_json(below, full).unwrap()));
    }
    let (told, _) = lied(&chain, Lie::WrongHash, "eth_getBlockByNumber", ("0x0", true)).await;
    assert_eq!(told["number"], "0x1");
    let tx = chain.transactions_of(hash)[3];
    let (told, _) = lied(&chain, Lie::WrongHash, "eth_getTransactionByHash", [tx]).await;
    assert_eq!(told, parse::<Value>(&chain.transaction_json(hash, 0).unwrap()));
    let (told, _) = lied(&chain, Lie::WrongHash, "eth_getBlockReceipts", [hash]).await;
    assert_eq!(told, parse::<Value>(&chain.receipts_json(below).unwrap()));
}

#[tokio::test]
async fn receipts_can_be_of_another_transaction_or_an_orphan() {
    let chain = node();
    let orphan = chain.head().hash;
    let tx = chain.transactions_of(orphan)[1];
    let (told, _) = lied(&chain, Lie::OtherReceipt, "eth_getTransactionReceipt", [tx]).await;
    assert_eq!(told, parse::<Value>(&chain.receipt_json(orphan, 2).unwrap()));
    let (told, truth) = lied(&chain, Lie::OtherReceipt, "eth_getBlockReceipts", ["latest"]).await;
    assert_ne!(told[0], truth[0]);
    assert_eq!(told[1], truth[1]);

    let (told, _) = lied(&chain, Lie::OrphanedReceipt, "eth_getTransactionReceipt", [tx]).await;
    assert_ne!(told["transactionHash"], json!(tx), "there is no orphan yet");
    chain.reorg(1, 1);
    let (told, truth) = lied(&chain, Lie::OrphanedReceipt, "eth_getTransactionReceipt", [tx]).await;
    assert_eq!(told["transactionHash"], truth["transactionHash"]);
    assert_eq!(told["blockHash"], json!(orphan));
    let (told, _) = lied(&chain, Lie::OrphanedReceipt, "eth_getBlockReceipts", ["latest"]).await;
    assert_eq!(told, parse::<Value>(&chain.receipts_json(orphan).unwrap()));
}

#[tokio::test]
async fn foreign_block_is_valid_but_not_of_this_chain() {
    let chain = node();
    for number in ["0x0", "0x1", "latest"] {
        let (told, truth) = lied(&chain, Lie::ForeignBlock, "eth_getBlockByNumber", (number, true)).await;
        assert_eq!(told["number"], truth["number"]);
        let block: Block = serde_json::from_value(told).unwrap();
        assert_eq!(block.header.inner.hash_slow(), block.header.hash);
        let txs = block.transactions.as_transactions().unwrap().iter().map(|tx| tx.inner.inner());
        assert_eq!(block.header.transactions_root, calculate_transaction_root(&txs.collect::<Vec<_>>()));
        assert!(chain.block_json(block.header.hash, true).is_none());
    }
    lied(&chain, Lie::ForeignBlock, "eth_getBlockReceipts", ["latest"]).await;
}

#[tokio::test]
async fn absent_content_is_answered_truthfully() {
    let chain = node();
    for lie in
        [Lie::WrongHash, Lie::EmptiedTransactions, Lie::OtherReceipt, Lie::OrphanedReceipt, Lie::ForeignBlock]
    {
        chain.fail(lie.clone()).times(2);
        let absent = post(&chain, "eth_getBlockByNumber", ("0x9", true)).await;
        assert_eq!(absent["result"], Value::Null, "{lie:?}");
        assert_eq!(post(&chain, "eth_getBlockByNumber", ()).await["error"]["code"], -32602);
    }
}

#[tokio::test]
async fn misplaced_answer_names_an_orphan_or_no_block() {
    let chain = node();
    let orphan = chain.head().hash;
    let tx = chain.transactions_of(orphan)[0];
    chain.reorg(1, 2);
    let (block, _) = chain.location(tx).unwrap();
    for method in ["eth_getTransactionByHash", "eth_getTransactionReceipt"] {
        let truth = ask(&chain, method, [tx]);
        chain.fail(Lie::Misplaced { orphan: true }).once();
        let mut told = post(&chain, method, [tx]).await["result"].take();
        assert_eq!(told["blockHash"], format!("{orphan:#x}"));
        assert_eq!(told["blockNumber"], truth["blockNumber"]);
        chain.fail(Lie::Misplaced { orphan: false }).once();
        told = post(&chain, method, [tx]).await["result"].take();
        let hash: B256 = serde_json::from_value(told["blockHash"].clone()).unwrap();
        assert_eq!(chain.block_json(hash, false), None, "no block has this hash");
        assert_ne!(hash, block);
    }
    assert_eq!(chain.lies_total(), 4);
    chain.fail(Lie::Misplaced { orphan: true }).once();
    assert_eq!(
        post(&chain, "eth_blockNumber", ()).await["result"],
        "0x4",
        "only single answers are misplaced"
    );
    assert_eq!(chain.lies_total(), 4);
}

/// Returns the whole range of the chain as a filter, with these other members.
fn over_all(mut filter: Value) -> [Value; 1] {
    filter["fromBlock"] = json!("0x1");
    filter["toBlock"] = json!("latest");
    [filter]
}

#[tokio::test]
async fn one_log_can_be_missing_and_logs_shuffled() {
    let chain = chain();
    chain.mine_many(3, 12);
    for choice in [0, 1, u64::MAX] {
        let (told, truth) = lied(&chain, Lie::MissingLog(choice), "eth_getLogs", over_all(json!({}))).await;
        let (told, truth) = (told.as_array().unwrap(), truth.as_array().unwrap());
        assert_eq!(told.len() + 1, truth.len());
        let mut rest = truth.iter();
        assert!(told.iter().all(|log| rest.any(|other| other == log)), "the order stays");

        let (told, _) = lied(&chain, Lie::ShuffledLogs(choice), "eth_getLogs", over_all(json!({}))).await;
        let told = told.as_array().unwrap();
        assert_eq!(told.len(), truth.len());
        assert!(truth.iter().all(|log| told.contains(log)));
    }
}

#[tokio::test]
async fn added_log_matches_and_fits_into_the_order() {
    let chain = chain();
    chain.mine_many(4, 12);
    chain.reorg(2, 2);
    let all = ask(&chain, "eth_getLogs", over_all(json!({})));
    let address = &all[0]["address"];
    let filter = [json!({ "fromBlock": "0x2", "toBlock": "0x3", "address": address })];
    let number = |log: &Value, name: &str| {
        u64::from_str_radix(log[name].as_str().unwrap().strip_prefix("0x").unwrap(), 16).unwrap()
    };
    let (mut orphaned, mut moved) = (0, 0);
    for choice in 0..40 {
        for altered in [false, true] {
            let lie = Lie::AddedLog { choice, altered };
            let (told, truth) = lied(&chain, lie, "eth_getLogs", filter.clone()).await;
            let (told, truth) = (told.as_array().unwrap(), truth.as_array().unwrap());
            let added: Vec<_> = told.iter().filter(|log| !truth.contains(log)).collect();
            let [added] = added[..] else { panic!("{} logs were added", added.len()) };
            assert_eq!(told.len(), truth.len() + 1);
            assert!(told.is_sorted_by_key(|log| (number(log, "blockNumber"), number(log, "logIndex"))));
            assert!((2..=3).contains(&number(added, "blockNumber")) && added["address"] == *address);
            let hash = serde_json::from_value(added["blockHash"].clone()).unwrap();
            if chain.is_canonical(hash) {
                moved += 1;
            } else {
                orphaned += 1;
            }
        }
    }
    assert!(orphaned > 0 && moved > 0, "{orphaned} {moved}");
    // The only copy with the original data is that of an original.
    let data = |log: &Value| (log["topics"].clone(), log["data"].clone());
    let (copied, _) =
        lied(&chain, Lie::AddedLog { choice: 0, altered: false }, "eth_getLogs", filter.clone()).await;
    let (altered, truth) =
        lied(&chain, Lie::AddedLog { choice: 0, altered: true }, "eth_getLogs", filter).await;
    let added = |told: &Value| {
        let truth = truth.as_array().unwrap();
        told.as_array().unwrap().iter().find(|log| !truth.contains(log)).map(data).unwrap()
    };
    let (copied, altered) = (added(&copied), added(&altered));
    assert!(copied.0 == altered.0 && copied.1 != altered.1);
}

#[tokio::test]
async fn lagging_logs_lack_the_newest_blocks_without_an_error() {
    let chain = chain();
    chain.mine_many(4, 12);
    let upto = |number: &str| [json!({ "fromBlock": "0x1", "toBlock": number })];
    let (told, _) = lied(&chain, Lie::LaggingLogs(2), "eth_getLogs", upto("0x4")).await;
    assert_eq!(told, ask(&chain, "eth_getLogs", upto("0x2")));
    let (told, _) = lied(&chain, Lie::LaggingLogs(1), "eth_getLogs", upto("latest")).await;
    assert_eq!(told, ask(&chain, "eth_getLogs", upto("0x3")));
    let head = json!({ "blockHash": chain.head().hash });
    let (told, _) = lied(&chain, Lie::LaggingLogs(1), "eth_getLogs", [head]).await;
    assert_eq!(told, json!([]));
    assert_eq!(ask(&chain, "eth_blockNumber", ()), "0x4", "the node itself does not lag");
}

#[tokio::test]
async fn lies_about_logs_change_no_other_answer() {
    let chain = node();
    let filter = ask(&chain, "eth_newFilter", over_all(json!({})));
    let added = Lie::AddedLog { choice: 0, altered: true };
    for lie in [Lie::MissingLog(0), added, Lie::ShuffledLogs(0), Lie::LaggingLogs(1)] {
        chain.fail(lie).once();
        let told = post(&chain, "eth_getFilterLogs", [&filter]).await;
        assert_eq!(told["result"], ask(&chain, "eth_getFilterLogs", [&filter]));
    }
    assert_eq!(chain.lies_total(), 0);
    let (told, _) =
        lied(&chain, Lie::WrongHash, "eth_getLogs", [json!({ "blockHash": chain.hash_at(2) })]).await;
    assert_eq!(told, ask(&chain, "eth_getLogs", [json!({ "blockHash": chain.hash_at(1) })]));
}
