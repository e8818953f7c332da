//! The tiers behind memory, in lookup order, each with timeouts and circuit breakers.
//!
//! A lookup asks one tier after the other until one has the entry. Every tier before that one then receives a copy.
//! Writes happen in the background. Each tier has a bounded queue of writes; a full queue drops further writes. If a
//! tier keeps failing, its circuit breaker rejects calls for a while.
//!
//! # Floors
//! ```text
//! gauges   gauges of all tiers
//! all      all tiers: reads and writes
//! writer   background writes to one tier
//! guarded  one tier with its circuit breaker
//! metrics  counters
//! status   the status of a tier
//! ```

mod all;
mod gauges;
mod guarded;
mod metrics;
mod status;
mod writer;

pub use self::{
    all::{Found, Tiers},
    gauges::register_gauges,
    metrics::Metrics,
    status::TierStatus,
    writer::Parcel,
};
