//! Rent, then buy: when a whole block is cheaper than its parts.
//!
//! The first answer in a block is fetched alone. At the second, or when a packet wants two at once,
//! the whole block (or all its receipts) is fetched, since the rest is likely to follow. So nobody
//! pays more than about twice the best plan, and an indexer that walks a block's receipts pays
//! for two or three calls instead of two hundred.

use std::sync::{Arc, Mutex, PoisonError};

use moka::sync::Cache;

use super::packet::Wanted;
use crate::eth::{BlockHash, TxHash};

/// Blocks that are being counted; older ones start anew, which costs a call.
const CAP: u64 = 1 << 13;

/// Counts distinct answers that were fetched alone, by block.
#[derive(Debug)]
pub(super) struct Tally {
    buy_after: u32,
    rented: Cache<(Wanted, BlockHash), Arc<Mutex<Vec<TxHash>>>>,
}

// === impl Tally ===

impl Tally {
    /// Buys with the `buy_after`th distinct answer; never, if that is 0.
    pub(super) fn new(buy_after: u32) -> Self {
        Self { buy_after, rented: Cache::new(CAP) }
    }

    /// Is it time to buy, if this answer and `together - 1` others are wanted now?
    pub(super) fn buys(&self, wanted: Wanted, block: BlockHash, transaction: TxHash, together: u32) -> bool {
        if self.buy_after == 0 {
            return false;
        }
        let rented = self
            .rented
            .get(&(wanted, block))
            .map_or(0, |rented| lock(&rented).iter().filter(|known| **known != transaction).count() as u32);
        rented + together >= self.buy_after
    }

    /// An answer was fetched alone; tells whether it is time to buy.
    pub(super) fn rent(&self, wanted: Wanted, block: BlockHash, transaction: TxHash) -> bool {
        if self.buy_after == 0 {
            return false;
        }
        let rented = self.rented.get_with((wanted, block), Arc::default);
        let mut rented = lock(&rented);
        if !rented.contains(&transaction) && rented.len() < self.buy_after as usize {
            rented.push(transaction);
        }
        rented.len() >= self.buy_after as usize
    }

    /// A block could not be had whole: no use to try with every answer.
    pub(super) fn give_up(&self, wanted: Wanted, block: BlockHash) {
        self.rented.invalidate(&(wanted, block));
    }
}

fn lock(rented: &Mutex<Vec<TxHash>>) -> std::sync::MutexGuard<'_, Vec<TxHash>> {
    rented.lock().unwrap_or_else(PoisonError::into_inner)
}
