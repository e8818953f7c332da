//! The status report of the program.

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{gauge::ConstGauge, info::Info},
    registry::Registry,
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    admin::{self, Counts, Durations, History},
    cache::{Cache, TierStatus, Tiers},
    eth::chain_name,
    histogram::Snapshot,
    http,
    proxy::{self, ChainStatus, LogProof, LogSource, MethodTotals, Reorg, Status, Totals},
    upstream::{self, EndpointStatus, Identity, IdentityState, Upstream, UpstreamError, is_development},
};

/// Reports the state of all parts of the program.
#[derive(Debug)]
pub(super) struct StatusReport {
    pub(super) identity: Identity,
    pub(super) calls: proxy::Metrics,
    pub(super) upstream_calls: upstream::Metrics,
    pub(super) requests: http::Metrics,
    pub(super) history: History,
    pub(super) cache: Cache,
    pub(super) tiers: Tiers,
    pub(super) status: Status,
    pub(super) upstream: Upstream,
    pub(super) listen: SocketAddr,
    pub(super) tls: bool,
    pub(super) started: Instant,
    pub(super) draining: AtomicBool,
}

/// Collects the gauge `ready` at each scrape.
#[derive(Debug)]
struct Ready(Arc<StatusReport>);

// === impl StatusReport ===

impl StatusReport {
    /// Returns the same as `/ready`, but probes no endpoint, because a scrape should not cause upstream calls.
    fn is_ready(&self) -> bool {
        let known = matches!(self.identity.state(), IdentityState::Known(_));
        // An instance that knows its chain is degraded, but ready, while every endpoint refuses calls.
        let is_refused = || self.identity.pinned().is_some() && self.upstream.refusal().is_some();
        !self.draining.load(Relaxed) && ((known && !self.upstream.is_down()) || is_refused())
    }

    /// Returns the URL of the client listener.
    pub(super) fn url(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.listen)
    }

    /// Returns the durations since the start, by method and by endpoint.
    fn durations(&self) -> Durations {
        let methods = self.calls.methods().filter(|totals| totals.calls > 0);
        let endpoints = self.upstream.status().0;
        Durations {
            methods: methods.map(|totals| (totals.method, totals.upstream_seconds)).collect(),
            endpoints: endpoints
                .into_iter()
                .map(|endpoint| (endpoint.name, endpoint.totals.seconds))
                .collect(),
        }
    }

    /// Reports not ready from now on, whatever the state of the upstream.
    pub(super) fn drain(&self) {
        self.draining.store(true, Relaxed);
    }
}

/// Registers `ready` and `build_info{version}`.
pub(super) fn register(report: &Arc<StatusReport>, registry: &mut Registry) {
    registry.register_collector(Box::new(Ready(report.clone())));
    registry.register("build", "Version of the program", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
}

// === impl Ready ===

impl Collector for Ready {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let ready = ConstGauge::new(i64::from(self.0.is_ready()));
        let help = "1 if /ready answers 200 (ready or degraded), 0 if it answers 503";
        ready.encode(encoder.encode_descriptor("ready", help, None, ready.metric_type())?)
    }
}

impl admin::Report for StatusReport {
    fn ready(&self) -> Result<Option<String>, String> {
        if self.draining.load(Relaxed) {
            return Err("shutting down".to_owned());
        }
        let degraded = |error| {
            format!(
                "degraded: no upstream reachable ({error}); blocks known to be final are still served from the cache"
            )
        };
        // An instance that knows its chain still serves its cache.
        if self.identity.pinned().is_some()
            && let Some(refusal) = self.upstream.refusal()
        {
            // Without client calls, only a probe shows that the refusal has ended.
            self.upstream.probe();
            return Ok(Some(format!("every endpoint refuses calls ({})", described(&refusal))));
        }
        match self.identity.state() {
            IdentityState::Known(_) => self.upstream.outage().map_or(Ok(None), |error| Err(degraded(error))),
            // The chain of the cached entries is known from earlier, although no endpoint confirms it now.
            IdentityState::Unknown(Some(error)) if self.identity.pinned().is_some() => Err(degraded(error)),
            IdentityState::Unknown(None) => Err("the upstream has not been reached yet".to_owned()),
            IdentityState::Unknown(Some(error)) => Err(format!("the upstream's chain is unknown: {error}")),
            IdentityState::WrongChain(stranger) => Err(stranger.to_string()),
        }
    }

    fn status(&self) -> serde_json::Value {
        let ready = self.ready();
        let totals = self.calls.totals();
        let durations = self.history.durations();
        let (entries, bytes) = self.cache.sizes();
        let chain = match self.identity.state() {
            IdentityState::Known(who) => json!({
                "id": (!who.is_unknown()).then_some(who.chain_id),
                "name": chain_name(who.chain_id),
                "genesis": who.genesis.map(|genesis| genesis.to_string()),
                "development": is_development(who.chain_id),
            }),
            IdentityState::Unknown(_) | IdentityState::WrongChain(_) => serde_json::Value::Null,
        };
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "ready": ready.is_ok(),
            "degraded": matches!(ready, Ok(Some(_))),
            "reason": ready.unwrap_or_else(Some),
            "uptime_seconds": self.started.elapsed().as_secs(),
            "listen": self.listen.to_string(),
            "url": self.url(),
            "chain": chain,
            "endpoints": endpoints(&self.upstream, &durations),
            "methods": methods(&self.calls, &durations),
            "logs": logs(&self.calls),
            "canonical_view": canonical_view(&self.status.chain()),
            "verification": verification(&self.status),
            "reorgs": reorgs(&self.status),
            "calls": totals.calls,
            "hits": totals.hits,
            "upstream_calls": self.upstream_calls.calls(),
            "saved": saved(&totals),
            "bytes_from_memory": totals.bytes_from_memory,
            "cache": {
                "entries": entries,
                "bytes": bytes,
                "capacity": self.cache.capacity(),
                "evictions": self.cache.evictions(),
                "located_transactions": self.cache.located().0,
            },
            "tiers": self.tiers.status().iter().map(|status| tier(status, &totals)).collect::<Vec<_>>(),
            "refusals": refusals(&self.history),
        })
    }

    fn counts(&self) -> Counts {
        let totals = self.calls.totals();
        let calls = [("refused", totals.refused), ("limited", totals.limited), ("failed", totals.failed)];
        Counts {
            time: SystemTime::now(),
            calls: totals.calls,
            hits: totals.hits,
            joined: totals.joined,
            refused: totals.refused + totals.limited,
            upstream: self.upstream_calls.calls(),
            upkeep: (totals.upkeep + totals.follow).saturating_sub(totals.stale),
            memory_seconds: totals.memory_seconds,
            upstream_seconds: totals.upstream_seconds,
            cache_bytes: self.cache.sizes().1,
            head: self.status.head().map(|head| head.0),
            reorgs: self.status.reorg_count(),
            refusals: calls.into_iter().chain(self.requests.refusals()).collect(),
            durations: self.durations(),
        }
    }
}

/// Upstream calls saved, and the counts that the number derives from: see [`Totals::saved`].
fn saved(totals: &Totals) -> serde_json::Value {
    json!({
        "calls": totals.saved(),
        "answered_without_upstream": totals.without_asking(),
        "answered_after_refresh": totals.stale,
        "upkeep_calls": totals.upkeep,
        "follow_calls": totals.follow,
    })
}

fn reorgs(status: &Status) -> serde_json::Value {
    let one = |reorg: &Reorg| {
        json!({
            "kind": reorg.kind.as_str(),
            "depth": reorg.depth,
            "head": reorg.head.0,
            "age_seconds": reorg.at.elapsed().unwrap_or_default().as_secs(),
        })
    };
    json!({ "count": status.reorg_count(), "last": status.reorgs().iter().map(one).collect::<Vec<_>>() })
}

fn tier(status: &TierStatus, totals: &Totals) -> serde_json::Value {
    let TierStatus { kind, usage, reads, writes, stores, errors } = status;
    json!({
        "tier": kind.as_str(),
        "hits": totals.restored[*kind as usize],
        "bytes": usage.bytes,
        "capacity": usage.capacity,
        "blocks": usage.blocks,
        "evictions": usage.evictions,
        "reading": reads,
        "writing": writes,
        "stores": stores,
        "errors": errors,
    })
}

/// Refusals and failures of the last 15 minutes, by reason.
fn refusals(history: &History) -> serde_json::Value {
    let (window, reasons) = history.refusals();
    json!({ "seconds": window.as_secs(), "reasons": reasons })
}

/// Calls by method, the most frequent first. Quantiles cover the same period as [`refusals`].
fn methods(calls: &proxy::Metrics, durations: &Durations) -> serde_json::Value {
    let mut methods: Vec<_> = calls.methods().filter(|totals| totals.calls > 0).collect();
    methods.sort_by_key(|totals| std::cmp::Reverse(totals.calls));
    let one = |totals: &MethodTotals| {
        let seconds = durations.methods.get(totals.method);
        json!({
            "method": totals.method,
            "calls": totals.calls,
            "hits": totals.hits,
            "stale": totals.stale,
            "joined": totals.joined,
            "misses": totals.misses,
            "not_cacheable": totals.not_cacheable,
            "node_errors": totals.node_errors,
            "refused": totals.refused,
            "failed": totals.failed,
            "upstream_p50_seconds": quantile(seconds, 0.5),
            "upstream_p99_seconds": quantile(seconds, 0.99),
        })
    };
    methods.iter().map(one).collect()
}

/// Answers to `eth_getLogs` by source and proof, without those that the node answered as sent.
fn logs(calls: &proxy::Metrics) -> serde_json::Value {
    let one = |(source, proof, calls): (LogSource, LogProof, u64)| json!({ "source": source.as_str(), "proof": proof.as_str(), "calls": calls });
    calls.logs().filter(|(.., calls)| *calls > 0).map(one).collect()
}

fn quantile(durations: Option<&Snapshot>, part: f64) -> Option<f64> {
    durations?.quantile(part).map(|duration| duration.as_secs_f64())
}

fn endpoints(upstream: &Upstream, durations: &Durations) -> serde_json::Value {
    let (endpoints, primary) = upstream.status();
    let one = |endpoint: &EndpointStatus| {
        let stranger = match &endpoint.identity {
            Some(IdentityState::WrongChain(stranger)) => Some(stranger.to_string()),
            _ => None,
        };
        let failure = endpoint.refusal.as_ref().or(endpoint.last_error.as_ref()).map(described);
        let used_up = endpoint
            .is_rate_used_up
            .then(|| UpstreamError::RateUsedUp { retry_after: Duration::ZERO }.to_string());
        json!({
            "name": &*endpoint.name,
            "url": endpoint.url,
            "priority": endpoint.priority,
            "state": endpoint.state().as_str(),
            "primary": primary == Some(endpoint.id),
            "head": endpoint.head.map(|head| head.0),
            "last_mismatch": endpoint.last_mismatch,
            "reason": stranger.or(failure).or(used_up),
            "outage_seconds": endpoint.outage.map(|outage| outage.as_secs()),
            "calls": endpoint.totals.calls,
            "errors": endpoint.totals.errors,
            "rate_limited": endpoint.totals.rate_limited,
            "over_rate": endpoint.totals.over_rate,
            "p50_seconds": quantile(durations.endpoints.get(&endpoint.name), 0.5),
            "p99_seconds": quantile(durations.endpoints.get(&endpoint.name), 0.99),
        })
    };
    endpoints.iter().map(one).collect()
}

/// Describes a failure with the provider's own words.
fn described(error: &UpstreamError) -> String {
    match error.words() {
        Some(words) if !error.to_string().contains(&*words) => format!("{error}: {words:?}"),
        _ => error.to_string(),
    }
}

fn verification(status: &Status) -> serde_json::Value {
    let in_force = status.verification();
    json!({
        "configured": in_force.configured.as_str(),
        "headers": in_force.headers.as_str(),
        "blocks": in_force.blocks.as_str(),
        "receipts": in_force.receipts.as_str(),
        "reason": in_force.why,
        "never_cut": status.given_up().collect::<Vec<_>>(),
    })
}

fn canonical_view(chain: &ChainStatus) -> serde_json::Value {
    json!({
        "head": chain.head.map(|head| json!({ "number": head.number.0, "hash": head.hash.to_string() })),
        "age_seconds": chain.age.map(|age| age.as_secs_f64()),
        "head_age_seconds": chain.head_age.map(|age| age.as_secs_f64()),
        "max_staleness_seconds": chain.max_staleness.as_secs_f64(),
        "lags": chain.lags,
        "finalized": chain.finalized.map(|(number, hash)| json!({ "number": number.0, "hash": hash.to_string() })),
        "window_blocks": chain.window,
        "final_numbers": chain.final_numbers,
    })
}
