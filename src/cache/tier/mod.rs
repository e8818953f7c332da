//! Interface of the cache tiers behind memory. A tier stores finalized blocks and receipts by hash.
//!
//! Entries of a tier never change, and nothing invalidates them: content has the hash that it is stored under. Holdfast
//! trusts a tier no more than an upstream, and verifies content from a tier before it serves the content. A tier also
//! has hints: the hash at a number, and the block of a transaction. Holdfast follows parent hashes to a hint, or has the
//! node confirm it.
//!
//! A tier may be slow, full, unavailable or wrong. Callers set a timeout and continue without a tier that fails.
//!
//! # Floors
//! ```text
//! interface  the trait, keys and records
//! sealed     a compressed text with its checksum
//! ```

mod interface;
mod sealed;

pub use self::{
    interface::{ChainKey, Part, Record, Tier, TierError, TierKind, Tiered, Usage},
    sealed::{Damaged, FORMAT, Sealed},
};
