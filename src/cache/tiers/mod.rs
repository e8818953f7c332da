//! The tiers behind memory, in lookup order, each with timeouts and circuit breakers.
//!
//! A lookup asks one tier after the other until one has the entry. Then every tier before that one receives a copy.
//! Writes happen in the background; each tier has a bounded queue, which drops further writes when it is full. The
//! breaker of a tier that keeps failing turns calls away for a while. The upstream must confirm a tier before its
//! number and transaction index may answer; see [`trust`].
//!
//! # Floors
//! ```text
//! gauges   gauges of all tiers
//! all      all tiers: reads, writes, trust
//! writer   writes behind the answers
//! guarded  one tier with its circuit breaker
//! metrics  counters
//! status   the status of a tier
//! checkpoint  a finalized block by which entries may be written
//! trust    trust in a tier's index
//! ```

mod all;
mod checkpoint;
mod gauges;
mod guarded;
mod metrics;
mod status;
mod trust;
mod writer;

pub use self::{
    all::{Found, Tiers, Unconfirmed},
    checkpoint::Checkpoint,
    gauges::register_gauges,
    metrics::Metrics,
    status::TierStatus,
    trust::{Accept, Generation},
    writer::Parcel,
};
