//! The whole program without a socket: request bytes in, response bytes out, time under control.

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
    upstream::{EndpointAddress, EndpointConfig, EndpointParts, InProcessTransport, Upstream},
    verify::{self, Verifier},
};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;

pub type Body = http_body_util::combinators::UnsyncBoxBody<Portion, Infallible>;

/// A client and, right behind it, the program and its node. Cheap to clone.
#[derive(Clone)]
pub struct InMemory {
    app: InProcess,
    path: String,
    accepts: Accepts,
    /// How the nodes are doing.
    pub upstream: Upstream,
    /// What is behind memory.
    pub tiers: Tiers,
}

/// What is said in `accept-encoding`.
#[derive(Clone)]
enum Accepts {
    Unsaid,
    Always(&'static str),
    /// `gzip` in three of four requests, counted over all clones.
    Mostly(Arc<AtomicUsize>),
}

/// A configuration whose upstream is declared to be one node.
pub fn consistent() -> Config {
    let mut config = Config::default();
    config.upstream.endpoints = vec![EndpointConfig { consistent: true, ..EndpointConfig::at("") }];
    config
}

/// Runs in a task of its own what a started program runs in the background.
pub fn program(chain: &DevChain, config: &Config) -> InMemory {
    program_over(&[chain], config)
}

/// The wall's clock as the test's own goes: where that is paused, the real one would seem to jump.
fn wall() -> SystemTime {
    static BEGUN: LazyLock<(Instant, SystemTime)> = LazyLock::new(|| (Instant::now(), SystemTime::now()));
    let ((begun, wall), now) = (*BEGUN, Instant::now());
    // Each test has a clock of its own, which may be behind.
    wall + now.saturating_duration_since(begun) - begun.saturating_duration_since(now)
}

/// A node as an endpoint.
pub fn endpoint(chain: &DevChain, name: &str, config: EndpointConfig) -> EndpointParts {
    let transport = BoxCloneSyncService::new(InProcessTransport::new(chain.clone()));
    EndpointParts { name: name.into(), address: Some(address(name)), transport, config }
}

/// What a node of this name would be reached with.
pub fn address(name: &str) -> EndpointAddress {
    EndpointAddress::resolve(&EndpointConfig::at(format!("http://{}.test", name.replace(' ', "-")))).unwrap()
}

/// The same in front of several nodes, which are configured in the same order.
pub fn program_over(chains: &[&DevChain], config: &Config) -> InMemory {
    let endpoints = chains.iter().zip(0..).map(|(chain, at)| {
        let config = config.upstream.endpoints.get(at).cloned();
        endpoint(chain, &format!("devchain {at}"), config.unwrap_or_else(|| EndpointConfig::at("")))
    });
    program_of(endpoints.collect(), config)
}

/// The same in front of these endpoints, however they are reached.
pub fn program_of(endpoints: Vec<EndpointParts>, config: &Config) -> InMemory {
    program_with(endpoints, config, |_| Tiers::default())
}

/// The same with this verifier.
pub fn program_verified_by(
    chain: &DevChain,
    config: &Config,
    verifier: impl FnOnce(verify::Metrics) -> Verifier,
) -> InMemory {
    let endpoints = vec![endpoint(chain, "devchain", EndpointConfig::at(""))];
    assemble(endpoints, config, |_| Tiers::default(), verifier)
}

/// The same over what outlives memory.
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
    // Without a prefix: tests name metrics as the code does.
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

// === impl InMemory ===

impl InMemory {
    fn of(app: InProcess) -> Self {
        let (upstream, tiers) = (app.upstream().clone(), app.tiers().clone());
        Self { app, path: "/".to_owned(), accepts: Accepts::Unsaid, upstream, tiers }
    }

    /// Comes with this key.
    pub fn with_key(self, key: &str) -> Self {
        Self { path: format!("/k/{key}"), ..self }
    }

    /// Says so with each request. What comes as gzip is decoded.
    pub fn accepting(self, encodings: &'static str) -> Self {
        Self { accepts: Accepts::Always(encodings), ..self }
    }

    /// Takes gzip now and then, more often than not.
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
            assert!(accepted.is_some_and(|accepted| accepted.contains("gzip")), "nobody asked for it");
            let mut plain = Vec::new();
            GzDecoder::new(&body[..]).read_to_end(&mut plain).unwrap();
            body = plain.into();
        }
        ::http::Response::from_parts(parts, body)
    }

    /// Sends a body, and returns the answer as it comes.
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

    /// What the answer's `cache-status` says, and its result.
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

    /// The result of a call that succeeds.
    pub async fn ask(&self, method: &str, params: Value) -> Value {
        let (_, mut reply) = self.call(method, params.clone()).await;
        assert!(reply.get("error").is_none(), "{method} {params}: {reply}");
        reply["result"].take()
    }

    /// The `cache-status` of a call's response.
    pub async fn cache_status(&self, method: &str, params: Value) -> String {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let response = self.respond(call.to_string()).await;
        response.headers()["cache-status"].to_str().unwrap().to_owned()
    }

    /// The results of a batch whose calls all succeed, in order.
    pub async fn batch(&self, calls: &[(&str, Value)]) -> Vec<Value> {
        let calls: Vec<_> = calls
            .iter()
            .zip(0..)
            .map(|((method, params), id)| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .collect();
        let (_, body) = self.send(json!(calls).to_string()).await;
        let replies: Vec<Value> = serde_json::from_slice(&body).unwrap();
        let result = |mut reply: Value| {
            assert!(reply.get("error").is_none(), "{reply}");
            reply["result"].take()
        };
        replies.into_iter().map(result).collect()
    }

    /// All of the proxy's own samples.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, self.app.registry()).unwrap();
        text
    }

    /// One of them, by its name without the program's.
    pub fn metric(&self, sample: &str) -> u64 {
        let text = self.metrics();
        let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }
}
