//! A client's trace context reaches the node unchanged.

use std::time::Duration;

use holdfast::devchain::Fault;
use serde_json::{Value, json};

use crate::support::{
    client::{self, Client, Response},
    eventually, proxy,
    server::{self, Server},
    upstream,
};

const ONE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OTHER: &str = "00-11111111111111111111111111111111-2222222222222222-00";
const STATE: &str = "rojo=00f067aa0ba902b7, congo=t61rcWkgMzE";

fn call(method: &str, params: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

/// Returns a call that only the node can answer, and that no other call shares.
fn balance(of: usize) -> String {
    call("eth_getBalance", json!([address(of), "latest"]))
}

fn address(of: usize) -> String {
    format!("0x{of:040x}")
}

async fn send(client: &Client, headers: &[(&str, &str)], body: String) -> Response {
    let mut request = client.post().header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Response::of(request.body(body)).await
}

/// Returns the trace headers of the requests to the node that contain `text`.
fn told(node: &Server, text: &str) -> Vec<(Option<String>, Option<String>)> {
    let seen = node.seen();
    let told = seen.calls(text).map(|seeing| {
        let header = |name| seeing.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        assert!(seeing.headers.get_all("traceparent").iter().count() <= 1);
        (header("traceparent"), header("tracestate"))
    });
    told.collect()
}

fn as_it_came(parent: &str) -> (Option<String>, Option<String>) {
    (Some(parent.to_owned()), None)
}

#[tokio::test]
async fn trace_context_is_forwarded_for_client_calls_only() {
    let node = server::node(&upstream::devchain().blocks(2, 2).chain()).run().await;
    let proxy = proxy::new().upstream_url(&node.url()).run().await;
    let client = client::http(&proxy);
    let answer = send(&client, &[("traceparent", ONE), ("tracestate", STATE)], balance(1)).await;
    assert!(answer.outcome().is_ok());
    assert_eq!(told(&node, &address(1)), [(Some(ONE.to_owned()), Some(STATE.to_owned()))]);
    assert!(send(&client, &[("tracestate", STATE)], balance(2)).await.outcome().is_ok());
    assert_eq!(told(&node, &address(2)), [(None, None)]);
    // Background calls, for identity and head, carry no trace context.
    let traced = told(&node, "").iter().filter(|told| **told != (None, None)).count();
    assert_eq!(traced, 1);
}

#[tokio::test]
async fn shared_fetch_carries_the_first_clients_trace() {
    let chain = upstream::devchain().blocks(2, 2).chain();
    let hash = format!("{:#x}", chain.mine(2).hash);
    let node = server::node(&chain).run().await;
    let proxy = proxy::new().upstream_url(&node.url()).run().await;
    let client = client::http(&proxy);
    chain.fail(Fault::Delay(Duration::from_secs(3))).on("eth_getBlockByHash").once();
    let body = call("eth_getBlockByHash", json!([hash, true]));
    let (one, other) = tokio::join!(send(&client, &[("traceparent", ONE)], body.clone()), async {
        eventually("the fetch", async || !told(&node, &hash).is_empty()).await;
        send(&client, &[("traceparent", OTHER)], body.clone()).await
    });
    assert_eq!(one.outcome(), other.outcome());
    assert_eq!(other.header("cache-status"), Some("holdfast; fwd=miss; collapsed"));
    assert_eq!(told(&node, &hash), [as_it_came(ONE)]);
    let hit = send(&client, &[("traceparent", OTHER)], body).await;
    assert_eq!(hit.header("cache-status"), Some("holdfast; hit; detail=block"));
    assert_eq!(told(&node, &hash).len(), 1);
}

#[tokio::test]
async fn each_call_of_a_batch_carries_the_trace_of_its_request() {
    let chain = upstream::devchain().blocks(2, 2).chain();
    let node = server::node(&chain).run().await;
    let proxy = proxy::new().upstream_url(&node.url()).run().await;
    let client = client::http(&proxy);
    let batch: Vec<Value> = (1..=3).map(|of| serde_json::from_str(&balance(of)).unwrap()).collect();
    let answer = send(&client, &[("traceparent", ONE)], json!(batch).to_string()).await;
    assert_eq!(answer.json().as_array().unwrap().len(), 3);
    let asked = told(&node, "eth_getBalance");
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|told| *told == as_it_came(ONE)), "{asked:?}");
}

#[cfg(not(feature = "otlp"))]
#[tokio::test]
async fn build_without_otlp_refuses_the_setting() {
    use crate::support::program::{holdfast, output, text};

    for arguments in [&["serve", "--upstream", "http://127.0.0.1:1"][..], &["check", "--offline"]] {
        let mut command = holdfast(arguments);
        command.env("HOLDFAST_TRACING__OTLP", "http://127.0.0.1:4318/SECRET");
        let output = output(command).await;
        assert_eq!(output.status.code(), Some(64));
        let said = text(&output.stderr);
        assert!(
            said.contains("tracing.otlp: this build cannot send spans: build it with --features otlp"),
            "{said}"
        );
        assert!(!said.contains("SECRET"), "{said}");
    }
}
