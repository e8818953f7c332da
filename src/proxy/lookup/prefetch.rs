//! Rent, then buy: when a whole block is cheaper than its parts.
//!
//! The first answer in a block is fetched alone. At the second, or when a packet wants two at once,
//! the whole block (or all its receipts) is fetched, since the rest is likely to follow. So nobody
//! pays more than about twice the best plan, and an indexer that walks a block's receipts pays
//! for two or three calls instead of two hundred.

use parking_lot::{Mutex, MutexGuard};

use crate::eth::{BlockHash, Part, TxHash};

/// Blocks that are being counted at a time. One that takes another's place starts anew, which costs a call.
const PLACES: usize = 1 << 13;

/// Remembers, by block, an answer that was fetched alone.
#[derive(Debug)]
pub(in crate::proxy) struct Tally(Box<[Mutex<Option<Rented>>]>);

/// An answer that was fetched alone.
#[derive(Clone, Copy, Debug)]
struct Rented {
    of: (Part, BlockHash),
    transaction: TxHash,
}

// === impl Tally ===

impl Tally {
    pub(in crate::proxy) fn new() -> Self {
        Self((0..PLACES).map(|_| Mutex::default()).collect())
    }

    /// Returns whether it is time to buy, if this answer and `together - 1` others are part now.
    pub(in crate::proxy) fn buys(
        &self,
        part: Part,
        block: BlockHash,
        transaction: TxHash,
        together: u32,
    ) -> bool {
        let is_another = |rented: Rented| rented.of == (part, block) && rented.transaction != transaction;
        together > 1 || places(part, block).into_iter().any(|at| self.0[at].lock().is_some_and(is_another))
    }

    /// An answer was fetched alone; returns whether it is time to buy.
    pub(in crate::proxy) fn rent(&self, part: Part, block: BlockHash, transaction: TxHash) -> bool {
        let of = (part, block);
        let mut place = self.place(part, block);
        let first = place.filter(|rented| rented.of == of);
        if first.is_none() {
            *place = Some(Rented { of, transaction });
        }
        first.is_some_and(|first| first.transaction != transaction)
    }

    /// A block could not be had whole: no use to try with every answer.
    pub(in crate::proxy) fn give_up(&self, part: Part, block: BlockHash) {
        for at in places(part, block) {
            let mut place = self.0[at].lock();
            if place.is_some_and(|rented| rented.of == (part, block)) {
                *place = None;
            }
        }
    }

    /// The place of a block: its own, else one that is free, else the first of two. One place alone would be taken by turns by
    /// two blocks that are walked together, and neither would ever be bought.
    fn place(&self, part: Part, block: BlockHash) -> MutexGuard<'_, Option<Rented>> {
        let [one, two] = places(part, block);
        let is_own = |place: &Option<Rented>| place.is_some_and(|rented| rented.of == (part, block));
        // One lock at a time: a caller that takes both could meet one that takes them the other way round.
        let first = self.0[one].lock();
        if is_own(&first) {
            return first;
        }
        let is_free = first.is_none();
        drop(first);
        let second = self.0[two].lock();
        if is_own(&second) || (second.is_none() && !is_free) {
            return second;
        }
        drop(second);
        self.0[one].lock()
    }
}

/// The two places where a block may be counted: its hash is as good as any.
fn places(part: Part, block: BlockHash) -> [usize; 2] {
    let [first, second, .., high, low] = block.0.0;
    [[high, low], [first, second]]
        .map(|bytes| (usize::from(u16::from_be_bytes(bytes)) + part as usize) % PLACES)
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
        let tally = Tally::new();
        let blocks = [1, 2].map(|first| BlockHash(hash(first, 7)));
        let rent = |at| blocks.map(|block| tally.rent(Part::Receipt, block, TxHash(hash(at, at))));
        assert_eq!(rent(1), [false, false]);
        assert_eq!(rent(1), [false, false], "the same once more is nothing new");
        let third = TxHash(hash(3, 3));
        assert!(blocks.iter().all(|block| tally.buys(Part::Receipt, *block, third, 1)));
        assert_eq!(rent(2), [true, true]);
        tally.give_up(Part::Receipt, blocks[0]);
        assert!(!tally.buys(Part::Receipt, blocks[0], third, 1));
        assert!(tally.buys(Part::Receipt, blocks[1], third, 1));
    }
}
