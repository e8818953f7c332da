//! Cache tiers below the in-memory cache.
//!
//! # Floors
//! ```text
//! sync        passes changes of the canonical view on to tiers
//! write_back  writes final entries to tiers
//! confirm     checks a tier's finalized block with the upstream
//! chain       the chain under which tiers store entries
//! ```

mod chain;
mod confirm;
pub(super) mod sync;
pub(super) mod write_back;

pub(super) use self::{sync::TierSync, write_back::WriteBack};
