//! The cache: content by block hash, and hints to where transactions are.
//!
//! Cached entries do not change: a block, its transactions, its receipts. No entry says which block is canonical: a
//! location is a hint, valid only if `chain` confirms its block at the moment of the response. The cache stores only
//! [`Verified`](crate::verify::Verified) content, and a [`Deflated`] form of it.
//!
//! # Floors
//! ```text
//! memory  entries in memory
//! tiers   the tiers behind memory: order, trust, writes
//! disk    the tier on disk
//! config  sections [cache], [cache.disk], [cache.redis]
//! redis   the tier in Redis
//! tier    the interface of a tier
//! ```

mod config;
mod disk;
mod memory;
pub mod redis;
pub mod tier;
mod tiers;

pub use self::{
    config::{Config, DiskConfig},
    disk::{Disk, DiskError},
    memory::{Cache, Deflated, Held, INDEXED_INLINE, Location, Metrics, Whole},
    tiers::{
        Accept, Checkpoint, Found, Generation, Metrics as TierMetrics, Parcel, TierStatus, Tiers,
        Unconfirmed, register_gauges as register_tier_gauges,
    },
};
