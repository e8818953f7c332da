//! The parts that a proxy is made of.

use std::time::SystemTime;

use super::metrics::Metrics;
use crate::{
    cache::{Cache, Tiers},
    upstream::Upstream,
    verify::Verifier,
};

/// What a proxy is made of.
#[derive(Clone, Debug)]
pub struct ProxyParts {
    /// The upstream. A task must [watch its identity](Upstream::watch_identity).
    pub upstream: Upstream,
    /// Where content is kept.
    pub cache: Cache,
    /// Where what is final outlives it.
    pub tiers: Tiers,
    /// Who checks it before.
    pub verifier: Verifier,
    /// Is the upstream one node, without a balancer in between?
    pub consistent: bool,
    /// The wall's clock, which goes on while the machine sleeps.
    pub wall: fn() -> SystemTime,
    /// Who counts.
    pub metrics: Metrics,
}
