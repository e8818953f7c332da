//! Hashes of final blocks by number.

use std::collections::BTreeMap;

use super::window::{Find, Link};
use crate::eth::{BlockHash, BlockNumber};

/// Maximum number of entries, which take about 35 MB. Dropping an entry is always safe, because Holdfast then asks the
/// upstream for that number.
const CAP: usize = 1 << 18;

/// Maximum number of steps of one [`FinalIndex::link_down`], so that the caller holds its lock for at most about a
/// millisecond. A later call can link the remaining ancestors.
const MOST_STEPS: usize = 4096;

/// Final blocks by number.
#[derive(Clone, Debug, Default)]
pub(super) struct FinalIndex(BTreeMap<BlockNumber, Entry>);

/// A final block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) hash: BlockHash,
    /// Hash of the parent, if the block or its header was seen.
    pub(super) parent: Option<BlockHash>,
    /// Whether a path of parent hashes leads to this block from the window or from a finalized block. An unlinked entry
    /// rests on a single answer or on the own disk.
    pub(super) linked: bool,
}

/// Changes to the final index that the cache tiers apply, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Consequences {
    /// Blocks that entered the index, except a new finalized block and the blocks of the window that became final with
    /// it.
    pub(super) entered: Vec<(BlockNumber, BlockHash)>,
    /// Entries that were dropped because an answer contradicted or denied them.
    pub(super) dropped: Vec<(BlockNumber, BlockHash)>,
}

// === impl Entry ===

impl Entry {
    /// Returns the entry of a block that a path of parent hashes leads to.
    pub(super) fn linked(link: Link) -> Self {
        Self { hash: link.hash, parent: Some(link.parent), linked: true }
    }

    /// Returns the entry of a block that rests on a single answer or on the own disk.
    pub(super) fn unlinked(hash: BlockHash, parent: Option<BlockHash>) -> Self {
        Self { hash, parent, linked: false }
    }
}

// === impl FinalIndex ===

impl FinalIndex {
    pub(super) fn get(&self, number: BlockNumber) -> Option<BlockHash> {
        self.0.get(&number).map(|entry| entry.hash)
    }

    pub(super) fn entry(&self, number: BlockNumber) -> Option<Entry> {
        self.0.get(&number).copied()
    }

    /// Returns the nearest entry above `number`.
    pub(super) fn above(&self, number: BlockNumber) -> Option<(BlockNumber, Entry)> {
        let from = BlockNumber(number.0.checked_add(1)?);
        self.0.range(from..).next().map(|(number, entry)| (*number, *entry))
    }

    /// Returns the entries above `above`, up to and including `up_to`.
    pub(super) fn between(
        &self,
        above: Option<BlockNumber>,
        up_to: BlockNumber,
    ) -> impl Iterator<Item = (BlockNumber, BlockHash)> {
        let from = above.map_or(0, |above| above.0.saturating_add(1)).min(up_to.0);
        self.0.range(BlockNumber(from)..=up_to).map(|(number, entry)| (*number, entry.hash))
    }

    /// Returns the number of the block with this hash. Scans all entries.
    pub(super) fn number_of(&self, hash: BlockHash) -> Option<BlockNumber> {
        self.0.iter().find(|(_, entry)| entry.hash == hash).map(|(number, _)| *number)
    }

    /// Inserts an entry, which replaces the entry at that number. A block that is already linked stays linked.
    pub(super) fn insert(&mut self, number: BlockNumber, entry: Entry) {
        let linked = |known: &Entry| known.hash == entry.hash && known.linked;
        let entry = Entry { linked: entry.linked || self.0.get(&number).is_some_and(linked), ..entry };
        self.0.insert(number, entry);
        if self.0.len() > CAP {
            self.0.pop_first();
        }
    }

    pub(super) fn remove(&mut self, number: BlockNumber) {
        self.0.remove(&number);
    }

    /// Links the ancestors of the block at `number`, whose parent is `parent`: existing entries, and blocks that `find`
    /// returns.
    ///
    /// Drops unlinked entries that contradict the path. The path ends at a linked entry, at a block that is unknown, or
    /// after [`MOST_STEPS`].
    pub(super) fn link_down(
        &mut self,
        number: BlockNumber,
        parent: BlockHash,
        find: Find<'_>,
        consequences: &mut Consequences,
    ) {
        let (mut above, mut hash) = (number, parent);
        for _ in 0..MOST_STEPS {
            let below = self.0.range(..above).next_back().map(|(number, entry)| (*number, *entry));
            let known = below.filter(|(_, entry)| entry.hash == hash);
            let (number, parent) = match known {
                Some((_, Entry { linked: true, .. })) => return,
                Some((number, entry)) => {
                    (number, entry.parent.or_else(|| find(hash).map(|link| link.parent)))
                }
                None => match find(hash).filter(|link| link.number < above) {
                    Some(link) => (link.number, Some(link.parent)),
                    None => return,
                },
            };
            // Other entries from this number up to the block above contradict the path.
            let contrary: Vec<_> =
                self.0.range(number..above).map(|(number, entry)| (*number, *entry)).collect();
            for (number, entry) in contrary.into_iter().filter(|(_, entry)| entry.hash != hash) {
                if entry.linked {
                    return;
                }
                self.0.remove(&number);
                consequences.dropped.push((number, entry.hash));
            }
            if known.is_none() {
                consequences.entered.push((number, hash));
            }
            self.insert(number, Entry { hash, parent, linked: true });
            let Some(parent) = parent else { return };
            (above, hash) = (number, parent);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;

    use super::*;

    fn hash(byte: u8) -> BlockHash {
        BlockHash(B256::repeat_byte(byte))
    }

    fn link(number: u64, byte: u8, parent: u8) -> Link {
        Link { number: BlockNumber(number), hash: hash(byte), parent: hash(parent), timestamp: None }
    }

    /// Links the parent `9` of block 5, which `find` returns as the block with this number.
    fn link_down(index: &mut FinalIndex, number: u64) -> Consequences {
        let mut consequences = Consequences::default();
        let find = |asked| (asked == hash(9)).then(|| link(number, 9, 8));
        index.link_down(BlockNumber(5), hash(9), &find, &mut consequences);
        consequences
    }

    #[test]
    fn entry_stays_linked_only_with_its_own_hash() {
        let mut index = FinalIndex::default();
        index.insert(BlockNumber(5), Entry::linked(link(5, 1, 9)));
        index.insert(BlockNumber(5), Entry::unlinked(hash(1), None));
        assert!(index.entry(BlockNumber(5)).unwrap().linked);
        index.insert(BlockNumber(5), Entry::unlinked(hash(2), None));
        assert!(!index.entry(BlockNumber(5)).unwrap().linked);
    }

    /// A forged number must not replace the child, or a block above it.
    #[test]
    fn parent_that_is_not_lower_is_not_linked() {
        for number in [5, 6] {
            let mut index = FinalIndex::default();
            index.insert(BlockNumber(5), Entry::linked(link(5, 1, 9)));
            assert_eq!(link_down(&mut index, number), Consequences::default());
            assert_eq!((index.len(), index.get(BlockNumber(5))), (1, Some(hash(1))));
        }
    }

    #[test]
    fn path_replaces_unlinked_entries_only() {
        for linked in [false, true] {
            let mut index = FinalIndex::default();
            index.insert(BlockNumber(5), Entry::linked(link(5, 1, 9)));
            index.insert(BlockNumber(3), Entry { linked, ..Entry::linked(link(3, 7, 6)) });
            let consequences = link_down(&mut index, 2);
            let (entered, dropped) = (vec![(BlockNumber(2), hash(9))], vec![(BlockNumber(3), hash(7))]);
            let expected = if linked { Consequences::default() } else { Consequences { entered, dropped } };
            assert_eq!(consequences, expected);
            assert_eq!(index.get(BlockNumber(3)).is_some(), linked);
        }
    }
}
