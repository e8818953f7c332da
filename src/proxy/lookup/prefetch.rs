//! Ski rental: when a whole block is cheaper than its parts.
//!
//! The proxy fetches the first transaction (or receipt) of a block alone. At the second, or when a packet asks for two
//! at once, it fetches the whole block (or all its receipts), because calls for the rest are likely to follow. So the
//! proxy makes at most about twice the calls of the best plan. If the block is cached, already the first receipt brings
//! all, so that an indexer that reads blocks and their receipts costs two calls a block instead of two hundred.

use parking_lot::{Mutex, MutexGuard};

use crate::eth::{BlockHash, Part, TxHash};

/// Number of slots. A block that loses its slot to another starts over, which costs one call.
const PLACES: usize = 1 << 13;

/// Remembers, for each block, one answer that was fetched alone.
#[derive(Debug)]
pub(crate) struct PrefetchCounter(Box<[Mutex<Option<SingleFetch>>]>);

/// An answer that was fetched alone.
#[derive(Clone, Copy, Debug)]
struct SingleFetch {
    of: (Part, BlockHash),
    transaction: TxHash,
}

// === impl PrefetchCounter ===

impl PrefetchCounter {
    pub(crate) fn new() -> Self {
        Self((0..PLACES).map(|_| Mutex::default()).collect())
    }

    /// Returns whether to fetch the whole for this answer. `together` is the number of answers that the packet needs
    /// from this block.
    pub(crate) fn is_due(&self, part: Part, block: BlockHash, transaction: TxHash, together: u32) -> bool {
        let is_another =
            |fetched: SingleFetch| fetched.of == (part, block) && fetched.transaction != transaction;
        together > 1 || places(part, block).into_iter().any(|at| self.0[at].lock().is_some_and(is_another))
    }

    /// Records an answer that was fetched alone; returns whether to fetch the whole now.
    pub(crate) fn note_single(&self, part: Part, block: BlockHash, transaction: TxHash) -> bool {
        let of = (part, block);
        let mut place = self.place(part, block);
        let first = place.filter(|fetched| fetched.of == of);
        if first.is_none() {
            *place = Some(SingleFetch { of, transaction });
        }
        first.is_some_and(|first| first.transaction != transaction)
    }

    /// Forgets a block that could not be fetched whole.
    pub(crate) fn give_up(&self, part: Part, block: BlockHash) {
        for at in places(part, block) {
            let mut place = self.0[at].lock();
            if place.is_some_and(|fetched| fetched.of == (part, block)) {
                *place = None;
            }
        }
    }

    /// Returns the slot of a block: its own, else a free one, else the first of two. If each block
    /// had only one slot, two blocks that are walked together could take it from each other, and the proxy would fetch
    /// neither whole.
    fn place(&self, part: Part, block: BlockHash) -> MutexGuard<'_, Option<SingleFetch>> {
        let [one, two] = places(part, block);
        let is_own = |place: &Option<SingleFetch>| place.is_some_and(|fetched| fetched.of == (part, block));
        // One lock at a time: two callers that take both in opposite order would deadlock.
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

/// Returns the two slots of a block, taken from its hash.
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
    fn two_blocks_with_one_slot_are_both_prefetched() {
        let counter = PrefetchCounter::new();
        let blocks = [1, 2].map(|first| BlockHash(hash(first, 7)));
        let note = |at| blocks.map(|block| counter.note_single(Part::Receipt, block, TxHash(hash(at, at))));
        assert_eq!(note(1), [false, false]);
        assert_eq!(note(1), [false, false], "a repeated answer does not count twice");
        let third = TxHash(hash(3, 3));
        assert!(blocks.iter().all(|block| counter.is_due(Part::Receipt, *block, third, 1)));
        assert_eq!(note(2), [true, true]);
        counter.give_up(Part::Receipt, blocks[0]);
        assert!(!counter.is_due(Part::Receipt, blocks[0], third, 1));
        assert!(counter.is_due(Part::Receipt, blocks[1], third, 1));
    }
}
