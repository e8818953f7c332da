//! The layers around a call, in the order of the stack.
//!
//! # Floors
//! ```text
//! measure   counts and logs every call
//! admit     refuses calls that the policy or the rate limit of the caller forbids
//! cached    answers hits from the cache
//! raw       encodes blocks, receipts and transactions
//! deadline  limits the time of a miss
//! deflate   compresses forwarded answers
//! ```

pub(super) mod admit;
pub(super) mod cached;
pub(super) mod deadline;
pub(super) mod deflate;
pub(super) mod measure;
pub(super) mod raw;
