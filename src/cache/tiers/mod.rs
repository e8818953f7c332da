//! The tiers behind memory, in the order in which they are asked; none is waited for longer than it is worth.
//!
//! Reads go down until one has it. Writes are behind the answers: queued within a bound, dropped beyond it, and made to every
//! tier above the one where something was found. One that keeps failing is left alone for a while. Its number and transaction
//! index counts while it has [`trust`].
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
