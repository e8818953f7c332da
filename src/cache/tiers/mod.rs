//! The tiers behind memory, in lookup order, each with timeouts and circuit breakers.
//!
//! A lookup asks one tier after the other until one has the entry. Every tier before that one then receives a copy.
//! Writes happen in the background. Each tier has a bounded queue of writes; a full queue drops further writes. If a
//! tier keeps failing, its circuit breaker rejects calls for a while. Until the upstream has confirmed a tier, the
//! number and transaction index of the tier gives little more than hints; see [`trust`].
//!
//! # Floors
//! ```text
//! gauges   gauges of all tiers
//! all      all tiers: reads, writes, trust
//! writer   background writes to one tier
//! guarded  one tier with its circuit breaker
//! metrics  counters
//! status   the status of a tier
//! checkpoint  a finalized block up to which entries may be written
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
