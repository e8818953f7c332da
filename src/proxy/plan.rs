//! Rent, then buy: when a whole block is cheaper than its parts.
//!
//! The first answer in a block is fetched alone. At the second, or when a packet wants two at once,
//! the whole block (or all its receipts) is fetched, since the rest is likely to follow. So nobody
//! pays more than about twice the best plan, and an indexer that walks a block's receipts pays
//! for two or three calls instead of two hundred.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::packet::Wanted;
use crate::eth::{BlockHash, TxHash};

/// Blocks that are being counted at a time. One that takes another's place starts anew, which costs a call.
const PLACES: usize = 1 << 13;

/// Counts distinct answers that were fetched alone, by block.
#[derive(Debug)]
pub(super) struct Tally {
    buy_after: u32,
    rented: Box<[Mutex<Rented>]>,
}

/// What was fetched alone of a block.
#[derive(Debug, Default)]
struct Rented {
    of: Option<(Wanted, BlockHash)>,
    transactions: Vec<TxHash>,
}

// === impl Tally ===

impl Tally {
    /// Buys with the `buy_after`th distinct answer; never, if that is 0.
    pub(super) fn new(buy_after: u32) -> Self {
        Self { buy_after, rented: (0..PLACES).map(|_| Mutex::default()).collect() }
    }

    /// Is it time to buy, if this answer and `together - 1` others are wanted now?
    pub(super) fn buys(&self, wanted: Wanted, block: BlockHash, transaction: TxHash, together: u32) -> bool {
        if self.buy_after == 0 {
            return false;
        }
        let place = self.place(wanted, block);
        let rented = match place.of {
            of if of == Some((wanted, block)) => {
                place.transactions.iter().filter(|known| **known != transaction).count() as u32
            }
            _ => 0,
        };
        rented + together >= self.buy_after
    }

    /// An answer was fetched alone; tells whether it is time to buy.
    pub(super) fn rent(&self, wanted: Wanted, block: BlockHash, transaction: TxHash) -> bool {
        if self.buy_after == 0 {
            return false;
        }
        let mut place = self.place(wanted, block);
        if place.of != Some((wanted, block)) {
            place.of = Some((wanted, block));
            place.transactions.clear();
        }
        if !place.transactions.contains(&transaction) && place.transactions.len() < self.buy_after as usize {
            place.transactions.push(transaction);
        }
        place.transactions.len() >= self.buy_after as usize
    }

    /// A block could not be had whole: no use to try with every answer.
    pub(super) fn give_up(&self, wanted: Wanted, block: BlockHash) {
        let mut place = self.place(wanted, block);
        if place.of == Some((wanted, block)) {
            *place = Rented::default();
        }
    }

    /// Where a block is counted: its hash is as good as any.
    fn place(&self, wanted: Wanted, block: BlockHash) -> MutexGuard<'_, Rented> {
        let [.., high, low] = block.0.0;
        let at = usize::from(u16::from_be_bytes([high, low])) + wanted as usize;
        self.rented[at % PLACES].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
