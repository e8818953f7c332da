//! The identifier of an endpoint.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Which endpoint it is, for as long as the program runs: names may be given to another, places may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndpointId(u64);

// === impl EndpointId ===

impl EndpointId {
    pub(in crate::upstream) fn next() -> Self {
        static GIVEN: AtomicU64 = AtomicU64::new(0);
        Self(GIVEN.fetch_add(1, Relaxed))
    }
}
