//! The whole proxy without sockets: request bytes in, response bytes out, with controllable time.

use std::{
    convert::Infallible,
    io::Read,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::SystemTime,
};

use bytes::Bytes;
use flate2::read::GzDecoder;
use holdfast::{
    app::{App, InProcess},
    cache::{TierMetrics, Tiers},
    config::Config,
    devchain::DevChain,
    http::Portion,
    upstream::{Call, Calls, EndpointAddress, EndpointConfig, EndpointParts, InProcessTransport, Upstream},
    verify::{self, Verifier},
};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::{ServiceExt, service_fn, util::BoxCloneSyncService};

// Benchmarks include this file alone.
#[path = "transcript.rs"]
pub mod transcript;

pub type Body = http_body_util::combinators::UnsyncBoxBody<Portion, Infallible>;

/// A client together with the proxy and its node. Cheap to clone.
#[derive(Clone)]
pub struct InMemory {
    app: InProcess,
    path: String,
    accepts: Accepts,
    /// The upstream, for its status.
    pub upstream: Upstream,
    /// The tiers behind the memory cache.
    pub tiers: Tiers,
}

/// Value of `accept-encoding`.
#[derive(Clone)]
enum Accepts {
    Unsaid,
    Always(&'static str),
    /// `gzip` in three of four requests, counted over all clones.
    Mostly(Arc<AtomicUsize>),
}

/// Returns a configuration with one endpoint that is `consistent`.
pub fn consistent() -> Config {
    let mut config = Config::default();
    config.upstream.endpoints = vec![EndpointConfig { consistent: true, ..EndpointConfig::at("") }];
    config
}

/// Starts a proxy in front of this chain, with its background tasks.
pub fn program(chain: &DevChain, config: &Config) -> InMemory {
    program_over(&[chain], config)
}

/// Returns the wall-clock time derived from tokio's clock. If tokio's clock is paused, the two would otherwise
/// diverge.
fn wall() -> SystemTime {
    static BEGUN: LazyLock<(Instant, SystemTime)> = LazyLock::new(|| (Instant::now(), SystemTime::now()));
    let ((begun, wall), now) = (*BEGUN, Instant::now());
    // Each test has its own tokio clock, which may be behind `BEGUN`.
    wall + now.saturating_duration_since(begun) - begun.saturating_duration_since(now)
}

/// Returns an endpoint for a chain.
pub fn endpoint(chain: &DevChain, name: &str, config: EndpointConfig) -> EndpointParts {
    let transport = BoxCloneSyncService::new(InProcessTransport::new(chain.clone()));
    EndpointParts { name: name.into(), address: Some(address(name)), transport, config }
}

/// Returns the address of a node of this name.
pub fn address(name: &str) -> EndpointAddress {
    EndpointAddress::resolve(&EndpointConfig::at(format!("http://{}.test", name.replace(' ', "-")))).unwrap()
}

/// Same as [`program`], but in front of several nodes, in the order of the configured endpoints.
pub fn program_over(chains: &[&DevChain], config: &Config) -> InMemory {
    let endpoints = chains.iter().zip(0..).map(|(chain, at)| {
        let config = config.upstream.endpoints.get(at).cloned();
        endpoint(chain, &format!("devchain {at}"), config.unwrap_or_else(|| EndpointConfig::at("")))
    });
    program_of(endpoints.collect(), config)
}

/// Same as [`program`], but in front of these endpoints.
pub fn program_of(endpoints: Vec<EndpointParts>, config: &Config) -> InMemory {
    program_with(endpoints, config, |_| Tiers::default())
}

/// Same as [`program`], but with this verifier.
pub fn program_verified_by(
    chain: &DevChain,
    config: &Config,
    verifier: impl FnOnce(verify::Metrics) -> Verifier,
) -> InMemory {
    let endpoints = vec![endpoint(chain, "devchain", EndpointConfig::at(""))];
    assemble(endpoints, config, |_| Tiers::default(), verifier)
}

/// Same as [`program_of`], but with tiers.
pub fn program_with(
    endpoints: Vec<EndpointParts>,
    config: &Config,
    tiers: impl FnOnce(TierMetrics) -> Tiers,
) -> InMemory {
    assemble(endpoints, config, tiers, |metrics| Verifier::new(config.verify.clone(), metrics))
}

fn assemble(
    endpoints: Vec<EndpointParts>,
    config: &Config,
    tiers: impl FnOnce(TierMetrics) -> Tiers,
    verifier: impl FnOnce(verify::Metrics) -> Verifier,
) -> InMemory {
    transcript::note(|| "start".to_owned());
    let endpoints = endpoints.into_iter().map(recorded).collect();
    // The registry has no prefix `holdfast_`, so tests name metrics as the code does.
    let mut registry = Registry::default();
    let tiers = tiers(TierMetrics::register(&mut registry));
    let verifier = verifier(verify::Metrics::register(&mut registry));
    let app = App::builder()
        .config(config.clone())
        .endpoints(endpoints)
        .tiers(tiers)
        .verifier(verifier)
        .registry(registry)
        .wall_clock(wall);
    InMemory::of(app.in_process().unwrap())
}

/// Adds each call of this endpoint to the transcript, if one is being written.
fn recorded(endpoint: EndpointParts) -> EndpointParts {
    if !transcript::is_on() {
        return endpoint;
    }
    let (name, transport) = (endpoint.name.clone(), endpoint.transport);
    let transport = BoxCloneSyncService::new(service_fn(move |calls: Calls| {
        transcript::note(|| {
            let call = |call: &Call| {
                let params = String::from_utf8_lossy(call.params.as_bytes());
                format!(" {}{params}", call.method.as_str())
            };
            format!("{name} <-{}", calls.iter().map(call).collect::<String>())
        });
        transport.clone().oneshot(calls)
    }));
    EndpointParts { transport, ..endpoint }
}

// === impl InMemory ===

impl InMemory {
    fn of(app: InProcess) -> Self {
        let (upstream, tiers) = (app.upstream().clone(), app.tiers().clone());
        Self { app, path: "/".to_owned(), accepts: Accepts::Unsaid, upstream, tiers }
    }

    /// Sends this key with each request.
    pub fn with_key(self, key: &str) -> Self {
        Self { path: format!("/k/{key}"), ..self }
    }

    /// Sends these encodings as `accept-encoding` with each request. Gzip-compressed answers are decoded.
    pub fn accepting(self, encodings: &'static str) -> Self {
        Self { accepts: Accepts::Always(encodings), ..self }
    }

    /// Accepts gzip in three of four requests.
    pub fn accepting_gzip_mostly(self) -> Self {
        Self { accepts: Accepts::Mostly(Arc::default()), ..self }
    }

    /// Sends a body, and returns status, headers and body of the answer.
    pub async fn response(&self, body: impl Into<Bytes>) -> (u16, ::http::HeaderMap, Value) {
        let (parts, body) = self.respond(body).await.into_parts();
        (parts.status.as_u16(), parts.headers, serde_json::from_slice(&body).unwrap())
    }

    /// Sends a body, and returns status and body of the answer.
    pub async fn send(&self, body: impl Into<Bytes>) -> (u16, Bytes) {
        let (parts, body) = self.respond(body).await.into_parts();
        (parts.status.as_u16(), body)
    }

    /// Sends a body, and returns `cache-status` and body of the answer.
    pub async fn send_for_status(&self, body: impl Into<Bytes>) -> (String, Bytes) {
        let response = self.respond(body).await;
        let status = response.headers()["cache-status"].to_str().unwrap().to_owned();
        (status, response.into_body())
    }

    /// Sends a body, and returns the whole answer, decoded.
    pub async fn respond(&self, body: impl Into<Bytes>) -> ::http::Response<Bytes> {
        let accepted = match &self.accepts {
            Accepts::Unsaid => None,
            Accepts::Always(encodings) => Some(*encodings),
            Accepts::Mostly(count) => (count.fetch_add(1, Relaxed) % 4 != 3).then_some("gzip"),
        };
        let (parts, body) = self.respond_raw(body, accepted).await.into_parts();
        let announced = body.size_hint().exact();
        let mut body = body.collect().await.unwrap().to_bytes();
        assert_eq!(announced, Some(body.len() as u64));
        if parts.headers.contains_key("content-encoding") {
            assert!(accepted.is_some_and(|accepted| accepted.contains("gzip")), "gzip was not accepted");
            let mut plain = Vec::new();
            GzDecoder::new(&body[..]).read_to_end(&mut plain).unwrap();
            body = plain.into();
        }
        transcript::note(|| format!("client <- {parts:?} {}", String::from_utf8_lossy(&body)));
        ::http::Response::from_parts(parts, body)
    }

    /// Sends a body, and returns the answer without decoding it.
    pub async fn respond_raw(
        &self,
        body: impl Into<Bytes>,
        accepted: Option<&'static str>,
    ) -> ::http::Response<Body> {
        let mut request = ::http::Request::post(&self.path).header("content-type", "application/json");
        if let Some(encodings) = accepted {
            request = request.header("accept-encoding", encodings);
        }
        let request = request.body(Full::from(body.into())).unwrap();
        self.app.request(request).await
    }

    /// Calls a method and returns `cache-status` and the result.
    pub async fn cached(&self, method: &str, params: Value) -> (String, Value) {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let response = self.respond(call.to_string()).await;
        let status = response.headers()["cache-status"].to_str().unwrap().to_owned();
        let reply: Value = serde_json::from_slice(response.body()).unwrap();
        (status, reply["result"].clone())
    }

    pub async fn call(&self, method: &str, params: Value) -> (u16, Value) {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let (status, body) = self.send(call.to_string()).await;
        (status, serde_json::from_slice(&body).unwrap())
    }

    /// Calls a method that must succeed, and returns the result.
    pub async fn ask(&self, method: &str, params: Value) -> Value {
        let (_, mut reply) = self.call(method, params.clone()).await;
        assert!(reply.get("error").is_none(), "{method} {params}: {reply}");
        reply["result"].take()
    }

    /// Calls a method and returns `cache-status`.
    pub async fn cache_status(&self, method: &str, params: Value) -> String {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let response = self.respond(call.to_string()).await;
        response.headers()["cache-status"].to_str().unwrap().to_owned()
    }

    /// Sends a batch whose calls must all succeed, and returns the results in order.
    pub async fn batch(&self, calls: &[(&str, Value)]) -> Vec<Value> {
        let result = |mut reply: Value| {
            assert!(reply.get("error").is_none(), "{reply}");
            reply["result"].take()
        };
        self.call_batch(calls).await.into_iter().map(result).collect()
    }

    /// Sends a batch, and returns the replies in order.
    pub async fn call_batch(&self, calls: &[(&str, Value)]) -> Vec<Value> {
        let calls: Vec<_> = calls
            .iter()
            .zip(0..)
            .map(|((method, params), id)| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .collect();
        let (_, body) = self.send(json!(calls).to_string()).await;
        serde_json::from_slice(&body).unwrap()
    }

    /// Returns all metrics of the proxy.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, self.app.registry()).unwrap();
        text
    }

    /// Returns a sample by its name without the prefix `holdfast_`, or 0 if it does not exist.
    pub fn metric(&self, sample: &str) -> u64 {
        let text = self.metrics();
        let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }
}
