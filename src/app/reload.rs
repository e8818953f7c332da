//! Applies another configuration at runtime, without losing connections or cached entries.
//!
//! A reload reads the same sources as the start: file, environment, flags. It applies the result as a whole or
//! refuses it as a whole.
//!
//! `docs/configuration.md` lists the reloadable keys, and when each takes effect. All other keys take effect at the
//! next start, among them the addresses, `cache`, `connections`, `verify`, and whether TLS is on. If any of
//! these changed, a warning names them.
//!
//! To make another key reloadable, apply it in [`Reload::apply`], do the steps that can fail in [`Reload::prepare`],
//! which runs first, and add the key to `RELOADABLE` of its configuration type.

use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::build::{certificate, endpoints, feed, is_consistent, log_warnings};
use crate::{
    budget::ByteBudget,
    config::{Config, ConfigError, LogConfig, Problem},
    http::{self, Access},
    labels::Labels,
    listen::{Tls, TlsIdentity},
    proxy::{self, Policy},
    upstream::{EndpointParts, HeadFeed, Upstream},
};

const APPLIED: &str = "applied";
const REFUSED: &str = "refused";

/// The reloadable parts, and the configuration in force.
#[derive(Debug)]
pub(super) struct Reload {
    parts: Parts,
    metrics: Metrics,
    /// The configuration at the start, still in force for keys that are not reloadable.
    started: Config,
    /// The configuration that was applied last.
    current: Mutex<Config>,
}

/// The parts that a reload changes.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) proxy: proxy::Reloadable,
    pub(super) http: http::Reloadable,
    pub(super) access: Access,
    pub(super) tls: Option<Tls>,
    pub(super) upstream: Upstream,
    /// The `newHeads` feed.
    pub(super) feed: watch::Sender<Option<HeadFeed>>,
    /// Budget for the bytes that endpoints read.
    pub(super) budget: ByteBudget,
}

/// Counter of reloads. The default is not registered with any registry.
#[derive(Clone, Debug, Default)]
pub(super) struct Metrics {
    reloads: Family<Labels<1>, Counter>,
}

/// The results of all steps that can fail.
struct Prepared {
    certificate: Option<TlsIdentity>,
    endpoints: Vec<EndpointParts>,
    feed: Option<HeadFeed>,
}

// === impl Reload ===

impl Reload {
    pub(super) fn new(config: Config, parts: Parts, metrics: Metrics) -> Self {
        Self { parts, metrics, current: Mutex::new(config.clone()), started: config }
    }

    /// Answers all calls that wait for the upstream with an error, at once.
    pub(super) fn end_calls(&self) {
        self.parts.proxy.end();
    }

    /// Applies the configuration `read`, or logs why it is refused. `set_log` must set the level of the log.
    pub(super) fn take(&self, read: Result<Config, ConfigError>, set_log: impl FnOnce(&LogConfig)) {
        let prepared = read.and_then(|config| Ok((self.prepare(&config)?, config)));
        let (prepared, config) = match prepared {
            Ok(prepared) => prepared,
            Err(refusal) => {
                self.metrics.count(REFUSED);
                error!(error = %refusal, "configuration reload refused; the previous configuration stays in force");
                return;
            }
        };
        let mut current = self.current.lock();
        let mut changed = differences(&current, &config);
        changed.retain(|key| self.is_reloadable(key, &config));
        let mut waiting = differences(&self.started, &config);
        waiting.retain(|key| !self.is_reloadable(key, &config));

        let new_certificate = self.apply(&config, prepared);
        set_log(&config.log);
        log_warnings(&config);
        *current = config;
        self.metrics.count(APPLIED);
        if changed.is_empty() && !new_certificate {
            info!("configuration reloaded; no reloadable key changed");
        } else {
            let changed = (!changed.is_empty()).then(|| changed.join(", "));
            info!(changed, new_certificate, "configuration reloaded");
        }
        if !waiting.is_empty() {
            warn!(keys = waiting.join(", "), "these changed keys take effect only after a restart");
        }
    }

    /// Runs all steps that can fail. Changes nothing.
    fn prepare(&self, config: &Config) -> Result<Prepared, Problem> {
        let certificate = certificate(&config.tls)?;
        let endpoints = endpoints(config, &self.parts.budget)?;
        let feed = feed(&config.upstream)?;
        Ok(Prepared { certificate, endpoints, feed })
    }

    /// Applies all reloadable keys. Cannot fail. Returns whether the certificate changed.
    fn apply(&self, config: &Config, prepared: Prepared) -> bool {
        let Parts { proxy, http, access, tls, upstream, feed, .. } = &self.parts;
        proxy.apply(&config.proxy());
        http.apply(&config.http);
        access.replace(&config.http, Policy::new(&config.proxy()));
        // `consistent` may be set only while there is a single endpoint, so it is cleared before the endpoints change
        // and set afterwards.
        let consistent = is_consistent(&config.upstream.endpoints);
        if !consistent {
            proxy.set_consistent(false);
        }
        // Endpoints with the same URL and headers keep their state.
        upstream.replace(prepared.endpoints, &config.upstream);
        if consistent {
            proxy.set_consistent(true);
        }
        feed.send_if_modified(|feed| {
            let is_another = *feed != prepared.feed;
            *feed = prepared.feed;
            is_another
        });
        match (tls, prepared.certificate) {
            (Some(tls), Some(certificate)) => tls.show(certificate),
            _ => false,
        }
    }

    fn is_reloadable(&self, key: &str, config: &Config) -> bool {
        // A listener does not switch between HTTP and HTTPS while it runs.
        let switched = key.starts_with("tls.") && self.parts.tls.is_some() != config.tls.is_on();
        !switched && is_reloadable(key)
    }
}

fn is_reloadable(key: &str) -> bool {
    Config::reloadable().any(|reloadable| reloadable == key)
}

/// Returns the names of the keys that differ, without their values, which may be secrets.
fn differences(before: &Config, after: &Config) -> Vec<String> {
    let (mut before, mut after) = (before.values(), after.values());
    before.retain(|key, value| match after.get(key) {
        Some(same) if same == value => {
            after.remove(key);
            false
        }
        _ => true,
    });
    before.append(&mut after);
    before.into_keys().collect()
}

// === impl Metrics ===

impl Metrics {
    /// Registers `config_reloads_total{outcome}`.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("config_reloads", "Configuration reloads, by outcome", metrics.reloads.clone());
        for outcome in [APPLIED, REFUSED] {
            drop(metrics.reloads.get_or_create(&[("outcome", outcome)]));
        }
        metrics
    }

    fn count(&self, outcome: &'static str) {
        self.reloads.get_or_create(&[("outcome", outcome)]).inc();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::upstream::EndpointConfig;

    #[test]
    fn differences_name_keys_and_show_no_values() {
        let before = Config::default();
        let mut after = before.clone();
        assert_eq!(differences(&before, &after), [""; 0]);
        after.call_timeout = Duration::from_secs(1);
        after.chain.finality_depth = Some(1);
        after.methods.deny.push("eth_call".to_owned());
        after.upstream.endpoints.push(EndpointConfig::at("http://127.0.0.1/SECRET"));
        let named = ["call_timeout", "chain.finality_depth", "methods.deny", "upstream.endpoints"];
        assert_eq!(differences(&before, &after), named);
        assert_eq!(differences(&after, &before), named);
    }

    fn read(file: &str) -> String {
        std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
    }

    #[test]
    fn documented_file_marks_reloadable_keys() {
        let (mut table, mut comment, mut marked) = (String::new(), String::new(), 0);
        for line in read("config/holdfast.toml").lines() {
            let key = line.trim_start_matches("# ").split_once(" = ").map(|(key, _)| key);
            if let Some(name) = line.strip_prefix('[') {
                table = format!("{}.", name.trim_matches(['[', ']']));
            } else if let Some(key) =
                key.filter(|key| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
            {
                let key = format!("{table}{key}");
                assert_eq!(comment.contains("(reloadable)"), is_reloadable(&key), "{key}");
                marked += usize::from(comment.contains("(reloadable)"));
            } else if line.starts_with('#') {
                comment.push_str(line);
                continue;
            }
            comment.clear();
        }
        // The numbers are equal because two differences cancel out: the tables `upstream.endpoints` and `http.keys`
        // are reloadable but have no mark, and `rate` and `burst` of a client key have marks of their own.
        assert_eq!(marked, Config::reloadable().count());
    }

    #[test]
    fn configuration_page_names_reloadable_keys() {
        let page = read("docs/configuration.md");
        let (_, changing) = page.split_once("## Changing it while it runs").unwrap();
        let table = changing.split("\n## ").next().unwrap();
        for key in Config::reloadable() {
            let is_named = table.contains(&format!("`{key}`"));
            assert!(is_named || (key.starts_with("methods.") && table.contains("`methods.*`")), "{key}");
        }
    }
}
