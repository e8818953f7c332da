//! Against a real node: every answer through the proxy equals the direct one.

use serde_json::{Value, json};

use crate::support::{
    anvil::Anvil,
    client::{self, Client},
    proxy, tools,
};

/// Anvil's first account is unlocked.
const SENDER: &str = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";

async fn value(client: &Client, method: &str, params: Value) -> Value {
    serde_json::from_str(&client.ask(method, params).await.unwrap()).unwrap()
}

/// Transfers, a contract creation, and a few empty blocks.
async fn make_history(node: &Client) {
    for count in 0..5 {
        let transfer =
            json!([{ "from": SENDER, "to": format!("0x{:040x}", 0x1000 + count), "value": "0x1" }]);
        value(node, "eth_sendTransaction", transfer).await;
    }
    // Creates a contract of one byte: PUSH1 1 PUSH1 0 RETURN.
    value(
        node,
        "eth_sendTransaction",
        json!([{ "from": SENDER, "data": "0x60016000f3", "gas": "0x100000" }]),
    )
    .await;
    value(node, "anvil_mine", json!(["0x5"])).await;
}

async fn questions(node: &Client) -> Vec<(&'static str, Value)> {
    let mut questions = vec![
        ("eth_chainId", json!([])),
        ("net_version", json!([])),
        ("web3_clientVersion", json!([])),
        ("eth_blockNumber", json!([])),
        ("eth_getBalance", json!([SENDER, "latest"])),
        ("eth_getTransactionCount", json!([SENDER, "latest"])),
        ("eth_gasPrice", json!([])),
        ("eth_feeHistory", json!(["0x4", "latest", [10, 50]])),
        ("eth_getLogs", json!([{ "fromBlock": "0x0", "toBlock": "latest" }])),
        ("eth_call", json!([{ "to": SENDER, "data": "0x" }, "latest"])),
        ("eth_noSuchMethod", json!([])),
        ("eth_getBalance", json!(["nonsense"])),
    ];
    for tag in ["latest", "safe", "finalized", "earliest"] {
        questions.push(("eth_getBlockByNumber", json!([tag, false])));
        questions.push(("eth_getTransactionByBlockNumberAndIndex", json!([tag, "0x0"])));
    }
    let head = value(node, "eth_blockNumber", json!([])).await;
    let head = u64::from_str_radix(head.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
    for number in 0..=head + 1 {
        let number = format!("{number:#x}");
        let block = value(node, "eth_getBlockByNumber", json!([number, false])).await;
        for full in [true, false] {
            questions.push(("eth_getBlockByNumber", json!([number, full])));
            if let Some(hash) = block["hash"].as_str() {
                questions.push(("eth_getBlockByHash", json!([hash, full])));
                questions.push(("eth_getTransactionByBlockHashAndIndex", json!([hash, "0x0"])));
                questions.push(("eth_getTransactionByBlockHashAndIndex", json!([hash, "0x63"])));
            }
        }
        questions.push(("eth_getTransactionByBlockNumberAndIndex", json!([number, "0x0"])));
        questions.push(("eth_getBlockReceipts", json!([number])));
        for transaction in block["transactions"].as_array().into_iter().flatten() {
            questions.push(("eth_getTransactionByHash", json!([transaction])));
            questions.push(("eth_getTransactionReceipt", json!([transaction])));
        }
    }
    questions
}

#[tokio::test]
async fn a_real_nodes_answers_come_through_byte_for_byte() {
    let Some(binary) = tools::anvil("a_real_nodes_answers_come_through_byte_for_byte") else { return };
    for arguments in [&[][..], &["--chain-id", "4242"], &["--hardfork", "london"]] {
        let node = Anvil::start(binary.clone(), arguments).await;
        let proxy = proxy::new().upstream_url(node.url()).run().await;
        let (direct, through) = (client::at(node.url()), client::http(&proxy));
        make_history(&direct).await;

        let questions = questions(&direct).await;
        assert!(questions.len() > 100, "{}", questions.len());
        for (method, params) in questions {
            let expected = direct.ask(method, params.clone()).await;
            assert_eq!(
                through.ask(method, params.clone()).await,
                expected,
                "{method} {params} {arguments:?}"
            );
        }
    }
}
