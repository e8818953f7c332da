//! Interface of the cache tiers behind memory. They store finalized blocks and receipts by hash, and an index of block
//! numbers and transactions.
//!
//! Entries of a tier never change: their blocks are final and verified (or, on a chain without verification, were
//! already final when fetched). So nothing invalidates them, except in the one case that must not happen: the chain
//! replaces a finalized block. Holdfast trusts content from a tier no more than an upstream's and verifies it before it
//! serves it. Only the hash at a finalized number rests on the tier alone; see [`Tier::hash_at`].
//!
//! A tier may be slow, full, unavailable or wrong. Callers set a timeout and continue without it.
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
