//! Content by block hash, and hints where transactions are.
//!
//! What is kept here does not change: a block, its transactions, its receipts. Nothing here says
//! what is canonical: a location is a hint, to be believed only when `chain` confirms its block at
//! the moment of the answer. Only [`Verified`](crate::verify::Verified) content can be put in, and a [`Deflated`]
//! form of it.

mod config;
mod deflated;
mod disk;
mod entity;
mod held;
mod location;
mod metrics;
pub mod redis;
mod store;
pub mod tier;
mod tiers;
mod windowed;

pub use self::{
    config::{Config, DiskConfig},
    deflated::{Deflated, Whole},
    disk::{Disk, DiskError},
    held::Held,
    location::{INDEXED_INLINE, Location},
    metrics::Metrics,
    store::Cache,
    tiers::{
        Accept, Checkpoint, Found, Generation, Metrics as TierMetrics, Parcel, TierStatus, Tiers, Unconfirmed,
    },
};
