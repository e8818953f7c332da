//! The reqwest client, for endpoints that the [direct client](super::direct) does not reach.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use http::HeaderMap;
use reqwest::{Client, ClientBuilder, redirect};
use tower::{Service, layer::layer_fn};

use super::{super::Config, EndpointUrl};
use crate::context::CallContext;

/// Connections kept open while nothing is asked: shorter than the idle time-out of common nodes and
/// balancers (geth 120 s, AWS 60 s), so that a call seldom meets a connection just being closed.
pub(in crate::upstream) const IDLE_TIMEOUT: Duration = Duration::from_secs(50);

/// An HTTP/2 connection is pinged after a fourth of an attempt's time without a frame, and has as long
/// to answer: it is found dead before its call is given up. A node that is merely slow answers pings.
const PINGS_PER_TIMEOUT: u32 = 4;

/// Who we say we are.
pub(in crate::upstream) const USER_AGENT: &str = concat!("holdfast/", env!("CARGO_PKG_VERSION"));

/// Makes connections, and lets it be known.
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
        // A small container has no certificates to go by, and needs none.
        return client_builder(url, headers, config).tls_certs_only([]).build();
    }
    built
}

#[expect(clippy::disallowed_methods, reason = "the one place that builds a client, with its time-outs set")]
fn client_builder(url: &EndpointUrl, headers: HeaderMap, config: &Config) -> ClientBuilder {
    let mut builder = Client::builder()
        // The whole attempt has its time in `stack`.
        .connect_timeout(config.connect_timeout)
        .pool_idle_timeout(IDLE_TIMEOUT)
        // Innermost of what makes a connection, and only then: a call that finds one open does not come by here.
        .connector_layer(layer_fn(MonitoredConnector))
        .tcp_nodelay(true)
        // All calls share an HTTP/2 connection: if the other end falls silent on it, each of them would
        // wait in vain, and none would lead to another connection.
        .http2_keep_alive_interval(config.timeout / PINGS_PER_TIMEOUT)
        .http2_keep_alive_timeout(config.timeout / PINGS_PER_TIMEOUT)
        .gzip(true)
        .zstd(true)
        // A node that redirects is not the node that was configured, and would get its credentials.
        .redirect(redirect::Policy::none())
        .referer(false)
        .user_agent(USER_AGENT)
        .default_headers(headers);
    if url.is_loopback() {
        builder = builder.no_proxy();
    }
    builder
}

/// One provider of cryptography for all.
pub(in crate::upstream) fn install_tls() {
    // Fails if it was installed before, which is just as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
