//! The cache: blocks, transactions and receipts by block hash, and the likely locations of transactions.
//!
//! Cached entries (a block, its transactions, its receipts) never change. No entry says which block is canonical. A
//! location is a hint: it is valid only if the module `chain` confirms, at the moment of the response, that the block
//! is canonical. The cache stores only [`Verified`](crate::verify::Verified) content, and entries made of it: [`Deflated`] copies
//! and [indexes](IndexedLogs) of logs.
//!
//! # Floors
//! ```text
//! memory  entries in memory
//! tiers   the tiers behind memory: order, reads, writes
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
    memory::{Cache, Deflated, Held, INDEXED_INLINE, IndexedLogs, Location, Metrics, Unsearchable, Whole},
    tiers::{
        Found, Metrics as TierMetrics, Parcel, TierStatus, Tiers, register_gauges as register_tier_gauges,
    },
};
