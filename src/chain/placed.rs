//! Where single transactions and receipts say that they are.

use std::collections::{HashMap, VecDeque};

use super::Stamp;
use crate::eth::{BlockHash, BlockNumber, TxHash};

/// Transactions that are remembered; enough for what clients ask for within a second or two.
const CAP: usize = 4096;

/// The block that an answer names for a transaction.
#[derive(Clone, Copy, Debug)]
struct Placed {
    number: BlockNumber,
    block: BlockHash,
    sent: Stamp,
}

/// The newest such answer for each transaction.
///
/// Nothing proves where a single answer says that it is, so it speaks for its own transaction only, and for a short time.
#[derive(Clone, Debug, Default)]
pub(super) struct PlacedTransactions {
    placed: HashMap<TxHash, Placed>,
    /// In the order in which they were noted. A transaction that was noted again is in it twice.
    order: VecDeque<(TxHash, u64)>,
}

// === impl PlacedTransactions ===

impl PlacedTransactions {
    /// Notes an answer, unless a newer one is there.
    pub(super) fn insert(&mut self, transaction: TxHash, number: BlockNumber, block: BlockHash, sent: Stamp) {
        if self.placed.get(&transaction).is_some_and(|known| sent.is_before(known.sent)) {
            return;
        }
        self.placed.insert(transaction, Placed { number, block, sent });
        self.order.push_back((transaction, sent.order));
        while self.order.len() > CAP {
            let Some((oldest, order)) = self.order.pop_front() else { break };
            if self.placed.get(&oldest).is_some_and(|placed| placed.sent.order == order) {
                self.placed.remove(&oldest);
            }
        }
    }

    /// When the newest answer for this transaction was asked for, if it names this block.
    pub(super) fn get(&self, transaction: TxHash, block: BlockHash) -> Option<Stamp> {
        self.placed.get(&transaction).filter(|placed| placed.block == block).map(|placed| placed.sent)
    }

    /// Returns whether any of them is said to be in a block with this number.
    pub(super) fn has_number(&self, number: BlockNumber) -> bool {
        self.placed.values().any(|placed| placed.number == number)
    }

    pub(super) fn clear(&mut self) {
        self.placed.clear();
        self.order.clear();
    }
}
