//! The whole program without a socket: request bytes in, response bytes out, time under control.

use std::convert::Infallible;

use bytes::Bytes;
use holdfast::{
    budget::ByteBudget,
    cache::Cache,
    config::Config,
    devchain::DevChain,
    http::{self, Edge},
    jsonrpc::Rope,
    proxy::{self, Identity, ProxyParts},
    upstream::{self, DevChainLeaf, Upstream},
};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::{ServiceExt, util::BoxCloneSyncService};

type Body = http_body_util::combinators::UnsyncBoxBody<Rope, Infallible>;

/// A client and, right behind it, the program and its node. Cheap to clone.
#[derive(Clone)]
pub struct InMemory {
    service: BoxCloneSyncService<::http::Request<Full<Bytes>>, ::http::Response<Body>, Infallible>,
}

/// Runs in a task of its own what a started program runs in the background.
pub fn program(chain: &DevChain, config: &Config) -> InMemory {
    let leaf = DevChainLeaf::new(chain.clone());
    let upstream = Upstream::new(leaf, "devchain", &config.upstream, &upstream::Metrics::default());
    let identity = Identity::new(config.chain_id);
    tokio::spawn(identity.watch(upstream.clone()));
    let consistent = config.upstream.endpoints.first().is_some_and(|endpoint| endpoint.consistent);
    let cache = Cache::new(&config.cache);
    let parts = ProxyParts { upstream, identity, cache, consistent, metrics: proxy::Metrics::default() };
    let bytes = config.max_bytes_in_flight.as_u64();
    let edge = Edge { budget: ByteBudget::new(bytes), waiting: ByteBudget::new(bytes), admin: None };
    let (proxy, follower) = proxy::proxy(&config.proxy(), parts);
    tokio::spawn(follower.run(None));
    let stack = http::stack(&config.http, edge, proxy);
    let service =
        ServiceExt::<::http::Request<Full<Bytes>>>::map_response(stack, |response: ::http::Response<_>| {
            response.map(BodyExt::boxed_unsync)
        });
    InMemory { service: BoxCloneSyncService::new(service) }
}

// === impl InMemory ===

impl InMemory {
    /// Sends a body, and returns status and body of the answer.
    pub async fn send(&self, body: impl Into<Bytes>) -> (u16, Bytes) {
        let response = self.post(body.into()).await;
        (response.status().as_u16(), response.into_body().collect().await.unwrap().to_bytes())
    }

    /// What the answer's `cache-status` says, and its result.
    pub async fn cached(&self, method: &str, params: Value) -> (String, Value) {
        let call = serde_json::json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let response = self.post(call.to_string().into()).await;
        let status = response.headers()["cache-status"].to_str().unwrap().to_owned();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let reply: Value = serde_json::from_slice(&body).unwrap();
        (status, reply["result"].clone())
    }

    async fn post(&self, body: Bytes) -> ::http::Response<Body> {
        let request = ::http::Request::post("/").header("content-type", "application/json");
        let request = request.body(Full::from(body)).unwrap();
        let Ok(response) = self.service.clone().oneshot(request).await;
        response
    }

    pub async fn call(&self, method: &str, params: Value) -> (u16, Value) {
        let call = serde_json::json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let (status, body) = self.send(call.to_string()).await;
        (status, serde_json::from_slice(&body).unwrap())
    }
}
