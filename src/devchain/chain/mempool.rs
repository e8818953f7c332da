//! Transactions that are pending.

use crate::devchain::content::{transactions::Tx, world::World};
use alloy_consensus::Transaction as _;
use alloy_primitives::{Address, TxHash};

/// The pending transactions, in the order of their arrival.
#[derive(Clone, Debug, Default)]
pub(in crate::devchain) struct Mempool {
    waiting: Vec<Tx>,
}

/// Reason why the mempool refuses a transaction, in geth's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::devchain) enum TxRefusal {
    #[error("already known")]
    AlreadyKnown,
    #[error("nonce too low: next nonce {next}, tx nonce {nonce}")]
    NonceTooLow { next: u64, nonce: u64 },
    #[error("replacement transaction underpriced")]
    Underpriced,
    #[error("invalid chain id for signer: have {have} want {want}")]
    WrongChain { have: u64, want: u64 },
    #[error("invalid sender")]
    InvalidSender,
}

/// Percentage by which a transaction must raise the fee to replace another of the same nonce.
const PRICE_BUMP: u128 = 10;

// === impl Mempool ===

impl Mempool {
    pub(in crate::devchain) fn transactions(&self) -> &[Tx] {
        &self.waiting
    }

    pub(in crate::devchain) fn get(&self, hash: TxHash) -> Option<&Tx> {
        self.waiting.iter().find(|tx| *tx.tx_hash() == hash)
    }

    /// Returns the next nonce of `address` after the state `world` and the pending transactions.
    pub(in crate::devchain) fn next_nonce(&self, world: &World, address: Address) -> u64 {
        let waiting = self.waiting.iter().filter(|tx| tx.signer() == address);
        waiting.map(|tx| tx.nonce().saturating_add(1)).fold(world.nonce(address), u64::max)
    }

    /// Adds a transaction from a client, as a node would with the state `world`.
    pub(in crate::devchain) fn submit(&mut self, world: &World, tx: Tx) -> Result<(), TxRefusal> {
        if self.get(*tx.tx_hash()).is_some() {
            return Err(TxRefusal::AlreadyKnown);
        }
        let (next, nonce) = (world.nonce(tx.signer()), tx.nonce());
        if nonce < next {
            return Err(TxRefusal::NonceTooLow { next, nonce });
        }
        let rival = self.waiting.iter_mut().find(|it| it.signer() == tx.signer() && it.nonce() == nonce);
        match rival {
            None => self.waiting.push(tx),
            Some(rival) => {
                let bar = rival.max_fee_per_gas().saturating_mul(100 + PRICE_BUMP) / 100;
                if tx.max_fee_per_gas() < bar {
                    return Err(TxRefusal::Underpriced);
                }
                *rival = tx;
            }
        }
        Ok(())
    }

    /// Replaces the whole content, unchecked.
    pub(in crate::devchain) fn set(&mut self, transactions: Vec<Tx>) {
        self.waiting = transactions;
    }

    /// Removes the transactions that are included in a block.
    pub(in crate::devchain) fn drop_included(&mut self, included: impl Fn(TxHash) -> bool) {
        self.waiting.retain(|tx| !included(*tx.tx_hash()));
    }
}
