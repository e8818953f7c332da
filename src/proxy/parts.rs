//! The components that a proxy is built from.

use std::time::SystemTime;

use super::metrics::Metrics;
use crate::{
    cache::{Cache, Tiers},
    upstream::Upstream,
    verify::Verifier,
};

/// Components of a proxy.
#[derive(Clone, Debug)]
pub struct ProxyParts {
    /// Pool of upstream nodes. The proxy expects that a task runs [`watch_identity`](Upstream::watch_identity).
    pub upstream: Upstream,
    /// In-memory cache.
    pub cache: Cache,
    /// Cache tiers, which store final blocks and receipts across restarts.
    pub tiers: Tiers,
    /// Verifies content before it enters the cache.
    pub verifier: Verifier,
    /// Whether the upstream is a single node, without a load balancer in front of it.
    pub consistent: bool,
    /// Wall clock. Unlike the monotonic clock, it advances while the machine sleeps.
    pub wall: fn() -> SystemTime,
    /// Metrics of the proxy.
    pub metrics: Metrics,
}
