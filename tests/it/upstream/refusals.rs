//! Providers that refuse calls: the log, `/ready` and `/status` give the provider's own words, and the end of the outage.

use futures_util::future::join_all;
use holdfast::devchain::Fault;
use serde_json::{Value, json};

use crate::support::{
    client::{self, Response},
    eventually, process,
    program::file,
    upstream,
};

/// Returns the status and the body of a path of the admin listener.
async fn admin(process: &process::Process, path: &str) -> (u16, String) {
    let url = format!("{}{path}", process.admin_url());
    let response = Response::of(client::at(&url).request(reqwest::Method::GET)).await;
    (response.status.as_u16(), response.text().to_owned())
}

#[tokio::test]
async fn refusal_is_told_in_the_words_of_the_provider() {
    let words = "daily request count exceeded, request rate limited";
    let refused = |status| Fault::Refused { status, code: -32000, message: "invalid project id".to_owned() };
    let limited = Fault::Error { code: -32005, message: words.to_owned() };
    for (fault, said, reason) in [
        (refused(401), "upstream refuses our calls", "invalid project id"),
        (refused(403), "upstream refuses our calls", "invalid project id"),
        (
            Fault::RateLimited { retry_after: None },
            "upstream limits the rate of our calls",
            "too many requests",
        ),
        (limited, "upstream limits the rate of our calls", words),
    ] {
        let node = upstream::devchain().blocks(3, 1).run().await;
        let process = process::serve(&node).run().await;
        let client = process.client();
        client.ask("eth_blockNumber", json!([])).await.unwrap();
        node.fail(fault.clone()).always();
        for _ in 0..7 {
            client.call("eth_gasPrice", json!([])).await;
        }
        process.says(said).await;
        process.says(reason).await;
        let (status, body) = admin(&process, "/ready").await;
        assert_eq!(status, 200, "{fault:?}: {body}");
        assert!(body.starts_with("degraded: every endpoint refuses calls"), "{fault:?}: {body}");
        assert!(body.contains(reason), "{fault:?}: {body}");
        let report: Value = serde_json::from_str(&admin(&process, "/status").await.1).unwrap();
        assert_eq!((&report["ready"], &report["degraded"]), (&json!(true), &json!(true)), "{fault:?}");
        assert!(report["endpoints"][0]["reason"].as_str().unwrap().contains(reason), "{report}");

        node.clear_faults();
        // Without client calls, a probe finds out.
        eventually("the provider serves again", || async { admin(&process, "/ready").await.1 == "ready\n" })
            .await;
        process.says("upstream answers again").await;
        process.says("outage_seconds=").await;
    }
}

#[tokio::test]
async fn endpoint_that_went_away_is_down_and_keeps_its_last_block() {
    let node = upstream::devchain().blocks(7, 1).run().await;
    let process = process::serve(&node).run().await;
    process.client().ask("eth_getBlockByNumber", json!(["latest", false])).await.unwrap();
    drop(node);
    for _ in 0..7 {
        process.client().call("eth_gasPrice", json!([])).await;
    }
    let (status, body) = admin(&process, "/ready").await;
    assert_eq!(status, 503, "{body}");
    let report: Value = serde_json::from_str(&admin(&process, "/status").await.1).unwrap();
    let endpoint = &report["endpoints"][0];
    assert_eq!(endpoint["head"], 7, "{endpoint}");
    assert!(endpoint["outage_seconds"].is_u64(), "{endpoint}");
}

/// Only a refusal is degraded: once the provider is gone, the instance is not ready.
#[tokio::test]
async fn provider_that_refuses_and_then_goes_away_is_not_ready() {
    let node = upstream::devchain().blocks(3, 1).run().await;
    let process = process::serve(&node).run().await;
    process.client().ask("eth_blockNumber", json!([])).await.unwrap();
    node.fail(Fault::Refused { status: 401, code: -32000, message: "no key".to_owned() }).always();
    for _ in 0..7 {
        process.client().call("eth_gasPrice", json!([])).await;
    }
    assert_eq!(admin(&process, "/ready").await.0, 200);
    drop(node);
    eventually("the instance is not ready", || async {
        process.client().call("eth_gasPrice", json!([])).await;
        admin(&process, "/ready").await.0 == 503
    })
    .await;
}

/// An instance that has never learned its chain has no cache to serve.
#[tokio::test]
async fn wrong_key_at_the_start_is_not_ready() {
    let node = upstream::devchain().blocks(3, 1).run().await;
    node.fail(Fault::Refused { status: 401, code: -32000, message: "no key".to_owned() }).always();
    let process = process::serve(&node).though_not_ready().run().await;
    process.says("no key").await;
    assert_eq!(admin(&process, "/ready").await.0, 503);
}

/// A plan may lack a method. That is no outage of the provider.
#[tokio::test]
async fn refusal_of_one_method_is_not_degraded() {
    let node = upstream::devchain().blocks(3, 1).run().await;
    let process = process::serve(&node).set("METHODS__ALLOW", r#"["eth_*", "trace_block"]"#).run().await;
    let refused = Fault::Refused { status: 403, code: -32000, message: "not in your plan".to_owned() };
    node.fail(refused).on("trace_block").always();
    for _ in 0..7 {
        assert!(process.client().ask("trace_block", json!(["0x1"])).await.is_err());
        process.client().ask("eth_gasPrice", json!([])).await.unwrap();
        assert_eq!(admin(&process, "/ready").await, (200, "ready\n".to_owned()));
    }
}

#[tokio::test]
async fn refusal_of_one_endpoint_of_two_is_not_degraded() {
    let (first, second) = (upstream::devchain().blocks(3, 1), upstream::devchain().blocks(3, 1));
    let (first, second) = (first.run().await, second.run().await);
    let process = process::serve(&first).also(&second).run().await;
    process.client().ask("eth_gasPrice", json!([])).await.unwrap();
    // The primary is the endpoint that was identified first.
    let primary = if first.count("eth_gasPrice") > 0 { &first } else { &second };
    primary.fail(Fault::Refused { status: 401, code: -32000, message: "no key".to_owned() }).always();
    for _ in 0..7 {
        process.client().ask("eth_gasPrice", json!([])).await.unwrap();
    }
    process.says("upstream refuses our calls").await;
    assert_eq!(admin(&process, "/ready").await, (200, "ready\n".to_owned()));
    let report: Value = serde_json::from_str(&admin(&process, "/status").await.1).unwrap();
    let refusing = report["endpoints"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|endpoint| endpoint["reason"].as_str().is_some_and(|reason| reason.contains("no key")));
    assert_eq!(refusing.count(), 1, "{report}");
}

/// Repeated warnings are throttled. A long pause has no calls, and so no later chance for a warning.
#[tokio::test]
async fn long_rate_limit_is_logged_soon_after_a_short_one() {
    let node = upstream::devchain().blocks(3, 1).run().await;
    let process = process::serve(&node).run().await;
    let client = process.client();
    client.ask("eth_blockNumber", json!([])).await.unwrap();
    let limits = || process.said().matches("upstream limits the rate of our calls").count();
    node.fail(Fault::RateLimited { retry_after: None }).always();
    eventually("the first limit", async || {
        client.call("eth_gasPrice", json!([])).await;
        limits() == 1
    })
    .await;
    node.clear_faults();
    eventually("an answer", async || client.ask("eth_gasPrice", json!([])).await.is_ok()).await;
    node.fail(Fault::RateLimited { retry_after: Some(60) }).always();
    client.call("eth_gasPrice", json!([])).await;
    eventually("the second limit", async || limits() == 2).await;
    let report: Value = serde_json::from_str(&admin(&process, "/status").await.1).unwrap();
    assert_eq!(report["endpoints"][0]["state"], "rate_limited", "{report}");
    assert_eq!(process.metric("holdfast_ready").await, 1);
}

#[tokio::test]
async fn provider_that_limits_at_the_start_is_rate_limited() {
    let node = upstream::devchain().blocks(3, 1).run().await;
    node.fail(Fault::RateLimited { retry_after: None }).always();
    let process = process::serve(&node).though_not_ready().run().await;
    process.says("upstream limits the rate of our calls").await;
    let response = process.client().call("eth_gasPrice", json!([])).await;
    assert_eq!((response.status.as_u16(), response.code()), (429, Some(-32005)), "{}", response.text());
    assert!(response.headers.contains_key("retry-after"));
    assert!(admin(&process, "/ready").await.1.contains("limits the rate"));
    let report: Value = serde_json::from_str(&admin(&process, "/status").await.1).unwrap();
    assert_eq!(report["endpoints"][0]["state"], "rate_limited", "{report}");
    let name = report["endpoints"][0]["name"].as_str().unwrap();
    for (state, is_in) in [("rate_limited", 1), ("unknown", 0), ("unhealthy", 0)] {
        let gauge = format!("holdfast_endpoint_state{{endpoint=\"{name}\",state=\"{state}\"}}");
        assert_eq!(process.metric(&gauge).await, is_in, "{state}");
    }
    node.clear_faults();
    eventually("the provider serves", || async { admin(&process, "/ready").await.1 == "ready\n" }).await;
}

#[tokio::test]
async fn used_up_rate_is_named_logged_once_counted_and_shown() {
    let node = upstream::devchain().blocks(3, 1).run().await;
    let config = format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n[[upstream.endpoints]]\nname = 'provider'\nurl = '{}'\n\
         rate = {{ per_second = 1, burst = 1 }}\n",
        node.url()
    );
    let process = process::serve_file(&file("holdfast.toml", &config)).run().await;
    let client = process.client();
    let words = "the configured rate of this endpoint is used up";
    let mut refused = 0;
    for _ in 0..2 {
        for response in join_all((0..20).map(|_| client.call("eth_gasPrice", json!([])))).await {
            if response.status == 200 {
                continue;
            }
            assert_eq!((response.status.as_u16(), response.code()), (429, Some(-32005)));
            assert_eq!(response.message(), words);
            assert!(response.headers.contains_key("retry-after"));
            refused += 1;
        }
    }
    assert!(refused > 20, "{refused}");
    assert_eq!(process.said().matches(words).count(), 1, "{}", process.said());
    assert_eq!(process.metric("holdfast_endpoint_over_rate_total{endpoint=\"provider\"}").await, refused);
    let report: Value = serde_json::from_str(&admin(&process, "/status").await.1).unwrap();
    let endpoint = &report["endpoints"][0];
    assert_eq!((&endpoint["reason"], &endpoint["over_rate"]), (&json!(words), &json!(refused)), "{endpoint}");
    // The provider limits nothing.
    assert_eq!((&endpoint["state"], &endpoint["rate_limited"]), (&json!("ok"), &json!(0)), "{endpoint}");
}

/// Providers do not charge for the chain id, and answer it while they refuse other calls.
#[tokio::test]
async fn free_chain_id_does_not_end_a_rate_limit() {
    let node = upstream::devchain().blocks(3, 1).run().await;
    let process = process::serve(&node).run().await;
    let client = process.client();
    client.ask("eth_blockNumber", json!([])).await.unwrap();
    for method in ["eth_gasPrice", "eth_getBlockByNumber"] {
        node.fail(Fault::RateLimited { retry_after: None }).on(method).always();
    }
    client.call("eth_gasPrice", json!([])).await;
    process.says("upstream limits the rate of our calls").await;
    let probes = node.count("eth_getBlockByNumber");
    eventually("probes", async || {
        assert!(admin(&process, "/ready").await.1.starts_with("degraded: "));
        node.count("eth_getBlockByNumber") >= probes + 2
    })
    .await;
    assert!(!process.said().contains("upstream answers again"), "{}", process.said());
}
