//! The admin listener tells what is going on.

use holdfast::devchain::Fault;
use serde_json::json;

use crate::support::{
    client::{self, Client},
    proxy::{self, Proxy},
    upstream,
};

async fn metric(client: &Client, proxy: &Proxy, line: &str) -> f64 {
    let metrics = client.get(&proxy.admin_url("/metrics")).await;
    assert_eq!(
        metrics.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    let text = metrics.text();
    let value = text.lines().find_map(|candidate| candidate.strip_prefix(line)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{line} is not in\n{text}")).parse().unwrap()
}

#[tokio::test]
async fn calls_are_counted_by_method_and_outcome() {
    let node = upstream::devchain().blocks(2, 1).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);

    for _ in 0..3 {
        client.call("eth_getBlockByNumber", json!(["0x1", false])).await;
    }
    client.call("eth_getBlockByNumber", json!(["1", false])).await;
    client.call("eth_chainId", json!([])).await;
    client.call("debug_evil{}", json!([])).await;
    client.call("eth_evil", json!([])).await;
    node.fail(Fault::Status(500)).on("eth_gasPrice").once();
    client.call("eth_gasPrice", json!([])).await;

    for (labels, count) in [
        (r#"method="eth_getBlockByNumber",outcome="stored""#, 1.0),
        (r#"method="eth_getBlockByNumber",outcome="hit""#, 2.0),
        (r#"method="eth_getBlockByNumber",outcome="refused""#, 1.0),
        (r#"method="eth_chainId",outcome="hit""#, 1.0),
        (r#"method="other",outcome="refused""#, 1.0),
        (r#"method="other",outcome="node_error""#, 1.0),
        (r#"method="eth_gasPrice",outcome="failed""#, 1.0),
    ] {
        let line = format!("holdfast_calls_total{{{labels}}}");
        assert!((metric(&client, &proxy, &line).await - count).abs() < 0.1, "{line}");
    }
    assert!(metric(&client, &proxy, "holdfast_call_seconds_count").await >= 8.0);
    assert!(metric(&client, &proxy, r#"holdfast_upstream_calls_total{outcome="status"}"#).await >= 1.0);
    assert!(metric(&client, &proxy, r#"holdfast_upstream_calls_total{outcome="result"}"#).await >= 3.0);
    assert!(metric(&client, &proxy, "holdfast_connections").await >= 1.0);
    let metrics = client.get(&proxy.admin_url("/metrics")).await;
    assert!(!metrics.text().contains("evil"), "text from a request became a label");
}

#[tokio::test]
async fn routes_are_what_they_say() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);

    assert_eq!(client.get(&proxy.admin_url("/live")).await.text(), "live\n");
    assert_eq!(client.get(&proxy.admin_url("/ready")).await.text(), "ready\n");
    assert!(client.get(&proxy.admin_url("/")).await.text().contains("/metrics"));
    let missing = client.get(&proxy.admin_url("/nothing")).await;
    assert_eq!(missing.status, 404);
    assert!(missing.text().contains("/status"), "{}", missing.text());
    let status = client.get(&proxy.admin_url("/status")).await.json();
    assert_eq!(status["ready"], true);
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));

    let posted = client::at(&proxy.admin_url("/status")).send("{}").await;
    assert_eq!((posted.status.as_u16(), posted.header("allow")), (405, Some("GET, HEAD")));
}

#[tokio::test]
async fn the_status_shows_the_view_of_the_chain() {
    let node = upstream::devchain().blocks(20, 1).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    let view = client.get(&proxy.admin_url("/status")).await.json()["view"].clone();
    assert_eq!(view["head"], serde_json::Value::Null, "nobody has asked yet");

    client.call("eth_getBlockByNumber", json!(["0x3", false])).await;
    let status = client.get(&proxy.admin_url("/status")).await.json();
    let view = &status["view"];
    assert_eq!(view["head"]["number"], 20, "{view}");
    assert_eq!(view["head"]["hash"], format!("{:#x}", node.head().hash));
    assert_eq!(view["finalized"]["number"], 4, "{view}");
    assert_eq!(view["lags"], false);
    assert!(view["age_seconds"].as_f64().unwrap() < 20.0);
    assert_eq!(status["calls"], 1);
    assert!(status["cache"]["entries"].is_u64());
}
