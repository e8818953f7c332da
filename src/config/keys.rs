//! All keys, and the checks that span several of them.

use std::{collections::BTreeMap, env, net::SocketAddr, time::Duration};

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{address, error::Problem, log::LogConfig, tracing::TracingConfig};
use crate::{cache, client::ClientLimit, display::Time, http, listen, proxy, upstream, verify};

/// Upper limit of every count. It is higher than any machine can use, and low enough that semaphores and sums do not
/// overflow.
const MOST: usize = 1 << 30;

/// Highest `logs.max_blocks`. The view is locked while it names the blocks of a range, for about 10 ms at this number.
const MOST_LOG_BLOCKS: usize = 100_000;

/// Smallest size of the cache, of the disk cache and of the byte budgets: room for a block. Smaller values are typos,
/// such as a size without its unit.
const LEAST_STORE: (ByteSize, &str) = (ByteSize::mib(1), "1 MiB");

/// Smallest limit on one body or answer.
const LEAST_MESSAGE: (ByteSize, &str) = (ByteSize::kib(1), "1 KiB");

/// Environment variable that the container image sets. In a container, only the unspecified address is of use, and the
/// published ports decide which hosts can connect.
pub(super) const ENV_IMAGE: &str = "HOLDFAST_IMAGE";

/// All settings. `config/holdfast.toml` describes each key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address of the client listener.
    #[serde(deserialize_with = "address::deserialize")]
    pub listen: SocketAddr,
    /// Address of the admin listener.
    #[serde(deserialize_with = "address::deserialize")]
    pub admin: SocketAddr,
    /// Hash of the token that operators need for `/purge`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_token: Option<http::KeyHash>,
    /// Id of the chain that the upstream must serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain_id: Option<u64>,
    /// Whether to serve only the six read operations.
    pub strict: bool,
    /// Time limit of one call, including all waiting.
    #[serde(with = "humantime_serde")]
    pub call_timeout: Duration,
    /// Time from the stop signal until the client listener closes.
    #[serde(with = "humantime_serde")]
    pub drain_delay: Duration,
    /// Limit on the bytes of large bodies and answers in memory, while they arrive from clients and upstreams or wait
    /// to be sent to clients.
    pub max_bytes_in_flight: ByteSize,
    /// The part of `max_bytes_in_flight` that one client may use. `None` is half of it, or all of it for a shared
    /// address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes_per_client: Option<ByteSize>,
    /// Level and format of the log.
    pub log: LogConfig,
    /// Export of spans.
    pub tracing: TracingConfig,
    /// Methods that clients may call.
    pub methods: proxy::MethodsConfig,
    /// Limits of `eth_getLogs`.
    pub logs: proxy::LogsConfig,
    /// Tracking of the canonical chain.
    pub chain: proxy::ChainConfig,
    /// Verification of answers before they enter the cache.
    pub verify: verify::Config,
    /// Cache in memory, on disk and in Redis.
    pub cache: cache::Config,
    /// Limits and access rules of requests.
    pub http: http::Config,
    /// Limits of connections.
    pub connections: listen::Config,
    /// TLS certificate of the listeners.
    pub tls: listen::TlsConfig,
    /// Upstream endpoints and their limits.
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
            logs: proxy.logs,
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
    /// Keys that a reload applies, by table. Every other key takes effect at the next start.
    const RELOADABLE: [(&str, &[&str]); 7] = [
        ("", &["strict", "call_timeout"]),
        ("log.", LogConfig::RELOADABLE),
        ("tls.", listen::TlsConfig::RELOADABLE),
        ("methods.", proxy::MethodsConfig::RELOADABLE),
        ("chain.", proxy::ChainConfig::RELOADABLE),
        ("http.", http::Config::RELOADABLE),
        ("upstream.", upstream::Config::RELOADABLE),
    ];

    /// Returns the dotted names of the keys that a reload applies.
    pub fn reloadable() -> impl Iterator<Item = String> {
        let named = |(table, keys): (&'static str, &'static [&'static str])| {
            keys.iter().map(move |key| format!("{table}{key}"))
        };
        Self::RELOADABLE.into_iter().flat_map(named)
    }

    /// Returns every key by its dotted name, with its value. A list is one value.
    pub fn values(&self) -> BTreeMap<String, Value> {
        fn collect(prefix: &str, value: Value, keys: &mut BTreeMap<String, Value>) {
            match value {
                Value::Object(members) => {
                    for (key, value) in members {
                        let key = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
                        collect(&key, value, keys);
                    }
                }
                value => {
                    keys.insert(prefix.to_owned(), value);
                }
            }
        }
        let mut keys = BTreeMap::new();
        collect("", serde_json::to_value(self).unwrap_or_default(), &mut keys);
        keys
    }

    /// Returns the configuration of the proxy.
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
            logs: self.logs,
        }
    }

    /// Returns warnings about settings that are valid but probably unintended.
    pub fn warnings(&self) -> Vec<Problem> {
        let mut warnings = Vec::new();
        let (call, attempt) = (self.call_timeout, self.upstream.timeout);
        if call <= attempt {
            let message = format!(
                "{} is not longer than upstream.timeout, {}: if a node hangs, the call ends before another node is \
                 asked; raise it, or lower upstream.timeout",
                Time(call),
                Time(attempt)
            );
            warnings.push(Problem::new("call_timeout", message));
        }
        let is_exposed = |address: SocketAddr| !address.ip().to_canonical().is_loopback();
        let is_image = self.admin.ip().is_unspecified() && env::var_os(ENV_IMAGE).is_some();
        if is_exposed(self.admin) && !is_image {
            let message = format!(
                "{} is open to other machines: any host that can connect can read /status and /metrics, which show the \
                 node's address and the traffic (/purge needs the token of admin_token); set admin to \
                 127.0.0.1:{}, or let only operators connect",
                self.admin,
                self.admin.port()
            );
            warnings.push(Problem::new("admin", message));
        }
        let is_open = is_exposed(self.listen);
        let all = self.max_bytes_in_flight;
        let half = ByteSize(all.as_u64() / 2);
        let (limit, whose, most) = match self.max_bytes_per_client {
            Some(most) if most < all => ("max_bytes_per_client", "one client", most),
            None if is_open => ("max_bytes_per_client", "one client (half of max_bytes_in_flight)", half),
            _ => ("max_bytes_in_flight", "all clients together", all),
        };
        // A full buffer moves its content to a buffer of twice the size. Both count during the move, which makes 1.5
        // times the final size.
        let while_read = |size: ByteSize| ByteSize(size.as_u64().saturating_mul(3) / 2);
        let each = [
            ("http.max_body", while_read(self.http.max_body)),
            ("upstream.max_answer", while_read(self.upstream.max_answer)),
        ];
        for (key, one) in each.into_iter().filter(|(_, one)| *one > most) {
            let message = format!(
                "{most} for {whose} is less than {key} needs for a single body or answer, {one}: those that do not \
                 fit are refused at every attempt; set it to {one} or more, or lower {key}"
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

    /// Rejects values that the types allow but the program cannot work with.
    pub(super) fn check(&self) -> Result<(), Problem> {
        let positive = [
            ("http.max_batch", self.http.max_batch),
            ("http.max_in_flight", self.http.max_in_flight),
            ("connections.max", self.connections.max),
            ("upstream.max_in_flight", self.upstream.max_in_flight),
            ("chain.window", self.chain.window),
            ("logs.max_blocks", self.logs.max_blocks),
            ("logs.max_results", self.logs.max_results),
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
            let most = if key == "logs.max_blocks" { MOST_LOG_BLOCKS } else { MOST };
            if value > most {
                return Err(Problem::new(key, format_args!("must be at most {most}")));
            }
        }
        let per_client = self.max_bytes_per_client.unwrap_or(self.max_bytes_in_flight);
        let disk = self.cache.disk.as_ref().map(|disk| disk.size);
        let sizes = [
            ("cache.size", Some(self.cache.size), LEAST_STORE, "512 MiB"),
            ("cache.disk.size", disk, LEAST_STORE, "10 GiB"),
            ("max_bytes_in_flight", Some(self.max_bytes_in_flight), LEAST_STORE, "512 MiB"),
            ("max_bytes_per_client", Some(per_client), LEAST_STORE, "256 MiB"),
            ("http.max_body", Some(self.http.max_body), LEAST_MESSAGE, "5 MiB"),
            ("upstream.max_answer", Some(self.upstream.max_answer), LEAST_MESSAGE, "128 MiB"),
        ];
        for (key, size, (least, shown), example) in sizes {
            if let Some(size) = size.filter(|size| *size < least) {
                let message = format!(
                    "{size} is too small; write at least {shown}, with the unit, such as \"{example}\""
                );
                return Err(Problem::new(key, message));
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
                let message = "must be at least 1, because the head can be replaced; leave it out to use only \
                               the node's finalized block";
                return Err(Problem::new(key, message));
            }
            if depth >= self.chain.window as u64 {
                let message = format!(
                    "must be less than chain.window, {}: the depth of a block is known only within the window",
                    self.chain.window
                );
                return Err(Problem::new(key, message));
            }
        }
        if self.listen == self.admin && self.listen.port() != 0 {
            let message =
                format!("{} is the address of the client listener (listen); set another port", self.admin);
            return Err(Problem::new("admin", message));
        }
        let names = self.upstream.endpoints.iter().map(|endpoint| endpoint.name.as_deref());
        let names: Vec<_> = names.collect();
        for (at, name) in names.iter().enumerate() {
            if let Some(same) = names[..at].iter().position(|other| name.is_some() && other == name) {
                let name = name.unwrap_or_default();
                let message = format!("name: {name:?} is the name of upstream.endpoints.{same}, too");
                return Err(Problem::new(format!("upstream.endpoints.{at}"), message));
            }
        }
        if let Err(message) = self.log.check() {
            return Err(Problem::new("log.level", message));
        }
        self.tracing.receiver()?;
        if let Some(redis) = &self.cache.redis {
            cache::redis::Redis::try_new(redis).map_err(|error| Problem::new("cache.redis", error))?;
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
                    "{origin:?} is not an origin; write scheme and host, such as https://app.example.org"
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

/// Returns whether `text` is a scheme, a host and an optional port, as browsers write an origin.
fn is_origin(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, host)| {
        !scheme.is_empty() && !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']) && text.is_ascii()
    })
}
