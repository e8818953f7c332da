//! Rent, then buy: when a whole block is cheaper than its parts.
//!
//! The first answer in a block is fetched alone. At the second, or when a packet wants two at once,
//! the whole block (or all its receipts) is fetched, since the rest is likely to follow. So nobody
//! pays more than about twice the best plan, and an indexer that walks a block's receipts pays
//! for two or three calls instead of two hundred.

use parking_lot::{Mutex, MutexGuard};

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
        let of = Some((wanted, block));
        let own = places(wanted, block).into_iter().map(|at| self.lock(at)).find(|place| place.of == of);
        let rented = own.map_or(0, |place| {
            place.transactions.iter().filter(|known| **known != transaction).count() as u32
        });
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
        for at in places(wanted, block) {
            let mut place = self.lock(at);
            if place.of == Some((wanted, block)) {
                *place = Rented::default();
            }
        }
    }

    /// Where a block is counted: in its own place, else where nothing is lost, or the less of two. One place alone would
    /// be taken by turns by two blocks that are walked together, and neither would ever be bought.
    fn place(&self, wanted: Wanted, block: BlockHash) -> MutexGuard<'_, Rented> {
        let (of, [one, two]) = (Some((wanted, block)), places(wanted, block));
        // One lock at a time: whoever takes both could meet somebody who takes them the other way round.
        let first = self.lock(one);
        if first.of == of {
            return first;
        }
        let held = first.transactions.len();
        drop(first);
        let second = self.lock(two);
        if second.of == of || second.transactions.len() < held {
            return second;
        }
        drop(second);
        self.lock(one)
    }

    fn lock(&self, at: usize) -> MutexGuard<'_, Rented> {
        self.rented[at].lock()
    }
}

/// The two places where a block may be counted: its hash is as good as any.
fn places(wanted: Wanted, block: BlockHash) -> [usize; 2] {
    let [first, second, .., high, low] = block.0.0;
    [[high, low], [first, second]]
        .map(|part| (usize::from(u16::from_be_bytes(part)) + wanted as usize) % PLACES)
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;

    use super::*;

    fn hash(first: u8, last: u8) -> B256 {
        let mut bytes = [0; 32];
        (bytes[0], bytes[31]) = (first, last);
        B256::from(bytes)
    }

    #[test]
    fn two_blocks_in_one_place_that_are_walked_together_are_both_bought() {
        let tally = Tally::new(2);
        let blocks = [1, 2].map(|first| BlockHash(hash(first, 7)));
        let rent = |at| blocks.map(|block| tally.rent(Wanted::Receipt, block, TxHash(hash(at, at))));
        assert_eq!(rent(1), [false, false]);
        assert_eq!(rent(1), [false, false], "the same once more is nothing new");
        let third = TxHash(hash(3, 3));
        assert!(blocks.iter().all(|block| tally.buys(Wanted::Receipt, *block, third, 1)));
        assert_eq!(rent(2), [true, true]);
        tally.give_up(Wanted::Receipt, blocks[0]);
        assert!(!tally.buys(Wanted::Receipt, blocks[0], third, 1));
        assert!(tally.buys(Wanted::Receipt, blocks[1], third, 1));
    }
}
