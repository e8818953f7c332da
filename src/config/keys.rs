//! All keys, and which values they may have together.

use std::{net::SocketAddr, time::Duration};

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

use super::{error::Problem, log::LogConfig, tracing::TracingConfig};
use crate::{cache, client::ClientLimit, display::Time, http, listen, proxy, upstream, verify};

/// Of anything at a time. No machine has as much, and what counts and adds these is far from its end.
const MOST: usize = 1 << 30;

/// Everything that can be set. `config/holdfast.toml` says what for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where operators connect.
    pub admin: SocketAddr,
    /// The hash of the token that operators need to change something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_token: Option<http::KeyHash>,
    /// The chain that the upstream must serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain_id: Option<u64>,
    /// Serve the six operations and nothing else.
    pub strict: bool,
    /// For one call, whatever it waits for.
    #[serde(with = "humantime_serde")]
    pub call_timeout: Duration,
    /// From the signal to stop until no connection is accepted any more.
    #[serde(with = "humantime_serde")]
    pub drain_delay: Duration,
    /// Bytes of large bodies and answers at a time: read from clients and upstreams, and waiting for clients.
    pub max_bytes_in_flight: ByteSize,
    /// Of these, the bytes held for one client. Half of them if `None`; all for an address that clients share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes_per_client: Option<ByteSize>,
    /// What is logged, and how.
    pub log: LogConfig,
    /// Where spans are sent.
    pub tracing: TracingConfig,
    /// Which methods are let through.
    pub methods: proxy::MethodsConfig,
    /// How the chain is followed.
    pub chain: proxy::ChainConfig,
    /// How answers are checked before they are kept.
    pub verify: verify::Config,
    /// What is kept in memory.
    pub cache: cache::Config,
    /// What a request may be like.
    pub http: http::Config,
    /// What a connection may be like.
    pub connections: listen::Config,
    /// The certificate that connections are secured with.
    pub tls: listen::TlsConfig,
    /// Which node is asked, and how.
    pub upstream: upstream::Config,
}

impl Default for Config {
    fn default() -> Self {
        let proxy = proxy::Config::default();
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8555)),
            admin: SocketAddr::from(([127, 0, 0, 1], 8556)),
            admin_token: None,
            chain_id: proxy.chain_id,
            strict: proxy.strict,
            call_timeout: proxy.call_timeout,
            drain_delay: Duration::ZERO,
            max_bytes_in_flight: ByteSize::mib(512),
            max_bytes_per_client: None,
            log: LogConfig::default(),
            tracing: TracingConfig::default(),
            methods: proxy.methods,
            chain: proxy.chain,
            verify: verify::Config::default(),
            cache: cache::Config::default(),
            http: http::Config::default(),
            connections: listen::Config::default(),
            tls: listen::TlsConfig::default(),
            upstream: upstream::Config::default(),
        }
    }
}

// === impl Config ===

impl Config {
    /// The keys that a reload applies, by table. Every other key waits for a restart.
    const RELOADABLE: [(&str, &[&str]); 7] = [
        ("", &["strict", "call_timeout"]),
        ("log.", LogConfig::RELOADABLE),
        ("tls.", listen::TlsConfig::RELOADABLE),
        ("methods.", proxy::MethodsConfig::RELOADABLE),
        ("chain.", proxy::ChainConfig::RELOADABLE),
        ("http.", http::Config::RELOADABLE),
        ("upstream.", upstream::Config::RELOADABLE),
    ];

    /// Names the keys that a reload applies.
    pub fn reloadable() -> impl Iterator<Item = String> {
        let named = |(table, keys): (&'static str, &'static [&'static str])| {
            keys.iter().map(move |key| format!("{table}{key}"))
        };
        Self::RELOADABLE.into_iter().flat_map(named)
    }

    /// The part that concerns calls.
    pub fn proxy(&self) -> proxy::Config {
        proxy::Config {
            chain_id: self.chain_id,
            strict: self.strict,
            call_timeout: self.call_timeout,
            fetches: ClientLimit::new(
                self.upstream.max_in_flight as u64,
                self.upstream.max_per_client.map(|most| most as u64),
            ),
            methods: self.methods.clone(),
            chain: self.chain.clone(),
        }
    }

    /// What can be worked with, and is seldom meant.
    pub fn warnings(&self) -> Vec<Problem> {
        let mut warnings = Vec::new();
        let (call, attempt) = (self.call_timeout, self.upstream.timeout);
        if call <= attempt {
            let message = format!(
                "{} is not longer than upstream.timeout, {}: a call ends before a node that hangs is given up, and no \
                 other is asked in its place; set it to more, or upstream.timeout to less",
                Time(call),
                Time(attempt)
            );
            warnings.push(Problem::new("call_timeout", message));
        }
        let is_open = !self.listen.ip().to_canonical().is_loopback();
        let all = self.max_bytes_in_flight;
        let half = ByteSize(all.as_u64() / 2);
        let (limit, whose, most) = match self.max_bytes_per_client {
            Some(most) if most < all => ("max_bytes_per_client", "one client", most),
            None if is_open => ("max_bytes_per_client", "one client (half of max_bytes_in_flight)", half),
            _ => ("max_bytes_in_flight", "all together", all),
        };
        // While a buffer moves into a larger one, both are there.
        let while_read = |size: ByteSize| ByteSize(size.as_u64().saturating_mul(3) / 2);
        let each = [
            ("http.max_body", while_read(self.http.max_body)),
            ("upstream.max_answer", while_read(self.upstream.max_answer)),
        ];
        for (key, one) in each.into_iter().filter(|(_, one)| *one > most) {
            let message = format!(
                "{most} for {whose} is less than {key} lets a single one take, {one}: what is larger is refused as \
                 too much at once, however often it is tried; set it to {one} or more, or {key} to less"
            );
            warnings.push(Problem::new(limit, message));
        }
        if is_open && self.http.keys.is_empty() && self.http.rate.is_none() {
            let message = format!(
                "{} is open to other machines, and any client can cause any number of upstream calls; set http.rate to \
                 limit each address, http.keys to serve known clients only, or a rate for each of upstream.endpoints to \
                 limit the bill",
                self.listen
            );
            warnings.push(Problem::new("listen", message));
        }
        warnings
    }

    /// Finds what the types allow and the program cannot work with.
    pub(super) fn check(&self) -> Result<(), Problem> {
        let positive = [
            ("http.max_batch", self.http.max_batch),
            ("http.max_in_flight", self.http.max_in_flight),
            ("connections.max", self.connections.max),
            ("upstream.max_in_flight", self.upstream.max_in_flight),
            ("chain.window", self.chain.window),
        ];
        let optional = [
            ("http.max_per_client", self.http.max_per_client),
            ("upstream.max_per_client", self.upstream.max_per_client),
        ];
        let optional = optional.into_iter().filter_map(|(key, value)| Some((key, value?)));
        for (key, value) in positive.into_iter().chain(optional) {
            if value == 0 {
                return Err(Problem::new(key, "must be at least 1"));
            }
            if value > MOST {
                return Err(Problem::new(key, format_args!("must be at most {MOST}")));
            }
        }
        let sizes = [
            ("max_bytes_in_flight", self.max_bytes_in_flight),
            ("max_bytes_per_client", self.max_bytes_per_client.unwrap_or(self.max_bytes_in_flight)),
            ("http.max_body", self.http.max_body),
            ("upstream.max_answer", self.upstream.max_answer),
        ];
        for (key, value) in sizes {
            if value == ByteSize::b(0) {
                return Err(Problem::new(key, "must be at least 1 B"));
            }
        }
        let times = [
            ("call_timeout", self.call_timeout),
            ("connections.idle_timeout", self.connections.idle_timeout),
            ("upstream.timeout", self.upstream.timeout),
        ];
        for (key, value) in times {
            if value < Duration::from_millis(1) {
                return Err(Problem::new(key, "must be at least 1ms"));
            }
        }
        if let Some(depth) = self.chain.finality_depth {
            let key = "chain.finality_depth";
            if depth == 0 {
                let message = "must be at least 1: the head can still be replaced; where only the node's word \
                               counts, leave it out";
                return Err(Problem::new(key, message));
            }
            if depth >= self.chain.window as u64 {
                let message = format!(
                    "must be less than chain.window, {}: a block is known to be so deep only while it is in there",
                    self.chain.window
                );
                return Err(Problem::new(key, message));
            }
        }
        if self.listen == self.admin && self.listen.port() != 0 {
            let message = format!(
                "{} is where clients connect (listen); give operators a port of their own",
                self.admin
            );
            return Err(Problem::new("admin", message));
        }
        if let Err(message) = self.log.check() {
            return Err(Problem::new("log.level", message));
        }
        self.tracing.receiver()?;
        if let Some(redis) = &self.cache.redis {
            cache::redis::Redis::try_new(redis).map_err(|error| Problem::new("cache.redis", error))?;
        }
        if self.cache.disk.as_ref().is_some_and(|disk| disk.size < ByteSize::mib(1)) {
            return Err(Problem::new(
                "cache.disk.size",
                "must be at least 1 MiB: there is no room for a block",
            ));
        }
        if let Err(error) = self.tls.check() {
            return Err(Problem::new(format!("tls.{}", error.key()), error));
        }
        if let Err(http::ConfigError { key, message }) = self.http.check() {
            return Err(Problem::new(format!("http.{key}"), message));
        }
        if let Err((list, error)) = self.methods.check() {
            return Err(Problem::new(format!("methods.{list}"), error));
        }
        for origin in self.http.allowed_origins.iter().chain(&self.methods.trusted_origins) {
            if origin != "*" && !is_origin(origin) {
                let key = if self.methods.trusted_origins.contains(origin) {
                    "methods.trusted_origins"
                } else {
                    "http.allowed_origins"
                };
                let message = format!(
                    "{origin:?} is no origin; write scheme and host, such as https://app.example.org"
                );
                return Err(Problem::new(key, message));
            }
        }
        if self.methods.trusted_origins.iter().any(|origin| origin == "*") {
            let message =
                "\"*\" would let every website sign with the node's accounts; list the pages you trust";
            return Err(Problem::new("methods.trusted_origins", message));
        }
        Ok(())
    }
}

/// Scheme, host and perhaps a port, as browsers write it.
fn is_origin(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, host)| {
        !scheme.is_empty() && !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']) && text.is_ascii()
    })
}
