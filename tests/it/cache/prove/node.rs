//! A real node's blocks and receipts, under every fork that it knows.

use holdfast::verify::Failure;
use serde_json::{Value, json};

use super::{block, block_with_hashes, receipts};
use crate::support::{
    anvil::{Anvil, SENDER},
    client::{self, Client},
    tools,
};

/// Init code that logs a word under a topic and deploys a contract of one byte.
const LOGS: &str = "0x602a600052600760206000a160016000f3";

/// Init code that reverts.
const FAILS: &str = "0x60006000fd";

const FORKS: [&str; 12] = [
    "frontier",
    "homestead",
    "byzantium",
    "petersburg",
    "istanbul",
    "berlin",
    "london",
    "paris",
    "shanghai",
    "cancun",
    "prague",
    "osaka",
];

/// The first fork under which anvil's genesis verifies.
const SHANGHAI: usize = 8;

async fn ask(node: &Client, method: &str, params: Value) -> String {
    node.ask(method, params).await.unwrap()
}

/// Mines a block with transactions of every kind that the node can send, and an empty block.
async fn make_history(node: &Client, fork: usize) {
    let since = |name: &str| FORKS.iter().position(|fork| *fork == name).is_some_and(|since| fork >= since);
    let to = format!("0x{:040x}", 0x1000);
    let mut transactions = vec![
        json!({ "to": to, "value": "0x1", "gasPrice": "0x77359400" }),
        json!({ "data": LOGS, "gas": "0x30000", "gasPrice": "0x77359400" }),
        json!({ "data": FAILS, "gas": "0x30000", "gasPrice": "0x77359400" }),
    ];
    if since("berlin") {
        let list = json!([{ "address": to, "storageKeys": [format!("0x{:064x}", 7)] }]);
        transactions
            .push(json!({ "to": to, "gasPrice": "0x77359400", "accessList": list, "gas": "0x30000" }));
    }
    if since("london") {
        let fees = ("0x77359400", "0x3b9aca00");
        transactions.push(
            json!({ "to": to, "maxFeePerGas": fees.0, "maxPriorityFeePerGas": fees.1, "data": "0x01" }),
        );
        transactions.push(json!({ "data": LOGS, "maxFeePerGas": fees.0, "maxPriorityFeePerGas": "0x1" }));
    }
    ask(node, "evm_setAutomine", json!([false])).await;
    for mut transaction in transactions {
        transaction["from"] = json!(SENDER);
        ask(node, "eth_sendTransaction", json!([transaction])).await;
    }
    ask(node, "evm_mine", json!([])).await;
    ask(node, "evm_mine", json!([])).await;
}

/// Proves a block in both forms and its receipts. Returns the number of receipts.
async fn verdict(node: &Client, number: u64) -> Result<usize, Failure> {
    let number = format!("{number:#x}");
    let full = ask(node, "eth_getBlockByNumber", json!([number, true])).await;
    let with_hashes = ask(node, "eth_getBlockByNumber", json!([number, false])).await;
    let all = ask(node, "eth_getBlockReceipts", json!([number])).await;
    let proved = block(full.as_bytes())?;
    block_with_hashes(with_hashes.as_bytes())?;
    receipts(all.as_bytes(), &proved).map(|receipts| receipts.len())
}

#[tokio::test]
async fn a_real_nodes_blocks_are_proved_under_every_fork() {
    let Some(binary) = tools::anvil("a_real_nodes_blocks_are_proved_under_every_fork") else { return };
    for (at, fork) in FORKS.into_iter().enumerate() {
        let node = Anvil::start(binary.clone(), &["--hardfork", fork]).await;
        let node = client::at(node.url());
        make_history(&node, at).await;
        // Under early forks the first block has three transactions; later forks allow more kinds.
        assert!(verdict(&node, 1).await.unwrap_or_else(|failure| panic!("{fork}: {failure}")) >= 3);
        assert_eq!(verdict(&node, 2).await, Ok(0), "{fork}");
        // Anvil's genesis has Cancun members under every fork. Before Shanghai, it lacks members that must come before
        // them.
        match verdict(&node, 0).await {
            Ok(receipts) => assert_eq!((receipts, at >= SHANGHAI), (0, true), "{fork}"),
            Err(failure) => {
                assert!(at < SHANGHAI, "{fork}: {failure}");
                assert!(matches!(failure, Failure::Missing { .. }), "{failure}");
            }
        }
    }
}
