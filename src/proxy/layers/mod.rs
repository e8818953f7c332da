//! The layers around a call, in the order of the stack.
//!
//! # Floors
//! ```text
//! measure      counts and logs every call
//! admit        refuses calls that the policy or the rate limit of the caller forbids
//! cached       answers hits from the cache
//! composed     answers calls that are composed of content: encoded content and logs
//! raw          encodes blocks, receipts and transactions
//! raw_content  the content of encoded answers
//! deadline     limits the time of a miss
//! ```

pub(super) mod admit;
pub(super) mod cached;
pub(super) mod composed;
pub(super) mod deadline;
pub(super) mod measure;
pub(super) mod raw;
mod raw_content;
