//! Interface of the cache tiers behind memory. A tier stores finalized blocks and receipts by hash, and an index of
//! block numbers and transactions.
//!
//! Entries of a tier never change, because their blocks are final and verified. (On a chain without verification, the
//! blocks were already final when Holdfast fetched them.) So nothing invalidates an entry, unless the chain replaces a
//! finalized block, which must not happen. Holdfast trusts a tier no more than an upstream, and verifies content from a
//! tier before it serves the content. Only the hash of the block at a finalized number cannot be verified; see
//! [`Tier::hash_at`].
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
