//! The status page: its files, its events, and a real browser that shows it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use holdfast::{devchain::Fault, upstream::EndpointConfig};
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use crate::support::{
    client::{self, Raw},
    eventually,
    program::succeed,
    proxy::{self, Proxy},
    tools,
    upstream::{self, Node},
};

/// Maximum number of concurrent event streams.
const STREAMS: usize = 16;

/// Environment variable with the folder, relative to the repository, into which the browser test writes the pictures of
/// the documentation. The test then takes about seven minutes, because the pictures show a loaded instance.
const PICTURES: &str = "PAGE_PICTURES";

fn screenshots() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/screenshots")
}

/// Returns two endpoints with names, the first preferred to the second.
fn named(nodes: [&Node; 2]) -> Vec<EndpointConfig> {
    let endpoint = |(priority, node): (u32, &Node)| EndpointConfig {
        name: Some(["own-node", "provider"][priority as usize].to_owned()),
        priority,
        ..EndpointConfig::at(node.url())
    };
    (0..).zip(nodes).map(endpoint).collect()
}

/// Opens an event stream and reads its first events.
async fn listen(proxy: &Proxy) -> Raw {
    let mut stream = Raw::connect(proxy.app.admin_address()).await;
    stream.write("GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let begin = stream.read_until("event: status", 1).await;
    assert!(begin.starts_with("HTTP/1.1 200 "), "{begin}");
    stream
}

/// Returns the data of the newest event of this name in a text.
fn newest(text: &str, event: &str) -> Value {
    let begin = format!("event: {event}\ndata: ");
    let (_, data) = text.rsplit_once(&begin).unwrap_or_else(|| panic!("no {event} in {text}"));
    serde_json::from_str(data.lines().next().unwrap()).unwrap()
}

#[tokio::test]
async fn page_is_served_whole_under_a_strict_policy() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    for (path, content_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/cards.js", "text/javascript; charset=utf-8"),
        ("/charts.js", "text/javascript; charset=utf-8"),
        ("/lookup.js", "text/javascript; charset=utf-8"),
        ("/money.js", "text/javascript; charset=utf-8"),
        ("/plot.js", "text/javascript; charset=utf-8"),
        ("/tables.js", "text/javascript; charset=utf-8"),
        ("/words.js", "text/javascript; charset=utf-8"),
        ("/icon.svg", "image/svg+xml"),
    ] {
        let served = client.get(&proxy.admin_url(path)).await;
        assert_eq!(
            (served.status.as_u16(), served.header("content-type")),
            (200, Some(content_type)),
            "{path}"
        );
        assert_eq!(served.header("cache-control"), Some("no-store"));
        assert_eq!(served.header("x-content-type-options"), Some("nosniff"));
        let policy = served.header("content-security-policy").unwrap();
        for rule in ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"] {
            assert!(policy.contains(rule), "{policy}");
        }
        // This URL names a namespace; no browser fetches it.
        let elsewhere = served.text().replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains("http://") && !elsewhere.contains("https://"), "{path}: {elsewhere}");
    }
    let page = client.get(&proxy.admin_url("/")).await;
    for route in ["/status", "/metrics", "/ready", "/live"] {
        assert!(page.text().contains(&format!("href=\"{route}\"")), "{route}");
    }
    for path in ["/page", "/page.html", "/page/page.js", "/../Cargo.toml"] {
        assert_eq!(client.get(&proxy.admin_url(path)).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn page_and_events_are_refused_to_other_hosts() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    for path in ["/", "/page.js", "/events"] {
        let mut client = Raw::connect(proxy.app.admin_address()).await;
        client.write(format!("GET {path} HTTP/1.1\r\nhost: evil.example.org\r\n\r\n")).await;
        assert_eq!(client.response().await.status, 403, "{path}");
    }
}

#[tokio::test]
async fn events_send_the_history_and_then_changes() {
    let node = upstream::devchain().blocks(3, 2).run().await;
    let hour = Duration::from_secs(3600);
    let proxy = proxy::new().upstream(&node).config(|config| config.chain.max_staleness = hour).run().await;
    let client = client::http(&proxy);
    let mut stream = Raw::connect(proxy.app.admin_address()).await;
    stream.write("GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let begin = stream.read_until("\n\n", 2).await;
    assert!(begin.contains("content-type: text/event-stream\r\n"), "{begin}");
    assert!(begin.contains("cache-control: no-store\r\n"), "{begin}");
    let history = newest(&begin, "history");
    let columns = history["columns"].as_array().unwrap().clone();
    assert!(history["fine"].is_array() && history["coarse"].is_array(), "{history}");
    assert_eq!(newest(&begin, "status")["status"]["calls"], 0);

    // Watching makes no upstream calls.
    let asked = node.calls().len();
    stream.read_until("event: status", 3).await;
    assert_eq!(node.calls().len(), asked);

    for _ in 0..3 {
        client.call("eth_getBlockByNumber", json!(["0x1", false])).await;
    }
    client.call("debug_unknown", json!([])).await;
    // Samples are two seconds apart, so the latencies may be spread over several samples.
    let mut timed = [false; 2];
    let told = time::timeout(client::PATIENCE, async {
        loop {
            let told = newest(&stream.read_until("\n\n", 1).await, "status");
            let sampled =
                |column: &str| told["fine"][columns.iter().position(|name| name == column).unwrap()].clone();
            timed[0] |= sampled("memory_p50").is_f64();
            timed[1] |= sampled("upstream_p50").is_f64();
            if sampled("calls") == 4 {
                let [hits, refused, head] = ["hits", "refused", "head"].map(sampled);
                assert_eq!([hits, refused, head], [json!(2), json!(1), json!(3)]);
                break told;
            }
        }
    });
    let status = told.await.unwrap()["status"].clone();
    assert_eq!((&status["calls"], &status["saved"]["answered_without_upstream"]), (&json!(4), &json!(2)));
    assert_eq!(status["refusals"]["reasons"], json!({ "refused": 1 }));
    assert_eq!(timed, [true; 2], "latencies of hits and of misses");
}

#[tokio::test]
async fn number_of_event_streams_is_limited() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(listen(&proxy).await);
    }
    let client = client::http(&proxy);
    let events = proxy.admin_url("/events");
    let refused = client.get(&events).await;
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("16 streams"), "{}", refused.text());
    // The other routes still answer.
    assert_eq!(client.get(&proxy.admin_url("/ready")).await.status, 200);
    let head = client::at(&events).request(reqwest::Method::HEAD).send().await.unwrap();
    assert_eq!(
        (head.status().as_u16(), head.headers()["content-type"].to_str().unwrap()),
        (200, "text/event-stream")
    );

    // A stream that is not read does not delay the others.
    let last = streams.last_mut().unwrap();
    let begun = Instant::now();
    last.read_until("event: status", 2).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());

    streams.pop();
    eventually("a place is free again", async || {
        let mut stream = Raw::connect(proxy.app.admin_address()).await;
        stream.write("GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        stream.read_until("\r\n\r\n", 1).await.starts_with("HTTP/1.1 200 ")
    })
    .await;
}

#[tokio::test]
async fn events_end_at_shutdown() {
    let node = upstream::devchain().run().await;
    let delay = Duration::from_secs(3);
    let proxy = proxy::new().upstream(&node).config(|config| config.drain_delay = delay).run().await;
    let mut stream = listen(&proxy).await;
    let begun = Instant::now();
    let stopping = tokio::spawn(proxy.app.stop());
    let rest = stream.read_to_end().await;
    stopping.await.unwrap();
    assert!(begun.elapsed() < delay + Duration::from_secs(8), "{:?}", begun.elapsed());
    assert_eq!(newest(&rest, "status")["status"]["reason"], "shutting down");
    assert!(rest.ends_with("0\r\n\r\n"), "cut off: {rest}");
}

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn browser_shows_the_page_live() {
    const TEST: &str = "page::browser_shows_the_page_live";
    let Some(browser) = tools::chromium(TEST) else { return };
    let Some(mut command) = tools::node_script(TEST, "playwright-core", "page.mjs") else { return };
    let node = || upstream::devchain().blocks(40, 25).run();
    let (node, spare) = (node().await, node().await);
    let proxy = proxy::new().config(|config| config.upstream.endpoints = named([&node, &spare])).run().await;
    command.args([&proxy.admin_url(""), &proxy.url(), &node.url()]).arg(browser).arg(screenshots());
    if let Some(pictures) = std::env::var_os(PICTURES) {
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(pictures));
    }
    let looking = tokio::spawn(succeed(command));
    // Gives the page changes to show: the chain grows from the first call on, with one reorg.
    let mut rounds = 0;
    while !looking.is_finished() {
        time::sleep(Duration::from_secs(1)).await;
        if proxy.metric(r#"holdfast_heads_total{reason="first"}"#).await == 0 {
            continue;
        }
        rounds += 1;
        if rounds == 3 {
            node.reorg(1, 1);
            spare.reorg(1, 1);
        } else if rounds < 3 || rounds % 4 == 0 {
            node.mine(20);
            spare.mine(20);
        }
    }
    looking.await.unwrap();
}

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn browser_shows_negative_savings_and_their_reason() {
    const TEST: &str = "page::browser_shows_negative_savings_and_their_reason";
    let Some(browser) = tools::chromium(TEST) else { return };
    let Some(mut command) = tools::node_script(TEST, "playwright-core", "page_development.mjs") else {
        return;
    };
    let node = upstream::devchain().config(|config| config.chain_id = 31337).blocks(3, 2).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    // A refresh and a fetch, then three refreshes.
    client.call("eth_getBlockReceipts", json!(["latest"])).await;
    for _ in 0..3 {
        client.call("eth_blockNumber", json!([])).await;
    }
    command.arg(proxy.admin_url("")).arg(browser).arg(screenshots());
    succeed(command).await;
}

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn browser_shows_failed_endpoints_and_refusals() {
    const TEST: &str = "page::browser_shows_failed_endpoints_and_refusals";
    let Some(browser) = tools::chromium(TEST) else { return };
    if tools::node_script(TEST, "playwright-core", "page_outage.mjs").is_none() {
        return;
    }
    let words = "daily request count exceeded";
    let node = || upstream::devchain().blocks(557, 0).run();
    let (own, provider) = (node().await, node().await);
    let proxy = proxy::new()
        .config(|config| {
            config.upstream.endpoints = named([&own, &provider]);
            config.chain.max_staleness = Duration::from_millis(50);
        })
        .run()
        .await;
    let client = client::http(&proxy);
    let status = async || client.get(&proxy.admin_url("/status")).await.json();
    let head = json!(["latest", false]);
    client.call("eth_getBlockByNumber", head.clone()).await;
    eventually("the first endpoint has shown its head", async || {
        status().await["endpoints"][0]["head"] == 557
    })
    .await;

    // One endpoint goes away. The other, whose first calls these are, limits the rate.
    let refused = Fault::Refused { status: 429, code: -32005, message: words.to_owned() };
    provider.fail(refused).any().always();
    drop(own);
    eventually("both endpoints have failed", async || {
        client.call("eth_getBlockByNumber", head.clone()).await;
        let endpoints = status().await["endpoints"].clone();
        let is_down = !["ok", "probing"].contains(&endpoints[0]["state"].as_str().unwrap());
        is_down && endpoints[1]["reason"].to_string().contains(words)
    })
    .await;
    let admin = proxy.admin_url("");
    let look = async |words: &[&str]| {
        let mut command = tools::node_script(TEST, "playwright-core", "page_outage.mjs").unwrap();
        command.arg(&admin).arg(&browser).arg(screenshots()).args(words);
        succeed(command).await;
    };
    look(&[words]).await;

    drop(provider);
    eventually("no endpoint is reachable", async || {
        client.call("eth_getBlockByNumber", head.clone()).await;
        status().await["ready"] == false
    })
    .await;
    look(&[]).await;
}
