//! Spans of requests, calls and attempts reach a receiver, as parts of the client's trace.

mod receiver;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use self::receiver::{CLIENT, Manner, Receiver, SERVER, Span};
use crate::support::{
    client::{Client, Response},
    eventually,
    process::{self, Process},
    program::{self, holdfast, output, text},
    server::{self, Server},
    upstream,
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// Parameters that ask for a block with its transactions.
const BLOCK_PARAMS: &str = r#"["0x1",true]"#;

/// Returns a distinct trace id for each number.
fn trace(of: usize) -> String {
    format!("{:032x}", of + 1)
}

/// Returns the `traceparent` of a client.
fn parent(trace: &str, flags: &str) -> String {
    format!("00-{trace}-{PARENT}-{flags}")
}

fn balance(of: usize) -> Value {
    json!({ "jsonrpc": "2.0", "id": of, "method": "eth_getBalance", "params": [format!("0x{of:040x}"), "latest"] })
}

async fn send(client: &Client, parent: &str, body: Value) -> Response {
    let request = client.post().header("content-type", "application/json");
    let request = request.header("traceparent", parent).header("tracestate", "a=b");
    Response::of(request.body(body.to_string())).await
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

fn one<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let [one] = named(spans, name)[..] else { panic!("not one {name}: {spans:?}") };
    one
}

/// Returns the `traceparent` headers of the requests to the node that contain `text`.
fn told(node: &Server, text: &str) -> Vec<String> {
    let header = |seeing: &server::Seeing| {
        let parent = seeing.headers.get("traceparent");
        parent.map_or_else(String::new, |parent| parent.to_str().unwrap().to_owned())
    };
    node.seen().calls(text).map(header).collect()
}

async fn node() -> Server {
    server::node(&upstream::devchain().blocks(3, 2).chain()).run().await
}

fn serve(node: &Server, receiver: &Receiver) -> process::Builder {
    process::serve_url(&format!("{}/SECRET", node.url())).set("TRACING__OTLP", &receiver.url())
}

fn stop(process: &Process) {
    process.signal(Signal::TERM);
}

#[tokio::test]
async fn call_and_its_attempts_are_spans_of_the_clients_trace() {
    let (node, receiver) = (node().await, receiver::run(Manner::Takes).await);
    let process = serve(&node, &receiver)
        .set("TRACING__HEADERS", r#"{authorization={env="OTLP_TOKEN"}}"#)
        .env("OTLP_TOKEN", "Bearer SECRET")
        .run()
        .await;
    let answer = send(&process.client(), &parent(TRACE, "01"), balance(1)).await;
    assert!(answer.outcome().is_ok());
    let spans = receiver.trace(TRACE, "request").await;
    let (request, call, attempt) = (one(&spans, "request"), one(&spans, "call"), one(&spans, "upstream"));
    assert_eq!(request.parent, PARENT);
    assert_eq!(call.parent, request.id);
    assert_eq!(attempt.parent, call.id);
    assert_eq!((request.kind, attempt.kind), (SERVER, CLIENT));
    assert!(request.took >= call.took && call.took >= attempt.took);
    assert_eq!((request.said("method"), request.said("status")), ("POST", "200"));
    assert_eq!((call.said("method"), call.said("outcome")), ("eth_getBalance", "bypass"));
    assert_eq!((attempt.said("method"), attempt.said("outcome")), ("eth_getBalance", "result"));
    assert_eq!(attempt.said("endpoint"), format!("{}/…", node.url()));
    assert_eq!(attempt.status, 0);
    // The node's own spans would be children of the attempt.
    assert_eq!(told(&node, "eth_getBalance"), [format!("00-{TRACE}-{}-01", attempt.id)]);
    let state = node.seen().calls("eth_getBalance").next().unwrap().headers.get("tracestate").cloned();
    assert_eq!(state.unwrap(), "a=b");

    let seen = receiver.seen();
    assert_eq!(seen.resource["service.name"], "holdfast");
    for (path, headers) in &seen.requests {
        assert_eq!(path, "/v1/traces");
        assert_eq!(headers["content-type"], "application/x-protobuf");
        assert_eq!(headers["authorization"], "Bearer SECRET");
    }
    let shown = format!("{:?}{:?}{}", seen.spans, seen.resource, process.said());
    assert!(!shown.contains("SECRET"), "{shown}");
    assert!(!process.said().contains("request answered"), "the log level is info");
}

#[tokio::test]
async fn only_otel_resource_variables_count() {
    let (node, receiver) = (node().await, receiver::run(Manner::Takes).await);
    let mut process = serve(&node, &receiver);
    for (name, value) in [
        ("OTEL_SERVICE_NAME", "sidecar"),
        ("OTEL_RESOURCE_ATTRIBUTES", "pod=seven,service.name=other"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=SECRET"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_TRACES_SAMPLER", "always_off"),
        ("OTEL_BSP_SCHEDULE_DELAY", "3600000"),
    ] {
        process = process.env(name, value);
    }
    let process = process.run().await;
    assert!(process.client().send(balance(1).to_string()).await.outcome().is_ok());
    eventually("spans", async || !named(&receiver.seen().spans, "request").is_empty()).await;
    let seen = receiver.seen();
    assert_eq!((&*seen.resource["service.name"], &*seen.resource["pod"]), ("sidecar", "seven"));
    assert!(seen.requests.iter().all(|(_, headers)| !headers.contains_key("x-key")));
}

#[tokio::test]
async fn each_call_of_a_batch_has_its_span() {
    let (node, receiver) = (node().await, receiver::run(Manner::Takes).await);
    let process = serve(&node, &receiver).run().await;
    let block =
        json!({ "jsonrpc": "2.0", "id": 0, "method": "eth_getBlockByNumber", "params": ["0x1", true] });
    let client = process.client();
    assert!(send(&client, &parent(&trace(0), "01"), block.clone()).await.outcome().is_ok());
    // A separate task makes the fetch, but its span belongs to this call.
    let fetched = receiver.trace(&trace(0), "request").await;
    let call = one(&fetched, "call");
    let [told_of_it] = &told(&node, BLOCK_PARAMS)[..] else {
        panic!("the node did not get exactly one request for the block")
    };
    let is_told_of = |span: &&Span| *told_of_it == format!("00-{}-{}-01", trace(0), span.id);
    let fetch = named(&fetched, "upstream").into_iter().find(is_told_of).unwrap();
    assert_eq!(fetch.parent, call.id);

    let batch = json!([block, balance(1), balance(2)]);
    assert_eq!(send(&client, &parent(TRACE, "01"), batch).await.json().as_array().unwrap().len(), 3);
    let spans = receiver.trace(TRACE, "request").await;
    let (request, calls) = (one(&spans, "request"), named(&spans, "call"));
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| call.parent == request.id));
    for call in calls.iter().filter(|call| call.said("method") == "eth_getBalance") {
        assert_eq!(
            named(&spans, "upstream").iter().filter(|span| span.parent == call.id).count(),
            1,
            "{spans:?}"
        );
    }
    let hit = calls.iter().find(|call| call.said("method") == "eth_getBlockByNumber").unwrap();
    assert_eq!(hit.said("outcome"), "hit");
    assert_eq!(told(&node, BLOCK_PARAMS).len(), 1);
}

#[tokio::test]
async fn spans_of_unsampled_traces_are_not_sent() {
    let (node, receiver) = (node().await, receiver::run(Manner::Takes).await);
    // The proxy samples none of its own traces, but still obeys the clients' flags.
    let process = serve(&node, &receiver).set("TRACING__SAMPLE", "0").run().await;
    let client = process.client();
    for (of, flags) in [(1, "00"), (2, "02"), (3, "01")] {
        let answer = send(&client, &parent(&trace(of), flags), balance(of)).await;
        assert!(answer.outcome().is_ok());
        let told = told(&node, &format!("0x{of:040x}"));
        let sampled = if flags == "01" { "-01" } else { "-00" };
        assert!(told[0].starts_with(&format!("00-{}-", trace(of))) && told[0].ends_with(sampled), "{told:?}");
        assert!(!told[0].contains(PARENT), "{told:?}");
    }
    let answer = client.send(balance(4).to_string()).await;
    assert!(answer.outcome().is_ok());
    assert!(send(&client, &parent(&trace(5), "01"), balance(5)).await.outcome().is_ok());
    receiver.trace(&trace(5), "request").await;
    let seen = receiver.seen();
    let recorded = |span: &Span| span.trace == trace(3) || span.trace == trace(5);
    assert!(seen.spans.iter().all(recorded), "{:?}", seen.spans);
}

#[tokio::test]
async fn missing_or_malformed_traceparent_begins_a_new_trace() {
    let (node, receiver) = (node().await, receiver::run(Manner::Takes).await);
    let process = serve(&node, &receiver).run().await;
    let wrong = parent(&"0".repeat(32), "01");
    assert!(send(&process.client(), &wrong, balance(1)).await.outcome().is_ok());
    let told = told(&node, "eth_getBalance");
    let [_, trace, attempt, "01"] = told[0].split('-').collect::<Vec<_>>()[..] else { panic!("{told:?}") };
    let spans = receiver.trace(trace, "request").await;
    assert_eq!(one(&spans, "request").parent, "");
    assert_eq!(one(&spans, "upstream").id, attempt);
}

#[tokio::test]
async fn failed_attempt_has_an_error_status() {
    let receiver = receiver::run(Manner::Takes).await;
    let process = process::serve_url("http://127.0.0.1:1").set("TRACING__OTLP", &receiver.url());
    let process = process.though_not_ready().run().await;
    // Identification belongs to no client, so it has a trace of its own.
    eventually("an attempt", async || !named(&receiver.seen().spans, "upstream").is_empty()).await;
    let attempt = named(&receiver.seen().spans, "upstream")[0].clone();
    assert_eq!((attempt.said("outcome"), attempt.parent.as_str()), ("connect", ""));
    assert_eq!(attempt.status, 2);
    assert!(send(&process.client(), &parent(TRACE, "01"), balance(1)).await.outcome().is_err());
    let spans = receiver.trace(TRACE, "request").await;
    assert_eq!(one(&spans, "call").said("outcome"), "upstream_failed");
}

#[tokio::test]
async fn failing_receiver_affects_no_call_and_is_rarely_logged() {
    let (node, refusing) = (node().await, receiver::run(Manner::Refuses).await);
    let process = serve(&node, &refusing).run().await;
    let (client, begun) = (process.client(), Instant::now());
    let mut of = 0;
    // Sends more spans than the queue holds, over more than one export.
    while of < 2_000 || refusing.seen().requests.len() < 3 {
        let batch: Vec<_> = (of..of + 500).map(balance).collect();
        assert_eq!(send(&client, &parent(TRACE, "01"), json!(batch)).await.status, 200);
        of += 500;
    }
    process.says("span export failed").await;
    let (said, seldom) = (process.said(), 1 + begun.elapsed().as_secs() / 10);
    assert!(said.matches("span export failed").count() as u64 <= seldom, "{said}");
    assert!(!process.said().contains("SECRET"));
}

#[tokio::test]
async fn shutdown_does_not_wait_long_for_a_hanging_receiver() {
    let (node, hanging) = (node().await, receiver::run(Manner::Hangs).await);
    let mut process = serve(&node, &hanging).run().await;
    assert!(send(&process.client(), &parent(TRACE, "01"), balance(1)).await.outcome().is_ok());
    eventually("a request to hang", async || !hanging.seen().requests.is_empty()).await;
    assert!(send(&process.client(), &parent(TRACE, "01"), balance(2)).await.outcome().is_ok());
    let told = Instant::now();
    stop(&process);
    assert_eq!(process.exit_code().await, Some(0));
    assert!(told.elapsed() < Duration::from_secs(8), "{:?}", told.elapsed());
}

#[tokio::test]
async fn pending_spans_are_sent_at_shutdown() {
    let (node, receiver) = (node().await, receiver::run(Manner::Takes).await);
    let mut process = serve(&node, &receiver).run().await;
    assert!(send(&process.client(), &parent(TRACE, "01"), balance(1)).await.outcome().is_ok());
    stop(&process);
    assert_eq!(process.exit_code().await, Some(0));
    let spans: Vec<_> = receiver.seen().spans.iter().filter(|span| span.trace == TRACE).cloned().collect();
    for name in ["request", "call", "upstream"] {
        one(&spans, name);
    }
}

#[tokio::test]
async fn log_level_changes_beside_the_exporter() {
    let (node, receiver) = (node().await, receiver::run(Manner::Takes).await);
    let config = |level: &str| {
        format!(
            "[log]\nlevel = '{level}'\n[tracing]\notlp = '{}'\n[[upstream.endpoints]]\nurl = '{}'\n",
            receiver.url(),
            node.url()
        )
    };
    let file = program::file("traced.toml", &config("info"));
    let process = process::serve_file(&file).run().await;
    let client = process.client();
    for (of, level, is_logged) in [(1, "info", false), (2, "debug", true), (3, "error", false)] {
        std::fs::write(&file, config(level)).unwrap();
        let applied = process.metric(r#"holdfast_config_reloads_total{outcome="applied"}"#).await;
        process.signal(Signal::HUP);
        eventually("a reload", async || {
            process.metric(r#"holdfast_config_reloads_total{outcome="applied"}"#).await > applied
        })
        .await;
        let before = process.said().matches("request answered").count();
        assert!(send(&client, &parent(&trace(of), "01"), balance(of)).await.outcome().is_ok());
        let spans = receiver.trace(&trace(of), "request").await;
        assert_eq!(spans.len(), 3, "{spans:?}");
        if is_logged {
            process.says("request answered").await;
        } else {
            assert_eq!(process.said().matches("request answered").count(), before, "{level}");
        }
    }
}

#[tokio::test]
async fn invalid_receiver_is_refused_at_start() {
    for (key, value, message) in [
        (
            "OTLP",
            "localhost:4318/SECRET",
            "tracing.otlp: expected the URL of a receiver that speaks OTLP over HTTP",
        ),
        ("SAMPLE", "1.5", "tracing.sample: 1.5 is out of range"),
    ] {
        for arguments in [&["check", "--offline", "--upstream", "http://127.0.0.1:1"][..], &["serve"]] {
            let mut command = holdfast(arguments);
            command.env(format!("HOLDFAST_TRACING__{key}"), value);
            let output = output(command).await;
            assert_eq!(output.status.code(), Some(64));
            assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
            assert!(!text(&output.stderr).contains("SECRET"));
        }
    }
}
