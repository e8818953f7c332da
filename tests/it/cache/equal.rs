//! Every answer through the proxy equals the node's own, byte for byte.

use serde_json::{Value, json};

use crate::support::{client, proxy, upstream};

/// Every query about every block of a chain, and some about entities that do not exist.
fn questions(node: &upstream::Node) -> Vec<(&'static str, Value)> {
    let nothing = format!("0x{}", "00".repeat(32));
    let mut questions = vec![
        ("eth_blockNumber", json!([])),
        ("eth_chainId", json!([])),
        ("net_version", json!([])),
        ("web3_clientVersion", json!([])),
        ("eth_gasPrice", json!([])),
        ("eth_getBlockByHash", json!([nothing, true])),
        ("eth_getTransactionByHash", json!([nothing])),
        ("eth_getTransactionReceipt", json!([nothing])),
        ("eth_getBlockByNumber", json!(["0xffffffff", false])),
        ("eth_getTransactionByBlockNumberAndIndex", json!(["0xffffffff", "0x0"])),
        ("eth_noSuchMethod", json!([])),
        ("eth_getBalance", json!(["nonsense"])),
    ];
    for tag in ["latest", "safe", "finalized", "earliest", "pending"] {
        questions.push(("eth_getBlockByNumber", json!([tag, true])));
        questions.push(("eth_getTransactionByBlockNumberAndIndex", json!([tag, "0x0"])));
    }
    for number in 0..=node.head().number {
        let hash = node.hash_at(number).unwrap();
        let (number, hash) = (format!("{number:#x}"), format!("{hash:#x}"));
        for full in [true, false] {
            questions.push(("eth_getBlockByNumber", json!([number, full])));
            questions.push(("eth_getBlockByHash", json!([hash, full])));
        }
        questions.push(("eth_getBlockReceipts", json!([number])));
        questions.push(("eth_getBlockTransactionCountByHash", json!([hash])));
        let transactions = node.transactions_of(hash.parse().unwrap());
        for (index, transaction) in transactions.iter().enumerate() {
            let transaction = format!("{transaction:#x}");
            questions.push(("eth_getTransactionByHash", json!([transaction])));
            questions.push(("eth_getTransactionReceipt", json!([transaction])));
            questions.push(("eth_getTransactionByBlockHashAndIndex", json!([hash, format!("{index:#x}")])));
            questions
                .push(("eth_getTransactionByBlockNumberAndIndex", json!([number, format!("{index:#x}")])));
        }
        let past_the_end = format!("{:#x}", transactions.len());
        questions.push(("eth_getTransactionByBlockHashAndIndex", json!([hash, past_the_end])));
    }
    questions
}

#[tokio::test]
async fn every_answer_is_the_nodes_own_bytes() {
    let node = upstream::devchain().blocks(24, 9).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);

    let questions = questions(&node);
    assert!(questions.len() > 900, "{}", questions.len());
    for (method, params) in questions {
        let direct = node.answer(method, &params);
        let direct = direct.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
        let through = client.ask(method, params.clone()).await;
        match (direct, through) {
            (Ok(direct), Ok(through)) => assert_eq!(through, direct, "{method} {params}"),
            (Err(direct), Err(through)) => {
                let through: Value = serde_json::from_str(&through).unwrap();
                assert_eq!(through["code"], direct.code, "{method} {params}");
                assert_eq!(through["message"], direct.message.as_str(), "{method} {params}");
            }
            (direct, through) => panic!("{method} {params}: {direct:?}, but {through:?}"),
        }
    }
}

#[tokio::test]
async fn batches_and_http2_return_the_nodes_answers() {
    let node = upstream::devchain().blocks(5, 9).run().await;
    let proxy = proxy::new().upstream(&node).run().await;

    for client in [client::http(&proxy), client::http2(&proxy)] {
        let questions = questions(&node);
        let batch: Vec<_> = questions
            .iter()
            .enumerate()
            .map(|(id, (method, params))| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .collect();
        let response = client.send(json!(batch).to_string()).await;
        assert_eq!(response.status, 200);
        let replies = response.json();
        assert_eq!(replies.as_array().unwrap().len(), questions.len());
        for (id, (method, params)) in questions.into_iter().enumerate() {
            let reply = &replies[id];
            assert_eq!(reply["id"], id, "{method} {params}");
            match node.answer(method, &params) {
                Ok(direct) => {
                    let direct: Value = serde_json::from_slice(&direct).unwrap();
                    assert_eq!(reply["result"], direct, "{method} {params}");
                }
                Err(direct) => assert_eq!(reply["error"]["code"], direct.code, "{method} {params}"),
            }
        }
    }
}

#[tokio::test]
async fn the_upstream_gets_canonical_params() {
    let node = upstream::devchain().blocks(2, 2).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    let hash = format!("{:x}", node.head().hash);
    node.clear_calls();

    let odd = format!(
        r#" {{ "id" : 1.0 , "jsonrpc":"2.0","method":"eth\u005fgetTransactionByBlockHashAndIndex",
            "params" : [ "\u0030x{}" , 1 ] }} "#,
        hash.to_uppercase()
    );
    let response = client.send(odd).await;
    assert!(response.text().starts_with(r#"{"jsonrpc":"2.0","id":1.0,"result":{"#), "{}", response.text());
    let calls = node.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].method, "eth_getBlockByHash");
    assert_eq!(calls[0].params, format!(r#"["0x{hash}",true]"#));
}

#[tokio::test]
async fn chain_id_and_net_version_need_no_upstream_call() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    node.clear_calls();

    assert_eq!(
        client.ask("eth_chainId", json!([])).await.unwrap(),
        format!("\"{:#x}\"", node.config().chain_id)
    );
    assert_eq!(
        client.ask("net_version", json!([])).await.unwrap(),
        format!("\"{}\"", node.config().chain_id)
    );
    assert_eq!(node.calls_total(), 0);
    // The proxy forwards `eth_chainId` with parameters to the node, and does not answer it itself.
    let _ = client.ask("eth_chainId", json!([1])).await;
    assert_eq!(node.calls_total(), 1);
}
