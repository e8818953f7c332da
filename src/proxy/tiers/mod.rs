//! Cache tiers below the in-memory cache.
//!
//! # Floors
//! ```text
//! links       the hash at a final number, by parent hashes in tiers
//! sync        passes changes of the canonical view on to tiers
//! write_back  writes final entries to tiers
//! chain       the chain under which tiers store entries
//! ```

mod chain;
pub(super) mod links;
pub(super) mod sync;
pub(super) mod write_back;

pub(super) use self::{
    links::{Asks, Links},
    sync::TierSync,
    write_back::WriteBack,
};
