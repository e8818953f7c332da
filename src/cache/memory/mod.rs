//! The cache in memory: content by block hash, and the likely locations of transactions.
//!
//! # Floors
//! ```text
//! store      the cache
//! held       descriptions of entries, for operators
//! windowed   entries near the head
//! metrics    counts of entries
//! entity     an entry and its weight
//! deflated   deflated texts
//! indexed_logs  indexes of logs
//! location   where transactions are
//! ```

mod deflated;
mod entity;
mod held;
mod indexed_logs;
mod location;
mod metrics;
mod store;
mod windowed;

pub use self::{
    deflated::{Deflated, Whole},
    held::Held,
    indexed_logs::{IndexedLogs, Unsearchable},
    location::{INDEXED_INLINE, Location},
    metrics::Metrics,
    store::Cache,
};
