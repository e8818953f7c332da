//! Methods that the node does not support.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tracing::warn;

use crate::jsonrpc::Answer;

/// Error code of a node for a method that it does not have.
const METHOD_NOT_FOUND: i64 = -32601;

/// Optional methods that the node lacks.
#[derive(Debug, Default)]
pub(crate) struct NodeSupport {
    lacks_block_receipts: AtomicBool,
}

// === impl NodeSupport ===

impl NodeSupport {
    /// Returns whether the node has `eth_getBlockReceipts`, as far as is known.
    pub(crate) fn has_block_receipts(&self) -> bool {
        !self.lacks_block_receipts.load(Relaxed)
    }

    /// Learns from an error that answers `eth_getBlockReceipts`.
    pub(crate) fn note_receipts_error(&self, answer: &Answer) {
        let lacks = answer.error_code() == Some(METHOD_NOT_FOUND);
        if lacks && !self.lacks_block_receipts.swap(true, Relaxed) {
            warn!("the upstream has no eth_getBlockReceipts; fetching receipts one by one");
        }
    }
}
