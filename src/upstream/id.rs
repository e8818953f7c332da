//! The identifier of an endpoint.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Identifies an endpoint while the program runs. A reload may reuse a name or move an endpoint in the list; an id
/// never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndpointId(u64);

// === impl EndpointId ===

impl EndpointId {
    pub(in crate::upstream) fn next() -> Self {
        static GIVEN: AtomicU64 = AtomicU64::new(0);
        Self(GIVEN.fetch_add(1, Relaxed))
    }
}
