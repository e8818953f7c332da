//! The admin listener: counters, routes and the status.

use std::time::Duration;

use holdfast::devchain::Fault;
use serde_json::json;

use crate::support::{
    client::{self, Client},
    eventually,
    method::RECEIPTS,
    nodes::heads,
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
    let hour = Duration::from_secs(3600);
    let proxy = proxy::new().upstream(&node).config(|config| config.chain.max_staleness = hour).run().await;
    let client = client::http(&proxy);

    for _ in 0..3 {
        client.call("eth_getBlockByNumber", json!(["0x1", false])).await;
    }
    client.call("eth_getBlockByNumber", json!(["0x1", true])).await;
    client.call("eth_getBlockByNumber", json!(["1", false])).await;
    client.call("eth_chainId", json!([])).await;
    client.call("debug_evil{}", json!([])).await;
    client.call("eth_evil", json!([])).await;
    node.fail(Fault::Status(500)).on("eth_gasPrice").once();
    client.call("eth_gasPrice", json!([])).await;

    for (labels, count) in [
        (r#"method="eth_getBlockByNumber",outcome="stored""#, 1.0),
        (r#"method="eth_getBlockByNumber",outcome="derived""#, 2.0),
        (r#"method="eth_getBlockByNumber",outcome="hit""#, 1.0),
        (r#"method="eth_getBlockByNumber",outcome="node_error""#, 1.0),
        (r#"method="eth_chainId",outcome="hit""#, 1.0),
        (r#"method="other",outcome="method_not_found""#, 1.0),
        (r#"method="other",outcome="node_error""#, 1.0),
        (r#"method="eth_gasPrice",outcome="upstream_failed""#, 1.0),
    ] {
        let line = format!("holdfast_calls_total{{{labels}}}");
        assert!((metric(&client, &proxy, &line).await - count).abs() < 0.1, "{line}");
    }
    for (from, count) in [("memory", 4.0), ("upstream", 4.0), ("refusal", 1.0)] {
        let line = format!("holdfast_call_seconds_count{{from=\"{from}\"}}");
        assert!((metric(&client, &proxy, &line).await - count).abs() < 0.1, "{line}");
    }
    assert!((metric(&client, &proxy, "holdfast_upstream_calls_saved_total").await - 4.0).abs() < 0.1);
    assert!(metric(&client, &proxy, "holdfast_memory_bytes_total").await > 1000.0);
    assert!(metric(&client, &proxy, r#"holdfast_upstream_calls_total{outcome="status"}"#).await >= 1.0);
    assert!(metric(&client, &proxy, r#"holdfast_upstream_calls_total{outcome="result"}"#).await >= 3.0);
    assert!(metric(&client, &proxy, "holdfast_connections").await >= 1.0);
    let metrics = client.get(&proxy.admin_url("/metrics")).await;
    assert!(!metrics.text().contains("evil"), "text from a request became a label");
}

#[tokio::test]
async fn admin_routes_return_their_content() {
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
async fn status_shows_the_canonical_view() {
    let node = upstream::devchain().blocks(20, 1).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    let view = client.get(&proxy.admin_url("/status")).await.json()["canonical_view"].clone();
    assert_eq!(view["head"], serde_json::Value::Null, "no call has been made yet");

    client.call("eth_getBlockByNumber", json!(["0x3", false])).await;
    let status = client.get(&proxy.admin_url("/status")).await.json();
    let view = &status["canonical_view"];
    assert_eq!(view["head"]["number"], 20, "{view}");
    assert_eq!(view["head"]["hash"], format!("{:#x}", node.head().hash));
    assert_eq!(view["finalized"]["number"], 4, "{view}");
    assert_eq!(view["lags"], false);
    assert!(view["age_seconds"].as_f64().unwrap() < 20.0);
    assert_eq!(status["calls"], 1);
    assert!(status["cache"]["entries"].is_u64());
}

#[tokio::test]
async fn status_reports_saved_calls_and_reorgs() {
    let node = upstream::devchain().blocks(20, 1).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    for _ in 0..4 {
        client.call("eth_getBlockByNumber", json!(["0x3", true])).await;
    }
    let status = client.get(&proxy.admin_url("/status")).await.json();
    let saved = &status["saved"];
    assert_eq!(saved["answered_without_upstream"], 3);
    let [upkeep, follow] = ["upkeep_calls", "follow_calls"].map(|calls| saved[calls].as_i64().unwrap());
    assert!(upkeep > 0, "{saved}");
    assert_eq!(saved["calls"], 3 - upkeep - follow, "a negative number is shown as it is: {saved}");
    assert!(status["upstream_calls"].as_i64().unwrap() > upkeep, "{status}");
    assert!(status["bytes_from_memory"].as_u64().unwrap() > 1000);
    assert_eq!(status["cache"]["capacity"], 512 * 1024 * 1024);
    assert_eq!(status["url"], proxy.url());
    assert_eq!(status["reorgs"], json!({ "count": 0, "last": [] }));

    let head = async || {
        let head = node.head().number;
        eventually("the head is seen", async || {
            client.call("eth_getBlockByNumber", json!(["latest", false])).await;
            let status = client.get(&proxy.admin_url("/status")).await.json();
            status["canonical_view"]["head"]["hash"] == format!("{:#x}", node.head().hash)
        })
        .await;
        head
    };
    node.mine(1);
    head().await;
    node.reorg(1, 1);
    let same = head().await;
    // The new head of this reorg does not link to a known block.
    node.reorg(2, 3);
    let higher = head().await;
    let reorgs = client.get(&proxy.admin_url("/status")).await.json()["reorgs"].clone();
    assert_eq!(reorgs["count"], 2, "{reorgs}");
    for (reorg, depth, head) in
        [(&reorgs["last"][0], json!(null), higher), (&reorgs["last"][1], json!(1), same)]
    {
        assert_eq!(
            (&reorg["kind"], &reorg["depth"], &reorg["head"]),
            (&json!("reorg"), &depth, &json!(head))
        );
        assert!(reorg["age_seconds"].as_u64().unwrap() < 60);
    }
}

#[tokio::test]
async fn calls_on_a_development_chain_save_nothing() {
    let node = upstream::devchain().config(|config| config.chain_id = 31337).blocks(2, 1).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    for _ in 0..10 {
        client.call("eth_blockNumber", json!([])).await;
    }
    // Forwarded, and a miss after a refresh.
    client.call("eth_chainId", json!([])).await;
    client.call(RECEIPTS, json!(["latest"])).await;
    let status = client.get(&proxy.admin_url("/status")).await.json();
    assert_eq!((&status["chain"]["development"], &status["calls"]), (&json!(true), &json!(12)), "{status}");
    // The first call starts a refresh in the background, which it may join.
    let joined = status["methods"][0]["joined"].as_i64().unwrap();
    let counted = |column: &str| status["methods"][0][column].as_i64().unwrap();
    assert_eq!(["calls", "hits", "misses"].map(counted), [10, 0, 0], "{status}");
    assert_eq!(counted("stale") + joined, 10, "{status}");
    let saved = |column: &str| status["saved"][column].as_i64().unwrap();
    assert_eq!([saved("answered_without_upstream"), saved("answered_after_refresh")], [joined, 10 - joined]);
    // Client calls less upstream calls for them: twelve and thirteen.
    assert_eq!((heads(&node), saved("calls")), (11, -1), "{status}");
    let sample = async |line: &str| metric(&client, &proxy, line).await as i64;
    assert_eq!(sample("holdfast_upstream_calls_saved_total").await, joined);
    let stale = sample(r#"holdfast_calls_total{method="eth_blockNumber",outcome="stale"}"#).await;
    assert_eq!((stale, sample("holdfast_upkeep_calls_total").await), (10 - joined, saved("upkeep_calls")));
}

#[tokio::test]
async fn status_counts_calls_by_method() {
    let node = upstream::devchain().blocks(20, 1).run().await;
    let hour = Duration::from_secs(3600);
    let proxy = proxy::new().upstream(&node).config(|config| config.chain.max_staleness = hour).run().await;
    let client = client::http(&proxy);
    for _ in 0..4 {
        client.call("eth_getBlockByNumber", json!(["0x3", true])).await;
    }
    let address = format!("0x{}", "11".repeat(20));
    for _ in 0..2 {
        client.call("eth_getBalance", json!([address, "latest"])).await;
    }
    node.fail(Fault::Status(500)).on("eth_gasPrice").always();
    client.call("eth_gasPrice", json!([])).await;
    for method in ["debug_evil", "debug_worse", "eth_strange"] {
        client.call(method, json!([])).await;
    }

    let methods = client.get(&proxy.admin_url("/status")).await.json()["methods"].clone();
    let named: Vec<_> = methods.as_array().unwrap().iter().map(|totals| totals["method"].clone()).collect();
    assert_eq!(
        named,
        ["eth_getBlockByNumber", "other", "eth_getBalance", "eth_gasPrice"],
        "unknown methods are one row, and the most frequent come first"
    );
    let columns =
        ["calls", "hits", "stale", "joined", "misses", "not_cacheable", "node_errors", "refused", "failed"];
    for (row, expected) in [
        (0, [4, 3, 0, 0, 1, 0, 0, 0, 0]),
        (1, [3, 0, 0, 0, 0, 0, 1, 2, 0]),
        (2, [2, 0, 0, 0, 0, 2, 0, 0, 0]),
        (3, [1, 0, 0, 0, 0, 0, 0, 0, 1]),
    ] {
        let counted = columns.map(|column| methods[row][column].as_u64().unwrap());
        assert_eq!(counted, expected, "{}", methods[row]);
    }

    // Durations come with the next sample of the history.
    eventually("the durations of misses", async || {
        let status = client.get(&proxy.admin_url("/status")).await.json();
        let [p50, p99] = ["upstream_p50_seconds", "upstream_p99_seconds"]
            .map(|column| status["methods"][0][column].as_f64());
        p50.zip(p99).is_some_and(|(p50, p99)| 0.0 < p50 && p50 <= p99)
    })
    .await;
}

#[tokio::test]
async fn status_counts_calls_by_endpoint() {
    let node = upstream::devchain().blocks(20, 1).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    let endpoint = async || client.get(&proxy.admin_url("/status")).await.json()["endpoints"][0].clone();
    let count = |endpoint: &serde_json::Value, name: &str| endpoint[name].as_u64().unwrap();
    client.call("eth_getBlockByNumber", json!(["0x3", true])).await;
    let before = endpoint().await;
    assert!(count(&before, "calls") >= 2, "{before}");
    assert_eq!([count(&before, "errors"), count(&before, "rate_limited")], [0, 0], "{before}");

    // A node's own error object is an answer.
    client.call("eth_strange", json!([])).await;
    let after = endpoint().await;
    assert_eq!(count(&after, "errors"), 0, "{after}");
    assert!(count(&after, "calls") > count(&before, "calls"), "{after}");

    node.fail(Fault::Status(500)).on("eth_gasPrice").always();
    client.call("eth_gasPrice", json!([])).await;
    assert!(count(&endpoint().await, "errors") >= 1);
    // A provider may limit the rate with a status, or with an error object.
    node.fail(Fault::RateLimited { retry_after: None }).on("eth_getBalance").once();
    client.call("eth_getBalance", json!([format!("0x{}", "11".repeat(20)), "latest"])).await;
    let limited = endpoint().await;
    assert!(count(&limited, "rate_limited") >= 1, "{limited}");
    let errors = count(&limited, "errors");
    eventually("the endpoint is not limited any more", async || endpoint().await["state"] == "ok").await;
    let told = Fault::Error { code: -32005, message: "too many requests".to_owned() };
    node.fail(told).on("eth_getCode").once();
    client.call("eth_getCode", json!([format!("0x{}", "11".repeat(20)), "latest"])).await;
    let limited_again = endpoint().await;
    assert!(count(&limited_again, "rate_limited") > count(&limited, "rate_limited"), "{limited_again}");
    assert_eq!(count(&limited_again, "errors"), errors, "rate limits have a column of their own");

    eventually("the durations of requests", async || {
        let told = endpoint().await;
        told["p50_seconds"].as_f64().is_some_and(|p50| p50 > 0.0) && told["p99_seconds"].is_f64()
    })
    .await;
    let name = before["name"].as_str().unwrap();
    let line = format!("holdfast_endpoint_seconds_count{{endpoint=\"{name}\"}}");
    assert!(metric(&client, &proxy, &line).await > 1.0);
}

#[tokio::test]
async fn status_names_well_known_chains() {
    for (chain_id, name) in
        [(8453, json!("Base")), (7_331_117, json!("Holdfast demo chain")), (99, json!(null))]
    {
        let node = upstream::devchain().config(|config| config.chain_id = chain_id).run().await;
        let proxy = proxy::new().upstream(&node).run().await;
        let chain = client::http(&proxy).get(&proxy.admin_url("/status")).await.json()["chain"].clone();
        assert_eq!((&chain["id"], &chain["name"]), (&json!(chain_id), &name));
    }
}
