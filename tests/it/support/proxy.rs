//! The proxy under test, in this process, on its own loopback ports.

use std::net::SocketAddr;

use holdfast::{
    app::App,
    config::{Config, Sources},
    http::{KeyConfig, KeyHash},
    upstream::EndpointConfig,
};

use super::{authority::Pair, client, upstream::Node};

/// Builder of a [`Proxy`].
#[derive(Clone, Debug)]
pub struct Builder {
    config: Config,
    wait_until_ready: bool,
}

/// A running proxy.
pub struct Proxy {
    pub app: App,
}

pub fn new() -> Builder {
    let config = Sources::none()
        .with_flag("listen", Some("127.0.0.1:0"))
        .with_flag("admin", Some("127.0.0.1:0"))
        .load()
        .unwrap();
    Builder { config, wait_until_ready: true }
}

/// Returns the name of the sample that counts connections closed for this reason.
pub fn closed(reason: &str) -> String {
    format!(r#"holdfast_connections_closed_total{{reason="{reason}"}}"#)
}

// === impl Builder ===

impl Builder {
    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    pub fn upstream(self, node: &Node) -> Self {
        self.upstream_url(&node.url())
    }

    pub fn upstream_url(self, url: &str) -> Self {
        self.config(|config| config.upstream.endpoints = vec![EndpointConfig::at(url)])
    }

    /// Declares the upstream a single node.
    pub fn consistent(self) -> Self {
        self.config(|config| config.upstream.endpoints[0].consistent = true)
    }

    /// Serves TLS with this certificate.
    pub fn tls(self, pair: &Pair) -> Self {
        self.config(|config| {
            config.tls.cert = Some(pair.cert.clone());
            config.tls.key = Some(pair.key.clone());
        })
    }

    /// Does not wait until the proxy is ready.
    pub fn though_not_ready(self) -> Self {
        Self { wait_until_ready: false, ..self }
    }

    pub async fn run(self) -> Proxy {
        let app = App::builder().config(self.config).start().await.unwrap();
        if self.wait_until_ready {
            app.ready().await;
        }
        Proxy { app }
    }
}

// === impl Proxy ===

impl Proxy {
    pub fn address(&self) -> SocketAddr {
        self.app.rpc_address()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    pub fn admin_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.app.admin_address())
    }

    /// Returns a sample of `/metrics`.
    pub async fn metric(&self, sample: &str) -> u64 {
        client::metric(&self.admin_url(""), sample).await
    }
}

/// Returns the configuration of an API key.
pub fn key(name: &str, key: &str) -> KeyConfig {
    KeyConfig {
        name: name.to_owned(),
        sha256: KeyHash::of(key.as_bytes()),
        allow: None,
        deny: Vec::new(),
        rate: None,
        burst: None,
    }
}
