//! Every upstream failure has its code, status and message, and affects no other call.
//!
//! The calls are for receipts, because identity probes, which follow a lost connection, use other methods.

use std::time::Duration;

use holdfast::devchain::Fault;
use serde_json::{Value, json};

use crate::support::{client, method::RECEIPT, process, proxy, upstream};

/// The response to a client when the upstream fails: status and code of a single call, and a part of the message.
struct Told {
    fault: Fault,
    status: u16,
    code: i64,
    message: &'static str,
}

fn table() -> Vec<Told> {
    let told = |fault, status, code, message| Told { fault, status, code, message };
    vec![
        told(Fault::Hang, 504, -32011, "the upstream is too slow: no answer within"),
        told(Fault::Drip(Duration::from_millis(100)), 504, -32011, "too slow"),
        told(Fault::Reset, 502, -32010, "the upstream failed: the connection broke"),
        told(Fault::ResetMidBody, 502, -32010, "the upstream failed: the connection broke"),
        told(Fault::Status(500), 502, -32010, "the upstream failed: HTTP status 500"),
        told(Fault::Status(403), 502, -32010, "the upstream failed: HTTP status 403"),
        told(Fault::Status(302), 502, -32010, "the upstream failed: HTTP status 302"),
        told(Fault::RateLimited { retry_after: Some(7) }, 429, -32005, "limits the rate"),
        told(Fault::RateLimited { retry_after: None }, 429, -32005, "limits the rate"),
        told(Fault::Garbage, 502, -32010, "unreadable answer: not JSON"),
        told(Fault::Truncated, 502, -32010, "unreadable answer: cut off after"),
        told(Fault::WrongId, 502, -32010, "another id"),
    ]
}

fn entry(id: u32, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

#[tokio::test]
async fn each_failure_has_its_code_and_status() {
    let node = upstream::devchain().blocks(2, 3).run().await;
    for Told { fault, status, code, message } in table() {
        let is_waited_for = matches!(fault, Fault::Hang | Fault::Drip(_));
        let timeout = Duration::from_secs(if is_waited_for { 1 } else { 30 });
        let proxy =
            proxy::new().upstream(&node).config(|config| config.upstream.timeout = timeout).run().await;
        let client = client::http(&proxy);
        // Asks for a receipt that is not cached, because cached answers do not depend on the upstream.
        let transaction = node.transactions_of(node.mine(1).hash)[0];
        let params = json!([format!("{transaction:#x}")]);
        node.fail(fault.clone()).on(RECEIPT).once();
        let alone = client.call(RECEIPT, params.clone()).await;
        assert_eq!(
            (alone.status.as_u16(), alone.code()),
            (status, Some(code)),
            "{fault:?}: {}",
            alone.text()
        );
        assert!(alone.message().contains(message), "{fault:?}: {}", alone.message());
        let retry_after = match &fault {
            Fault::RateLimited { retry_after } => Some(retry_after.unwrap_or(1).to_string()),
            _ => None,
        };
        assert_eq!(alone.header("retry-after"), retry_after.as_deref(), "{fault:?}");

        if matches!(fault, Fault::RateLimited { retry_after: Some(_) }) {
            // The proxy makes no call before the node's retry-after time, not even of another method.
            node.clear_calls();
            let early = client.call("eth_gasPrice", json!([])).await;
            assert_eq!((early.status.as_u16(), early.code()), (429, Some(-32005)), "{}", early.text());
            assert_eq!(node.calls_total(), 0);
            continue;
        }
        // Waits until the pause after the rate limit is over: a call waits for one pause, but not for a second.
        assert!(client.ask("eth_syncing", json!([])).await.is_ok());
        // A batch has status 200, and only the call that met the fault has an error.
        node.fail(fault.clone()).on(RECEIPT).once();
        let batch = json!([
            entry(1, "eth_syncing", json!([])),
            entry(2, RECEIPT, params.clone()),
            entry(3, "eth_gasPrice", json!([])),
        ]);
        let batch = client.send(batch.to_string()).await;
        assert_eq!(batch.status, 200, "{fault:?}");
        assert_eq!(batch.json()[1]["error"]["code"], code, "{fault:?}: {}", batch.text());
        assert!(batch.json()[0]["result"].is_boolean(), "{fault:?}: {}", batch.text());
        assert!(batch.json()[2]["result"].is_string(), "{fault:?}: {}", batch.text());

        let after = client.ask(RECEIPT, params).await;
        assert!(after.is_ok(), "{fault:?}: {after:?}");
    }
}

#[tokio::test]
async fn nodes_own_error_is_passed_on_unchanged() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);

    node.fail(Fault::Error { code: -32005, message: "limit \"exceeded\"".to_owned() }).on(RECEIPT).once();
    let nothing = json!([format!("0x{}", "11".repeat(32))]);
    let response = client.call(RECEIPT, nothing).await;
    assert_eq!(response.status, 200);
    assert_eq!(response.outcome().unwrap_err(), r#"{"code":-32005,"message":"limit \"exceeded\""}"#);
}

#[tokio::test]
async fn an_answer_larger_than_the_limit_is_not_read() {
    let node = upstream::devchain().blocks(1, 50).run().await;
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| config.upstream.max_answer = bytesize::ByteSize::kib(8))
        .run()
        .await;
    let client = client::http(&proxy);

    let response = client.call("eth_getBlockByNumber", json!(["0x1", true])).await;
    assert_eq!((response.status.as_u16(), response.code()), (502, Some(-32010)), "{}", response.text());
    assert!(response.message().contains("larger than 8192 bytes"), "{}", response.message());
    assert!(client.ask("eth_blockNumber", json!([])).await.is_ok());
}

#[tokio::test]
async fn a_dead_upstream_does_not_fill_the_log() {
    let node = upstream::devchain().run().await;
    let process = process::serve(&node).run().await;
    let client = process.client();
    drop(node);

    for _ in 0..20 {
        // The start may have fetched a head, which would be fresh for a second.
        assert_eq!(client.call("eth_gasPrice", json!([])).await.code(), Some(-32010));
    }
    process.says("upstream call failed").await;
    // The log is rate-limited per kind of failure. Here there are two: a broken connection, and a failed attempt to
    // connect.
    let said = process.said().matches("upstream call failed").count();
    assert!(said <= 6, "said {said} times: {}", process.said());
}
