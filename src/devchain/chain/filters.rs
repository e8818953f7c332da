//! The filters that clients have installed.

use std::collections::HashMap;

use alloy_primitives::{B256, TxHash};
use alloy_rpc_types_eth::Filter as LogFilter;

/// The filters of a node, by the number in their ids. Ids count up from 1, so that in tests two nodes assign the same
/// ids.
#[derive(Clone, Debug, Default)]
pub(in crate::devchain) struct Filters {
    pub(in crate::devchain) installed: HashMap<u64, Filter>,
    given: u64,
}

/// A filter, with the state of its last poll.
#[derive(Clone, Debug)]
pub(in crate::devchain) enum Filter {
    /// New blocks. Contains the hash of the head at the last poll.
    Blocks(B256),
    /// New pending transactions. Contains those that were pending at the last poll.
    Pending(Vec<TxHash>),
    /// New logs that match. Contains the hash of the head at the last poll.
    Logs(Box<LogFilter>, B256),
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
