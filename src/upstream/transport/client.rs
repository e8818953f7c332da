//! The HTTP client.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use http::HeaderMap;
use reqwest::{Client, ClientBuilder, redirect};
use tower::{Service, layer::layer_fn};

use super::{super::Config, EndpointUrl};
use crate::context::CallContext;

/// How long idle connections stay open. Common nodes and balancers close idle connections later (geth after 120 s, AWS
/// after 60 s), so Holdfast seldom sends a call on a connection that the node is closing.
pub(in crate::upstream) const IDLE_TIMEOUT: Duration = Duration::from_secs(50);

/// The interval of HTTP/2 pings is the time-out of an attempt divided by this. Holdfast pings a connection that has
/// had no frame for one interval, and waits one more for the reply. So it notices a dead connection before the call
/// times out. A slow node still answers pings.
const PINGS_PER_TIMEOUT: u32 = 4;

/// The `user-agent` header.
pub(in crate::upstream) const USER_AGENT: &str = concat!("holdfast/", env!("CARGO_PKG_VERSION"));

/// A connector that reports each connection that it opens.
#[derive(Clone, Debug)]
struct MonitoredConnector<S>(S);

impl<S: Service<R>, R> Service<R> for MonitoredConnector<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, to: R) -> S::Future {
        CallContext::report_connection();
        self.0.call(to)
    }
}

pub(in crate::upstream) fn build_client(
    url: &EndpointUrl,
    headers: HeaderMap,
    config: &Config,
) -> reqwest::Result<Client> {
    install_tls();
    let built = client_builder(url, headers.clone(), config).build();
    if built.is_err() && !url.is_https() {
        // A small container has no root certificates, and plain HTTP needs none.
        return client_builder(url, headers, config).tls_certs_only([]).build();
    }
    built
}

#[expect(clippy::disallowed_methods, reason = "the one place that builds a client, with its time-outs set")]
fn client_builder(url: &EndpointUrl, headers: HeaderMap, config: &Config) -> ClientBuilder {
    let mut builder = Client::builder()
        // `with_deadline` bounds the whole attempt.
        .connect_timeout(config.connect_timeout)
        .pool_idle_timeout(IDLE_TIMEOUT)
        // This layer of the connector runs only when a connection is opened, not when one is reused.
        .connector_layer(layer_fn(MonitoredConnector))
        .tcp_nodelay(true)
        // All calls share an HTTP/2 connection. Without pings, if the node fell silent, each call would time out, and
        // none would open a new connection.
        .http2_keep_alive_interval(config.timeout / PINGS_PER_TIMEOUT)
        .http2_keep_alive_timeout(config.timeout / PINGS_PER_TIMEOUT)
        .gzip(true)
        .zstd(true)
        // The target of a redirect is not the configured node, and would receive its credentials.
        .redirect(redirect::Policy::none())
        .referer(false)
        .user_agent(USER_AGENT)
        .default_headers(headers);
    if url.is_loopback() {
        builder = builder.no_proxy();
    }
    builder
}

/// Builds a client for a listener of an instance, with a time limit for each request.
#[expect(clippy::disallowed_methods, reason = "the time limit is set")]
pub(crate) fn instance_client(timeout: Duration, any_certificate: bool) -> reqwest::Result<Client> {
    install_tls();
    Client::builder()
        .timeout(timeout)
        .no_proxy()
        .redirect(redirect::Policy::none())
        // The blocks that the instance caches need no compressed form for this.
        .gzip(false)
        .zstd(false)
        .tls_danger_accept_invalid_certs(any_certificate)
        .build()
}

/// Installs the cryptography provider for the whole process.
pub(in crate::upstream) fn install_tls() {
    // Fails if a provider is installed already, which does no harm.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
