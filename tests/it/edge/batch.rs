//! Batches: order, limits, concurrency, and errors of single entries.

use std::time::Duration;

use holdfast::devchain::Fault;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{client, proxy, upstream};

fn call(id: usize, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

#[tokio::test]
async fn batch_is_answered_in_order_with_any_ids() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    node.fail(Fault::Delay(Duration::from_millis(200))).on("eth_gasPrice").once();

    let ids = ["7", "7", "null", "1.0", "1e3", "1180591620717411303424", r#""\u0061""#, r#""""#, "-0"];
    let entries = ids.iter().enumerate().map(|(at, id)| {
        let method = if at == 0 { "eth_gasPrice" } else { "eth_chainId" };
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":[]}}"#)
    });
    let answer = client.send(format!("[{}]", entries.collect::<Vec<_>>().join(", "))).await;
    assert_eq!(answer.status, 200);
    let expected: Vec<_> = ids.iter().map(|id| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#)).collect();
    let mut rest = answer.text();
    for start in expected {
        let at = rest.find(&start).unwrap_or_else(|| panic!("no {start} in {rest}"));
        rest = &rest[at + start.len()..];
    }
    assert_eq!(answer.json().as_array().unwrap().len(), ids.len());
}

#[tokio::test]
async fn bad_entry_does_not_affect_the_others() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    node.fail(Fault::Garbage).on("eth_gasPrice").once();

    let batch = json!([
        call(0, "eth_chainId", json!([])),
        "nonsense",
        call(1, "eth_gasPrice", json!([])),
        { "jsonrpc": "1.0", "id": 2, "method": "eth_chainId" },
        { "jsonrpc": "2.0", "method": "eth_chainId" },
        call(3, "eth_getBlockByHash", json!(["0x0", true])),
        call(4, "debug_setHead", json!([])),
        [],
        call(5, "eth_blockNumber", json!([])),
    ]);
    let answer = client.send(batch.to_string()).await;
    assert_eq!(answer.status, 200);
    let answers = answer.json();
    let ids: Vec<_> = answers.as_array().unwrap().iter().map(|answer| answer["id"].as_u64()).collect();
    assert_eq!(ids, [Some(0), None, Some(1), Some(2), Some(3), Some(4), None, Some(5)]);
    let codes: Vec<_> =
        answers.as_array().unwrap().iter().map(|answer| answer["error"]["code"].as_i64()).collect();
    let spoilt = [-32600, -32010, -32600, -32602, -32601, -32600].map(Some);
    assert_eq!(codes[1..7], spoilt);
    assert_eq!((codes[0], codes[7]), (None, None));
}

#[tokio::test]
async fn empty_and_oversized_batches_are_refused() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).config(|config| config.http.max_batch = 3).run().await;
    let client = client::http(&proxy);
    let batch = |entries| format!("[{}]", vec![client::call("eth_chainId"); entries].join(","));

    assert_eq!(client.send(batch(3)).await.json().as_array().unwrap().len(), 3);
    for (entries, status) in [(0, StatusCode::OK), (4, StatusCode::PAYLOAD_TOO_LARGE)] {
        let answer = client.send(batch(entries)).await;
        assert_eq!((answer.status, answer.code()), (status, Some(-32600)));
        assert_eq!(answer.json()["id"], Value::Null);
    }
}

#[tokio::test]
async fn answers_over_the_batch_limit_become_errors() {
    let node = upstream::devchain().blocks(1, 20).run().await;
    let size = node.answer("eth_getBlockByNumber", json!(["latest", true])).unwrap().len() as u64;
    let room = bytesize::ByteSize::b(size * 5 / 2);
    let proxy = proxy::new().upstream(&node).config(|config| config.http.max_batch_answer = room).run().await;
    let client = client::http(&proxy);

    let batch: Vec<_> = (0..4).map(|id| call(id, "eth_getBlockByNumber", json!(["latest", true]))).collect();
    let answers = client.send(json!(batch).to_string()).await.json();
    assert!((0..4).all(|id| answers[id]["id"] == id));
    assert!((0..2).all(|id| answers[id]["result"].is_object()));
    for id in 2..4 {
        assert_eq!(answers[id]["error"]["code"], -32600);
        assert!(answers[id]["error"]["message"].as_str().unwrap().contains(&room.as_u64().to_string()));
    }
}

#[tokio::test]
async fn batch_entries_run_concurrently() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    let delay = Duration::from_millis(400);
    node.fail(Fault::Delay(delay)).on("eth_gasPrice").always();

    let batch: Vec<_> = (0..20).map(|id| call(id, "eth_gasPrice", json!([]))).collect();
    let begun = Instant::now();
    let answers = client.send(json!(batch).to_string()).await.json();
    assert!((0..20).all(|id| answers[id]["result"].is_string()));
    assert!(begun.elapsed() < delay * 10, "{:?}", begun.elapsed());
    assert!(node.most_at_once() > 4, "{} at once", node.most_at_once());
}

#[tokio::test]
async fn batch_concurrency_is_limited() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).config(|config| config.http.batch_concurrency = 3).run().await;
    let client = client::http(&proxy);
    node.fail(Fault::Delay(Duration::from_millis(100))).on("eth_gasPrice").always();
    node.clear_calls();

    let batch: Vec<_> = (0..12).map(|id| call(id, "eth_gasPrice", json!([]))).collect();
    let answers = client.send(json!(batch).to_string()).await.json();
    assert!((0..12).all(|id| answers[id]["result"].is_string()));
    assert!((2..=3).contains(&node.most_at_once()), "{} at once", node.most_at_once());
}

#[tokio::test]
async fn batch_reads_its_own_writes() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    let (raw, hash) = node.sendable(1).remove(0);
    node.fail(Fault::Queue(Duration::from_millis(200))).on("eth_sendRawTransaction").once();

    let batch = json!([
        call(0, "eth_getTransactionByHash", json!([hash])),
        call(1, "eth_sendRawTransaction", json!([raw])),
        call(2, "eth_getTransactionByHash", json!([hash])),
    ]);
    let answers = client.send(batch.to_string()).await.json();
    assert_eq!(answers[0]["result"], Value::Null);
    assert_eq!(answers[1]["result"], hash);
    assert_eq!(answers[2]["result"]["hash"], hash);
}

#[tokio::test]
async fn transactions_of_a_batch_reach_the_node_in_their_order() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    let transactions = node.sendable(3);
    // If the proxy sent the transactions concurrently, the first would arrive last.
    node.fail(Fault::Queue(Duration::from_millis(200))).on("eth_sendRawTransaction").once();

    let sends = transactions.iter().map(|(raw, _)| call(0, "eth_sendRawTransaction", json!([raw])));
    let answers = client.send(json!(sends.collect::<Vec<_>>()).to_string()).await.json();
    let hashes: Vec<_> = transactions.iter().map(|(_, hash)| hash.clone()).collect();
    let answered: Vec<_> = (0..3).map(|at| answers[at]["result"].as_str().unwrap().to_owned()).collect();
    assert_eq!(answered, hashes);
    assert_eq!(node.mempool().iter().map(|hash| format!("{hash:#x}")).collect::<Vec<_>>(), hashes);
}
