//! Blocks, transactions and receipts, and refused calls.

use super::*;

#[test]
fn blocks_transactions_and_receipts_agree_across_methods() {
    let chain = chain();
    chain.mine_many(2, 8);
    let head = chain.head();
    let block = ask(&chain, "eth_getBlockByHash", (head.hash, true));
    for id in ["0x2", "latest"] {
        assert_eq!(ask(&chain, "eth_getBlockByNumber", (id, true)), block);
    }
    let receipts = ask(&chain, "eth_getBlockReceipts", ["latest"]);
    for id in
        [json!("0x2"), json!(head.hash), json!({ "blockHash": head.hash }), json!({ "blockNumber": "0x2" })]
    {
        assert_eq!(ask(&chain, "eth_getBlockReceipts", [id]), receipts);
    }
    for (index, hash) in chain.transactions_of(head.hash).into_iter().enumerate() {
        let at = format!("{index:#x}");
        let tx = &block["transactions"][index];
        assert_eq!(ask(&chain, "eth_getTransactionByHash", [hash]), *tx);
        assert_eq!(ask(&chain, "eth_getTransactionByBlockHashAndIndex", (head.hash, &at)), *tx);
        assert_eq!(ask(&chain, "eth_getTransactionByBlockNumberAndIndex", ("0x2", &at)), *tx);
        assert_eq!(ask(&chain, "eth_getTransactionReceipt", [hash]), receipts[index]);
    }
    assert_eq!(ask(&chain, "eth_getBlockTransactionCountByHash", [head.hash]), "0x8");
    assert_eq!(ask(&chain, "eth_getBlockTransactionCountByNumber", ["earliest"]), "0x0");
    assert_eq!(ask(&chain, "eth_getUncleCountByBlockHash", [head.hash]), "0x0");
    assert_eq!(ask(&chain, "eth_getUncleCountByBlockNumber", ["latest"]), "0x0");
    assert_eq!(ask(&chain, "eth_chainId", ()), "0x6fdd2d");
    assert_eq!(ask(&chain, "net_version", ()), "7331117");
    assert!(ask(&chain, "web3_clientVersion", ()).as_str().unwrap().starts_with("holdfast-devchain/"));
    assert_eq!(ask(&chain, "eth_syncing", ()), false);
    assert_eq!(ask(&chain, "eth_accounts", ()), json!([]));
}

#[test]
fn absent_content_is_null() {
    let chain = chain();
    chain.mine(1);
    let nowhere = B256::repeat_byte(7);
    for (method, params) in [
        ("eth_getBlockByHash", json!([nowhere, true])),
        ("eth_getBlockByNumber", json!(["0x9", true])),
        ("eth_getBlockReceipts", json!(["0x9"])),
        ("eth_getTransactionByHash", json!([nowhere])),
        ("eth_getTransactionReceipt", json!([nowhere])),
        ("eth_getTransactionByBlockHashAndIndex", json!([nowhere, "0x0"])),
        ("eth_getTransactionByBlockNumberAndIndex", json!(["0x1", "0x1"])),
        ("eth_getTransactionByBlockNumberAndIndex", json!(["0x1", "0xffffffffffffffff"])),
        ("eth_getBlockTransactionCountByHash", json!([nowhere])),
        ("eth_getUncleCountByBlockNumber", json!(["0x9"])),
    ] {
        assert_eq!(ask(&chain, method, params), Value::Null, "{method}");
    }
    assert_eq!(error_code(&chain, "eth_getBalance", (chain.accounts()[0].address(), "0x9")), -32000);
}

#[test]
fn bad_arguments_are_refused() {
    let chain = chain();
    let hash = chain.head().hash;
    for (method, params) in [
        ("eth_getBlockByNumber", json!([])),
        ("eth_getBlockByNumber", json!(["latest"])),
        ("eth_getBlockByNumber", json!(["latest", null])),
        ("eth_getBlockByNumber", json!(["latest", "true"])),
        ("eth_getBlockByNumber", json!(["latest", true, 1])),
        ("eth_getBlockByNumber", json!([1, true])),
        ("eth_getBlockByNumber", json!(["1", true])),
        ("eth_getBlockByNumber", json!(["0x", true])),
        ("eth_getBlockByNumber", json!(["0x01", true])),
        ("eth_getBlockByNumber", json!(["0x+1", true])),
        ("eth_getBlockByNumber", json!(["0xg", true])),
        ("eth_getBlockByNumber", json!(["0xffffffffffffffff", true])),
        ("eth_getBlockByNumber", json!(["0x10000000000000000", true])),
        ("eth_getBlockByNumber", json!(["newest", true])),
        ("eth_getBlockByNumber", json!([hash, true])),
        ("eth_getBlockByNumber", json!({ "number": "latest" })),
        ("eth_getBlockByNumber", json!("latest")),
        ("eth_getBlockByHash", json!(["0x12", true])),
        ("eth_getBlockByHash", json!(["latest", true])),
        ("eth_getBlockReceipts", json!([{}])),
        ("eth_getBlockReceipts", json!([{ "blockHash": hash, "blockNumber": "0x0" }])),
        ("eth_getBlockReceipts", json!([{ "blockHash": 3 }])),
        ("eth_getTransactionByHash", json!([null])),
        ("eth_getTransactionByBlockHashAndIndex", json!([hash, 0])),
        ("eth_getTransactionByBlockHashAndIndex", json!([hash, "0x00"])),
        ("eth_blockNumber", json!([1])),
        ("eth_getBalance", json!(["0x12"])),
        ("eth_sendRawTransaction", json!(["zz"])),
        ("eth_sendRawTransaction", json!(["0x"])),
        ("eth_sendRawTransaction", json!(["0x02c0"])),
        ("eth_feeHistory", json!(["0x2", "latest", "fast"])),
    ] {
        assert_eq!(error_code(&chain, method, &params), -32602, "{method} {params}");
    }
    let error = chain.answer("eth_getWeather", ()).unwrap_err();
    assert_eq!(error.code, -32601);
    assert_eq!(error.message, "the method eth_getWeather does not exist/is not available");
}

#[test]
fn filter_returns_changes_since_the_last_poll() {
    let chain = chain();
    chain.mine_many(2, 1);
    let (blocks, logs) = (ask(&chain, "eth_newBlockFilter", ()), ask(&chain, "eth_newFilter", [json!({})]));
    assert_eq!((&blocks, &logs), (&json!("0x1"), &json!("0x2")));
    chain.mine_many(2, 1);
    let new = json!([chain.hash_at(3), chain.hash_at(4)]);
    assert_eq!(ask(&chain, "eth_getFilterChanges", [&blocks]), new);
    assert_eq!(ask(&chain, "eth_getFilterChanges", [&blocks]), json!([]));
    chain.reorg(1, 2);
    let new = json!([chain.hash_at(4), chain.hash_at(5)]);
    assert_eq!(ask(&chain, "eth_getFilterChanges", [&blocks]), new);
    assert_eq!(ask(&chain, "eth_getFilterLogs", [&logs]), ask(&chain, "eth_getLogs", [json!({})]));
    assert_eq!(ask(&chain, "eth_uninstallFilter", [&blocks]), true);
    assert_eq!(ask(&chain, "eth_uninstallFilter", [&blocks]), false);
    for id in ["0x1", "0x9", "x"] {
        let error = chain.answer("eth_getFilterChanges", [id]).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (-32000, "filter not found"));
    }
}

#[test]
fn counts_above_the_head_are_null_or_an_error() {
    for (range_errors, code) in [(false, None), (true, Some(-32602))] {
        let chain = DevChain::new(Config { range_errors, ..Config::default() });
        chain.mine(1);
        for method in ["eth_getBlockTransactionCountByNumber", "eth_getUncleCountByBlockNumber"] {
            let answer = chain.answer(method, ["0x2"]);
            assert_eq!(answer.as_ref().err().map(|error| error.code), code);
            assert!(code.is_some() || answer.unwrap() == "null");
            assert!(chain.answer(method, ["0x1"]).is_ok());
        }
        assert_eq!(
            ask(&chain, "eth_getBlockByNumber", ("0x2", true)),
            Value::Null,
            "anvil has no error for blocks"
        );
    }
}

/// Returns the logs in the receipts of a block.
fn logs_of(chain: &DevChain, number: u64) -> Vec<Value> {
    let receipts = ask(chain, "eth_getBlockReceipts", [format!("{number:#x}")]);
    let receipts = receipts.as_array().unwrap().iter();
    receipts.flat_map(|receipt| receipt["logs"].as_array().unwrap().clone()).collect()
}

#[test]
fn logs_equal_those_of_the_receipts() {
    let chain = chain();
    chain.mine_many(6, 12);
    let all: Vec<_> = (0..=6).flat_map(|number| logs_of(&chain, number)).collect();
    let some =
        all.iter().find(|log| log["topics"].as_array().unwrap().len() > 1).expect("a log with two topics");
    let range = |filter: Value| {
        let mut filter = filter;
        filter["fromBlock"] = json!("earliest");
        ask(&chain, "eth_getLogs", [filter])
    };
    let chosen = |is_chosen: &dyn Fn(&Value) -> bool| -> Value {
        all.iter().filter(|log| is_chosen(log)).cloned().collect()
    };
    assert_eq!(range(json!({})), json!(all));
    let address = &some["address"];
    assert_eq!(range(json!({ "address": address })), chosen(&|log| log["address"] == *address));
    let topic = &some["topics"][1];
    assert_eq!(range(json!({ "topics": [null, [topic]] })), chosen(&|log| log["topics"][1] == *topic));
    assert_eq!(range(json!({ "topics": [topic] })), json!([]));

    assert_eq!(ask(&chain, "eth_getLogs", [json!({})]), json!(logs_of(&chain, 6)));
    let hash = chain.hash_at(3);
    assert_eq!(ask(&chain, "eth_getLogs", [json!({ "blockHash": hash })]), json!(logs_of(&chain, 3)));
    let bounds = json!({ "fromBlock": "0x6", "toBlock": "0x99" });
    assert_eq!(ask(&chain, "eth_getLogs", [bounds]), json!(logs_of(&chain, 6)));
    for (filter, code) in [
        (json!({ "fromBlock": "0x3", "toBlock": "0x2" }), -32602),
        (json!({ "blockHash": B256::repeat_byte(7) }), -32000),
        (json!({ "fromBlock": "pending" }), -32000),
        (json!({ "address": "0x12" }), -32602),
    ] {
        assert_eq!(error_code(&chain, "eth_getLogs", [&filter]), code, "{filter}");
    }
}

#[test]
fn log_filter_reports_removed_and_new_logs() {
    let chain = chain();
    chain.mine_many(2, 12);
    let filter = ask(&chain, "eth_newFilter", [json!({})]);
    chain.mine(12);
    let seen = logs_of(&chain, 3);
    assert!(!seen.is_empty());
    assert_eq!(ask(&chain, "eth_getFilterChanges", [&filter]), json!(seen));
    assert_eq!(ask(&chain, "eth_getFilterChanges", [&filter]), json!([]));
    chain.reorg(1, 1);
    let removed = seen.into_iter().map(|mut log| {
        log["removed"] = json!(true);
        log
    });
    let changes: Vec<_> = removed.chain(logs_of(&chain, 3)).collect();
    assert_eq!(ask(&chain, "eth_getFilterChanges", [&filter]), json!(changes));
}
