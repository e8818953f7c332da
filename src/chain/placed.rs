//! Blocks named by transactions and receipts that were fetched without their block.

use std::collections::{HashMap, VecDeque};

use super::Stamp;
use crate::eth::{BlockHash, BlockNumber, TxHash};

/// Maximum number of stored answers: enough for the transactions that clients request within a second or two.
const CAP: usize = 4096;

/// The block that an answer names for a transaction.
#[derive(Clone, Copy, Debug)]
struct Placed {
    number: BlockNumber,
    block: BlockHash,
    sent: Stamp,
}

/// For each transaction, the block that the newest answer names.
///
/// A single transaction or receipt cannot prove that it is in that block, so the answer is used for that transaction
/// only, and only for a short time.
#[derive(Clone, Debug, Default)]
pub(super) struct PlacedTransactions {
    placed: HashMap<TxHash, Placed>,
    /// Transactions in insertion order, each with the sequence number of its answer's stamp. A transaction is listed
    /// once for each insertion.
    order: VecDeque<(TxHash, u64)>,
}

// === impl PlacedTransactions ===

impl PlacedTransactions {
    /// Stores an answer, unless the stored answer for the same transaction was requested later.
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

    /// Returns when the newest answer for `transaction` was requested, if that answer names `block`.
    pub(super) fn get(&self, transaction: TxHash, block: BlockHash) -> Option<Stamp> {
        self.placed.get(&transaction).filter(|placed| placed.block == block).map(|placed| placed.sent)
    }

    /// Returns whether any answer names a block with this number.
    pub(super) fn has_number(&self, number: BlockNumber) -> bool {
        self.placed.values().any(|placed| placed.number == number)
    }

    pub(super) fn clear(&mut self) {
        self.placed.clear();
        self.order.clear();
    }
}
