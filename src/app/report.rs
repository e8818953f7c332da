//! What the program tells of itself.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use serde_json::json;
use tokio::time::Instant;

use crate::{
    admin,
    cache::Cache,
    proxy::{self, Derivation, Seen, Sight},
    upstream::{EndpointStatus, Health, Identity, IdentityState, Upstream},
};

/// Gathers what the parts know.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) identity: Identity,
    pub(super) calls: proxy::Metrics,
    pub(super) cache: Cache,
    pub(super) sight: Sight,
    pub(super) upstream: Upstream,
    pub(super) listen: SocketAddr,
    pub(super) started: Instant,
    pub(super) draining: AtomicBool,
}

// === impl Report ===

impl Report {
    /// From now on it is not ready, whatever the upstream says.
    pub(super) fn drain(&self) {
        self.draining.store(true, Relaxed);
    }
}

impl admin::Report for Report {
    fn ready(&self) -> Result<(), String> {
        if self.draining.load(Relaxed) {
            return Err("shutting down".to_owned());
        }
        let degraded = |error| {
            format!("degraded: no upstream answers ({error}); what is final and in memory is still served")
        };
        match self.identity.state() {
            IdentityState::Known(_) => self.upstream.lost().map_or(Ok(()), |error| Err(degraded(error))),
            // It is known what is in memory, though not any more who answers.
            IdentityState::Unknown(Some(error)) if self.identity.pinned().is_some() => Err(degraded(error)),
            IdentityState::Unknown(None) => Err("the upstream has not been reached yet".to_owned()),
            IdentityState::Unknown(Some(error)) => Err(format!("the upstream does not answer: {error}")),
            IdentityState::Stranger(stranger) => Err(stranger.to_string()),
        }
    }

    fn status(&self) -> serde_json::Value {
        let ready = self.ready();
        let (calls, hits) = self.calls.calls();
        let (entries, bytes) = self.cache.sizes();
        let chain = match self.identity.state() {
            IdentityState::Known(who) => json!({
                "id": who.chain_id,
                "genesis": who.genesis.map(|genesis| genesis.to_string()),
            }),
            IdentityState::Unknown(_) | IdentityState::Stranger(_) => serde_json::Value::Null,
        };
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "ready": ready.is_ok(),
            "reason": ready.err(),
            "uptime_seconds": self.started.elapsed().as_secs(),
            "listen": self.listen.to_string(),
            "chain": chain,
            "upstreams": upstreams(&self.upstream),
            "view": view(&self.sight.seen()),
            "verification": verification(&self.sight),
            "calls": calls,
            "hits": hits,
            "cache": { "entries": entries, "bytes": bytes, "located_transactions": self.cache.located().0 },
        })
    }
}

fn upstreams(upstream: &Upstream) -> serde_json::Value {
    let (endpoints, followed) = upstream.status();
    let one = |endpoint: &EndpointStatus| {
        let state = match &endpoint.identity {
            Some(IdentityState::Stranger(_)) => "stranger",
            Some(IdentityState::Unknown(_)) => "unknown",
            Some(IdentityState::Known(_)) | None if endpoint.paused.is_some_and(|wait| !wait.is_zero()) => {
                "limited"
            }
            Some(IdentityState::Known(_)) | None => match endpoint.health {
                Health::Closed => "ok",
                Health::HalfOpen => "trying",
                Health::Open => "failing",
            },
        };
        let stranger = match &endpoint.identity {
            Some(IdentityState::Stranger(stranger)) => Some(stranger.to_string()),
            _ => None,
        };
        json!({
            "url": &*endpoint.name,
            "priority": endpoint.priority,
            "state": state,
            "followed": followed == Some(endpoint.id),
            "head": endpoint.head.map(|head| head.0),
            "last_mismatch": endpoint.last_mismatch,
            "reason": stranger.or_else(|| endpoint.last_error.as_ref().map(ToString::to_string)),
        })
    };
    endpoints.iter().map(one).collect()
}

fn verification(sight: &Sight) -> serde_json::Value {
    let in_force = sight.verification();
    json!({
        "configured": in_force.configured.as_str(),
        "blocks": in_force.blocks.as_str(),
        "receipts": in_force.receipts.as_str(),
        "why": in_force.why,
        "never_cut": sight.given_up().map(Derivation::as_str).collect::<Vec<_>>(),
    })
}

fn view(seen: &Seen) -> serde_json::Value {
    json!({
        "head": seen.head.map(|head| json!({ "number": head.number.0, "hash": head.hash.to_string() })),
        "age_seconds": seen.age.map(|age| age.as_secs_f64()),
        "head_age_seconds": seen.head_age.map(|age| age.as_secs_f64()),
        "max_staleness_seconds": seen.max_staleness.as_secs_f64(),
        "lags": seen.lags,
        "finalized": seen.finalized.map(|(number, hash)| json!({ "number": number.0, "hash": hash.to_string() })),
        "window_blocks": seen.window,
        "final_numbers": seen.final_numbers,
    })
}
