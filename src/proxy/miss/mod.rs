//! Misses: carries out the plan of a lookup until there is an answer.
//!
//! # Floors
//! ```text
//! respond       the service: queries, writes, forwarded calls
//! answer        carries out the plan of a lookup until there is an answer
//! fetch_answer  fetches content and slices the answer out of it
//! prefetch      fetches whole blocks
//! forward       forwards a call as the client made it
//! deflate       compresses forwarded answers
//! prove         fetches the proof of an answer
//! fetcher       fetches content: single flight, check, store
//! load          loads entries from tiers
//! store         stores content
//! existing      data that is known to exist
//! changes       chain changes while a call waits for its answer
//! ```

pub(super) mod answer;
mod changes;
pub(super) mod deflate;
pub(super) mod existing;
pub(super) mod fetch_answer;
pub(super) mod fetcher;
pub(super) mod forward;
pub(super) mod load;
pub(super) mod prefetch;
pub(super) mod prove;
pub(super) mod respond;
pub(super) mod store;
