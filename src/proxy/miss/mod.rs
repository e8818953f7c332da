//! Misses: each call learns which block is meant, and reads its content by hash.
//!
//! # Floors
//! ```text
//! respond       the service: queries, writes, forwarded calls
//! answer        resolves tags; serves tiers at the start and during an outage
//! content       answers a call that names a hash, a number or a transaction: the loop of all misses
//! insist        asks again for data that must exist
//! singles       transactions and receipts that are fetched without their block
//! forward       forwards a call as the client made it
//! deflate       compresses forwarded answers
//! prove         fetches the proof of an answer
//! fetcher       fetches content: single flight, check, store
//! load          loads entries from tiers
//! store         stores content
//! existing      data that is known to exist
//! ```

pub(super) mod answer;
pub(super) mod content;
pub(super) mod deflate;
pub(super) mod existing;
pub(super) mod fetcher;
pub(super) mod forward;
mod insist;
pub(super) mod load;
pub(super) mod prove;
pub(super) mod respond;
mod singles;
pub(super) mod store;
