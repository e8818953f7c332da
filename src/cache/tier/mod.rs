//! The seam to what outlives memory: blocks and receipts that are final, and where they stand.
//!
//! What is handed to a tier never changes: it is final, and proved (or, on a chain where nothing can be proved, was said when
//! it was final). So nothing has to be taken back, but for the one case that must not happen, a final block that changed.
//! What comes back is believed no more than an upstream: its bytes are checked again before anybody sees them. Only that a
//! final number has this hash is a tier's own word; see [`Tier::hash_at`].
//!
//! A tier may be slow, full, gone or wrong. Whoever asks one gives it a time, and goes on without it.
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
