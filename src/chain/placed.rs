//! Blocks named by transactions and receipts that were fetched without their block.

use std::collections::{HashMap, VecDeque};

use super::Stamp;
use crate::eth::{BlockHash, TxHash};

/// Maximum number of stored answers: enough for the transactions that clients request within a second or two.
const CAP: usize = 4096;

/// The block that an answer names for a transaction.
#[derive(Clone, Copy, Debug)]
struct Placed {
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
    pub(super) fn insert(&mut self, transaction: TxHash, block: BlockHash, sent: Stamp) {
        if self.placed.get(&transaction).is_some_and(|known| sent.is_before(known.sent)) {
            return;
        }
        self.placed.insert(transaction, Placed { block, sent });
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

    pub(super) fn clear(&mut self) {
        self.placed.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;

    use super::*;
    use crate::chain::Clock;

    fn transaction(number: u64) -> TxHash {
        TxHash(B256::left_padding_from(&number.to_be_bytes()))
    }

    #[tokio::test(start_paused = true)]
    async fn newest_answer_for_a_transaction_wins_and_the_oldest_is_dropped() {
        let (clock, mut placed) = (Clock::default(), PlacedTransactions::default());
        let block = |byte| BlockHash(B256::repeat_byte(byte));
        let (earlier, later) = (clock.now(), clock.now());
        placed.insert(transaction(1), block(5), earlier);
        placed.insert(transaction(0), block(6), earlier);
        placed.insert(transaction(0), block(7), later);
        placed.insert(transaction(0), block(6), earlier);
        assert_eq!(placed.get(transaction(0), block(7)), Some(later));
        // Drops the answer for transaction 1 and the first of the two for transaction 0.
        for other in 2..=CAP as u64 {
            placed.insert(transaction(other), block(8), clock.now());
        }
        assert_eq!(placed.get(transaction(1), block(5)), None);
        assert_eq!(placed.get(transaction(0), block(7)), Some(later));
    }
}
