//! The filters that clients have installed.

use std::collections::HashMap;

use alloy_primitives::{B256, TxHash};

/// The filters of a node, by the number in their ids: counted, so that those of two nodes collide.
#[derive(Debug, Default)]
pub(in crate::devchain) struct Filters {
    pub(in crate::devchain) installed: HashMap<u64, Filter>,
    given: u64,
}

/// A filter, with what its client has polled so far.
#[derive(Debug)]
pub(in crate::devchain) enum Filter {
    /// New blocks after this one.
    Blocks(B256),
    /// Transactions that were not waiting at the last poll.
    Pending(Vec<TxHash>),
    /// There is no EVM worth the name: none ever matches.
    Logs,
}

// === impl Filters ===

impl Filters {
    /// Installs a filter, and returns its id.
    pub(in crate::devchain) fn install(&mut self, filter: Filter) -> u64 {
        self.given += 1;
        self.installed.insert(self.given, filter);
        self.given
    }
}
