//! The metrics are correct, and all metrics that the dashboard, the alerts and the documentation name exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use bytesize::ByteSize;
use holdfast::{
    cache::DiskConfig,
    devchain::{Fault, Lie},
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    client::{self, Client, Response},
    eventually,
    method::BLOCK_BY_NUMBER,
    program::{Program, file, port},
    proxy::{self, Proxy},
    tools, upstream,
};

const DASHBOARD: &str = "docker/grafana/dashboards/holdfast.json";
const ALERTS: &str = "docker/prometheus/alerts.yml";
const DOCS: &str = "docs/operating.md";

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn read(file: &str) -> String {
    fs::read_to_string(path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the names of metrics in a text.
fn named(text: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let starts = text.match_indices("holdfast_").map(|(at, _)| &text[at..]);
    let names = starts.map(|rest| &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())]);
    names.filter(|name| !name.ends_with('_')).collect()
}

/// Returns the label values that selectors such as `name{label="one|other"}` demand, one entry per value.
fn demanded(query: &str) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for (at, _) in query.match_indices("holdfast_") {
        let Some((name, rest)) = query[at..].split_once('{') else { continue };
        if !name.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
            continue;
        }
        let selector = rest.split('}').next().unwrap();
        let pairs =
            selector.split("\",").filter_map(|pair| pair.split_once("=\"").or(pair.split_once("=~\"")));
        for (label, values) in pairs {
            let label = label.trim().trim_end_matches('!');
            for value in values.trim_end_matches('"').split('|') {
                // Skips regular expressions.
                if value.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                    found.push((name.to_owned(), label.to_owned(), value.to_owned()));
                }
            }
        }
    }
    found
}

/// Returns the queries of the dashboard, each with the title of its panel.
fn queries() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let annotated = dashboard["annotations"]["list"].as_array().unwrap().iter();
    let targets =
        panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten().map(move |t| (panel, t)));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    targets
        .map(|(panel, target)| (text(&panel["title"]), text(&target["expr"])))
        .chain(annotated.map(|annotation| (text(&annotation["name"]), text(&annotation["expr"]))))
        .collect()
}

/// Returns the names that queries and documents may use. A histogram's own name is among them, although a query
/// cannot use it.
fn known(exposed: &str) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for (name, kind) in types(exposed) {
        let endings: &[&str] = match kind {
            "counter" => &["_total"],
            "histogram" => &["", "_bucket", "_sum", "_count"],
            "info" => &["_info"],
            _ => &[""],
        };
        known.extend(endings.iter().map(|ending| format!("{name}{ending}")));
    }
    known
}

fn types(exposed: &str) -> BTreeMap<&str, &str> {
    exposed.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect()
}

async fn exposed(client: &Client, proxy: &Proxy) -> String {
    client.get(&proxy.admin_url("/metrics")).await.text().to_owned()
}

/// Makes a node of a listed Ethereum chain send a wrong block, which the proxy detects.
async fn be_lied_to(node: &upstream::Node, client: &Client) {
    let block = async |number| {
        let hash = format!("{:#x}", node.hash_at(number).unwrap());
        client.call("eth_getBlockByHash", json!([hash, true])).await;
    };
    block(2).await;
    node.fail(Fault::Lie(Lie::Field("gasUsed".to_owned(), json!("0x1")))).on("eth_getBlockByHash").once();
    block(3).await;
}

/// Starts a proxy with a disk tier, and makes calls so that its metrics have samples.
async fn everything_happens() -> (upstream::Node, Proxy, Client) {
    let node = upstream::devchain().config(|config| config.chain_id = 1).blocks(100, 2).run().await;
    let data = file("here", "").with_file_name("data");
    let on_disk = |config: &mut holdfast::config::Config| config.cache.disk = Some(DiskConfig::new(data));
    let proxy = proxy::new().upstream(&node).config(on_disk).run().await;
    let client = client::http(&proxy);
    for _ in 0..3 {
        client.call(BLOCK_BY_NUMBER, json!(["0x4", true])).await;
        client.call(BLOCK_BY_NUMBER, json!(["0x4", false])).await;
        client.call(BLOCK_BY_NUMBER, json!(["latest", false])).await;
        client.call("eth_gasPrice", json!([])).await;
    }
    be_lied_to(&node, &client).await;
    (node, proxy, client)
}

#[tokio::test]
async fn metrics_of_dashboard_and_alerts_are_exposed() {
    let (_node, proxy, client) = everything_happens().await;
    let exposed = exposed(&client, &proxy).await;
    let names = known(&exposed);
    let [dashboard, alerts] = [DASHBOARD, ALERTS].map(read);
    for (file, text) in [(DASHBOARD, &dashboard), (ALERTS, &alerts)] {
        let unknown: Vec<_> = named(text).into_iter().filter(|name| !names.contains(*name)).collect();
        assert_eq!(unknown, [""; 0], "{file} names metrics that /metrics does not");
    }
    let mut demands: Vec<_> = queries().iter().flat_map(|(_, query)| demanded(query)).collect();
    demands.extend(demanded(&alerts));
    assert!(demands.len() > 20, "{demands:?}");
    for (name, label, value) in demands {
        let pair = format!("{label}=\"{value}\"");
        let is_there = |line: &str| line.starts_with(&format!("{name}{{")) && line.contains(&pair);
        assert!(exposed.lines().any(is_there), "{name} has no {pair}");
    }
}

#[tokio::test]
async fn every_metric_is_documented() {
    let (_node, proxy, client) = everything_happens().await;
    let exposed = exposed(&client, &proxy).await;
    let docs = read(DOCS);
    let types = types(&exposed);
    assert!(types.len() > 40, "{types:?}");
    for (name, kind) in types {
        let ending = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        assert!(docs.contains(&format!("`{name}{ending}`")), "{DOCS} does not tell of {name}{ending}");
    }
    let names = known(&exposed);
    let unknown: Vec<_> = named(&docs).into_iter().filter(|name| !names.contains(*name)).collect();
    assert_eq!(unknown, [""; 0], "{DOCS} names metrics that do not exist");
    let alerts = read(ALERTS);
    for alert in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(docs.contains(&format!("`{alert}`")), "{DOCS} does not say what to do about {alert}");
    }
}

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn alerts_fire_when_they_should() {
    let test = "alerts_fire_when_they_should";
    let Some(promtool) = tools::promtool(test) else { return };
    for arguments in [
        ["check", "config", "docker/prometheus/prometheus.yml"],
        ["test", "rules", "tests/alerts/alerts.yml"],
    ] {
        let output = Command::new(&promtool).args(arguments).current_dir(path("")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
    }
}

/// A real Prometheus that scrapes the proxy each second.
struct Prometheus {
    _program: Program,
    url: String,
}

impl Prometheus {
    async fn start(binary: &Path, target: &str) -> Self {
        let scraped = json!([{ "job_name": "holdfast", "static_configs": [{ "targets": [target] }] }]);
        let rules = path(ALERTS);
        let config = json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": [rules],
            "scrape_configs": scraped,
        });
        let config = file("prometheus.yml", &config.to_string());
        let data = config.with_extension("data");
        loop {
            let address = format!("127.0.0.1:{}", port());
            let mut command = Command::new(binary);
            command
                .arg(format!("--config.file={}", config.display()))
                .arg(format!("--storage.tsdb.path={}", data.display()))
                .arg(format!("--web.listen-address={address}"));
            let mut program = Program::start(command);
            eventually("Prometheus is ready or has ended", || {
                let has_said = program.said().contains("Server is ready");
                std::future::ready(has_said || !program.is_running())
            })
            .await;
            // Prometheus exits if another process has taken the port.
            if program.is_running() {
                return Self { _program: program, url: format!("http://{address}") };
            }
            assert!(program.said().contains("address already in use"), "{}", program.said());
        }
    }

    /// Returns the samples that a query gives now.
    async fn query(&self, query: &str) -> Result<Vec<Value>, String> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let asked = client::at(&format!("{}/api/v1/query", self.url))
            .post()
            .header("content-type", "application/x-www-form-urlencoded")
            .body(format!("query={encoded}"))
            .send()
            .await;
        let answer =
            asked.map_err(|error| error.to_string())?.text().await.map_err(|error| error.to_string())?;
        let answer: Value = serde_json::from_str(&answer).map_err(|error| error.to_string())?;
        match answer["data"]["result"].as_array() {
            Some(samples) => Ok(samples.clone()),
            None => Err(answer.to_string()),
        }
    }
}

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn every_query_of_the_dashboard_is_answered_by_prometheus() {
    let test = "every_query_of_the_dashboard_is_answered_by_prometheus";
    let Some(binary) = tools::prometheus(test) else { return };
    let (node, proxy, client) = everything_happens().await;
    let prometheus = Prometheus::start(&binary, &proxy.app.admin_address().to_string()).await;
    eventually("Prometheus has scraped three times", async || {
        node.mine(1);
        client.call(BLOCK_BY_NUMBER, json!(["latest", false])).await;
        client.call(BLOCK_BY_NUMBER, json!(["0x4", true])).await;
        let seen = prometheus.query("count_over_time(holdfast_ready[1m])").await.unwrap_or_default();
        seen.first().and_then(|sample| sample["value"][1].as_str()?.parse::<f64>().ok()) >= Some(3.0)
    })
    .await;
    for (title, query) in queries() {
        let concrete =
            query.replace("$instance", ".*").replace("$__rate_interval", "1m").replace("$__range", "1m");
        let samples =
            prometheus.query(&concrete).await.unwrap_or_else(|error| panic!("{title}: {query}: {error}"));
        // A query with a threshold may give no samples.
        let may_be_empty = query.ends_with("> 0");
        assert!(may_be_empty || !samples.is_empty(), "{title}: nothing for {concrete}");
        for sample in samples {
            let value = sample["value"][1].as_str().unwrap();
            assert!(value != "+Inf" && value != "-Inf", "{title}: {sample}");
        }
    }
    let rules = client.get(&format!("{}/api/v1/rules", prometheus.url)).await.json();
    let rules = rules["data"]["groups"][0]["rules"].as_array().unwrap();
    assert!(rules.len() >= 9, "{rules:?}");
    for rule in rules {
        assert!(
            rule["lastError"].is_null()
                && (rule["state"] == "inactive" || rule["name"] == "HoldfastMismatch"),
            "{rule}"
        );
    }
}

// ## Values

#[tokio::test]
async fn cache_metrics_are_by_kind() {
    let node = upstream::devchain().blocks(60, 10).run().await;
    let small = |config: &mut holdfast::config::Config| config.cache.size = ByteSize::kib(200);
    let proxy = proxy::new().upstream(&node).config(small).run().await;
    let client = client::http(&proxy);
    let of = async |metric: &str, kind: &str| {
        proxy.metric(&format!("holdfast_cache_{metric}{{kind=\"{kind}\"}}")).await
    };
    client.call(BLOCK_BY_NUMBER, json!(["0x1", true])).await;
    client.call("eth_getBlockReceipts", json!(["0x1"])).await;
    eventually("both are counted", async || {
        (of("entries", "block").await, of("entries", "receipts").await) == (1, 1)
    })
    .await;
    assert!(of("bytes", "block").await > 1000 && of("bytes", "receipts").await > 1000);
    assert_eq!(of("evictions_total", "block").await, 0);
    for number in 2..=60 {
        client.call(BLOCK_BY_NUMBER, json!([format!("{number:#x}"), true])).await;
    }
    eventually("blocks make room for others", async || {
        client.call(BLOCK_BY_NUMBER, json!(["0x3c", true])).await;
        let (held, gone) = (of("entries", "block").await, of("evictions_total", "block").await);
        let bytes =
            of("bytes", "block").await + of("bytes", "receipts").await + of("bytes", "block_hashes").await;
        held + gone == 60 && gone > 0 && bytes <= proxy.metric("holdfast_cache_capacity_bytes").await
    })
    .await;
    assert_eq!(proxy.metric("holdfast_cache_capacity_bytes").await, 200 * 1024);
}

#[tokio::test]
async fn chain_and_reorg_metrics_are_true() {
    let node = upstream::devchain().blocks(100, 1).run().await;
    let proxy =
        proxy::new().upstream(&node).config(|config| config.chain.max_staleness = Duration::ZERO).run().await;
    let client = client::http(&proxy);
    for _ in 0..8 {
        node.mine(1);
        client.call(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    }
    client.call(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    assert_eq!(proxy.metric("holdfast_head_number").await, 108);
    let finalized =
        client.call(BLOCK_BY_NUMBER, json!(["finalized", false])).await.json()["result"]["number"].clone();
    let finalized = u64::from_str_radix(finalized.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
    assert_eq!(proxy.metric("holdfast_finalized_number").await, finalized);
    let reorgs = async |depth: &str| {
        proxy.metric(&format!(r#"holdfast_reorgs_total{{kind="reorg",depth="{depth}"}}"#)).await
    };
    node.reorg(1, 1);
    client.call(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    assert_eq!([reorgs("1").await, reorgs("unknown").await], [1, 0]);
    // The new branch does not link to a known block, because the tracker fetches only a few parents.
    node.reorg(12, 13);
    client.call(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    assert_eq!([reorgs("1").await, reorgs("unknown").await], [1, 1]);
    assert_eq!(proxy.metric("holdfast_head_number").await, 109);
    let refreshes = async |outcome: &str| {
        proxy.metric(&format!(r#"holdfast_view_refreshes_total{{tag="latest",outcome="{outcome}"}}"#)).await
    };
    assert!(refreshes("answered").await >= 2);
    assert_eq!(refreshes("failed").await, 0);
    node.fail(Fault::Status(500)).always();
    client.call(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    assert!(refreshes("failed").await >= 1);
}

#[tokio::test]
async fn endpoint_and_verification_metrics_are_true() {
    let node = upstream::devchain().config(|config| config.chain_id = 1).blocks(20, 2).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    let name = node.url();
    let state = async |state: &str| {
        proxy.metric(&format!(r#"holdfast_endpoint_state{{endpoint="{name}",state="{state}"}}"#)).await
    };
    client.call(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    assert_eq!((state("ok").await, state("unhealthy").await), (1, 0));
    assert_eq!(proxy.metric(&format!("holdfast_endpoint_primary{{endpoint=\"{name}\"}}")).await, 1);
    assert_eq!(proxy.metric(&format!("holdfast_endpoint_head{{endpoint=\"{name}\"}}")).await, 20);
    assert_eq!(proxy.metric("holdfast_ready").await, 1);
    let demands = ["auto", "full", "structural"];
    for content in ["headers", "blocks", "receipts"] {
        let mut sum = 0;
        for level in demands {
            let labels = format!(r#"content="{content}",level="{level}""#);
            sum += proxy.metric(&format!("holdfast_verification_level{{{labels}}}")).await;
        }
        assert_eq!(sum, 1, "{content}");
    }
    be_lied_to(&node, &client).await;
    assert!(proxy.metric(r#"holdfast_mismatches_total{reason="header_hash"}"#).await >= 1);
    node.fail(Fault::Status(503)).always();
    eventually("it is unhealthy", async || {
        client.call("eth_gasPrice", json!([])).await;
        state("unhealthy").await == 1 && proxy.metric("holdfast_ready").await == 0
    })
    .await;
    assert_eq!(state("ok").await, 0);
}

#[tokio::test]
async fn refusals_are_counted_by_reason() {
    let node = upstream::devchain().blocks(3, 2).run().await;
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| {
            config.http.max_body = ByteSize::kib(4);
            config.http.max_batch_answer = ByteSize::kib(2);
        })
        .run()
        .await;
    let client = client::http(&proxy);
    client.send("{").await;
    client.send("[]").await;
    client.send(" ".repeat(5000)).await;
    Response::of(client.request(Method::PUT)).await;
    let block = json!({ "jsonrpc": "2.0", "id": 1, "method": BLOCK_BY_NUMBER, "params": ["0x1", true] });
    let batch = client.send(json!(vec![block; 40]).to_string()).await;
    let left = batch.json().as_array().unwrap().iter().filter(|answer| answer.get("error").is_some()).count();
    assert!(left > 0, "{}", batch.text());
    let refused = async |reason: &str| {
        proxy.metric(&format!("holdfast_requests_refused_total{{reason=\"{reason}\"}}")).await
    };
    for reason in ["parse_error", "invalid_request", "body_too_large", "http_method"] {
        assert_eq!(refused(reason).await, 1, "{reason}");
    }
    assert_eq!(refused("overloaded").await, 0);
    assert_eq!(proxy.metric(r#"holdfast_calls_left_out_total{reason="batch_too_large"}"#).await, left as u64);
    eventually("nothing in flight", async || {
        proxy.metric("holdfast_requests_in_flight").await == 0
            && proxy.metric("holdfast_bytes_in_flight").await == 0
    })
    .await;
}
