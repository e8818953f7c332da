//! Where transactions are: a hint for each, as small as it gets.

use std::{hash::BuildHasher, sync::Arc};

use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

use crate::eth::{Home, TxHash, TxPosition};

/// Readers and writers of different transactions seldom meet.
const SHARDS: usize = 64;

/// Entries per fingerprint. A transaction is in one block, after reorgs in a few, and a block locates it in at most four
/// entries of the cache: the block, its receipts, the single transaction and the single receipt. A hostile block can list
/// one transaction thousands of times; this keeps its insertion and removal linear.
const MAX_PER_FINGERPRINT: usize = 16;

/// Transactions that are indexed on a runtime thread, in a few hundred microseconds: several times those of mainnet's
/// blocks. A longer list, which is a hostile upstream's or that of a chain with huge blocks, would stop the calls that this
/// thread serves.
pub const INDEXED_INLINE: usize = 2_000;

/// What a transaction costs here at worst: an entry of 24 bytes and a control byte, in a table that
/// has just doubled and is seven sixteenths full.
pub(super) const ENTRY_BYTES: usize = 58;

/// Where a transaction may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The block.
    pub home: Home,
    /// The position in it.
    pub index: TxPosition,
}

/// Transactions by a seeded hash of their hash, so that no upstream can choose which of them collide.
///
/// Each cached content has entries of its own, which its `Arc<Home>` tells apart from those of other contents of the same
/// block. So insertions and evictions may come in any order, and to remove an entry that was dropped at the cap removes
/// no other.
#[derive(Debug)]
pub(super) struct LocationIndex {
    hasher: DefaultHashBuilder,
    shards: Box<[RwLock<Shard>]>,
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashTable<Entry>,
    /// Number of fingerprints among the entries.
    transactions: usize,
}

#[derive(Debug)]
struct Entry {
    fingerprint: u64,
    home: Arc<Home>,
    index: u32,
}

// === impl LocationIndex ===

impl LocationIndex {
    pub(super) fn new() -> Self {
        Self {
            hasher: DefaultHashBuilder::default(),
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
        }
    }

    /// Notes that the content with this `home` locates `transaction`. Dropped beyond [`MAX_PER_FINGERPRINT`]: a location is
    /// only a hint.
    pub(super) fn insert(&self, transaction: &TxHash, home: &Arc<Home>, index: TxPosition) {
        let (fingerprint, mut shard) = self.write(transaction);
        let count = shard.equal(fingerprint).take(MAX_PER_FINGERPRINT).count();
        if count == MAX_PER_FINGERPRINT {
            return;
        }
        let entry = Entry { fingerprint, home: home.clone(), index: index.0 as u32 };
        shard.entries.insert_unique(fingerprint, entry, |entry| entry.fingerprint);
        shard.transactions += usize::from(count == 0);
    }

    /// Removes the entry that [`insert`](Self::insert) made for the same `Arc`, if it made one.
    pub(super) fn remove(&self, transaction: &TxHash, home: &Arc<Home>, index: TxPosition) {
        let (fingerprint, mut shard) = self.write(transaction);
        let index = index.0 as u32;
        let is_own = |entry: &Entry| {
            entry.fingerprint == fingerprint && entry.index == index && Arc::ptr_eq(&entry.home, home)
        };
        let Ok(entry) = shard.entries.find_entry(fingerprint, is_own) else { return };
        entry.remove();
        if shard.equal(fingerprint).next().is_none() {
            shard.transactions -= 1;
        }
        // A table that was large once would stay so for ever.
        let entries = &mut shard.entries;
        if entries.capacity() > 64 && entries.len() * 4 < entries.capacity() {
            entries.shrink_to_fit(|entry| entry.fingerprint);
        }
    }

    /// Where `transaction` may be, each place once: to be checked against the content found there.
    pub(super) fn get(&self, transaction: &TxHash) -> SmallVec<[Location; 2]> {
        let (fingerprint, shard) = self.read(transaction);
        let mut locations = SmallVec::new();
        for entry in shard.equal(fingerprint) {
            let location = Location { home: *entry.home, index: TxPosition(u64::from(entry.index)) };
            if !locations.contains(&location) {
                locations.push(location);
            }
        }
        locations
    }

    /// Number of transactions that have a location.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().transactions).sum()
    }

    /// The memory that all tables take.
    pub(super) fn allocated(&self) -> usize {
        let allocated = |shard: &RwLock<Shard>| shard.read().entries.allocation_size();
        self.shards.iter().map(allocated).sum()
    }

    fn place(&self, transaction: &TxHash) -> (u64, &RwLock<Shard>) {
        let fingerprint = self.hasher.hash_one(transaction);
        // A table takes its buckets from the low bits and its tags from the highest: the shard is chosen by others.
        (fingerprint, &self.shards[(fingerprint >> 40) as usize % SHARDS])
    }

    fn read(&self, transaction: &TxHash) -> (u64, RwLockReadGuard<'_, Shard>) {
        let (fingerprint, shard) = self.place(transaction);
        (fingerprint, shard.read())
    }

    fn write(&self, transaction: &TxHash) -> (u64, RwLockWriteGuard<'_, Shard>) {
        let (fingerprint, shard) = self.place(transaction);
        (fingerprint, shard.write())
    }
}

// === impl Shard ===

impl Shard {
    /// The entries with this fingerprint.
    fn equal(&self, fingerprint: u64) -> impl Iterator<Item = &Entry> {
        self.entries.iter_hash(fingerprint).filter(move |entry| entry.fingerprint == fingerprint)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use alloy_primitives::{B256, keccak256};
    use proptest::prelude::*;

    use super::*;
    use crate::eth::{BlockHash, BlockNumber};

    fn hash(seed: u64) -> B256 {
        keccak256(seed.to_be_bytes())
    }

    fn home(seed: u64) -> Arc<Home> {
        Arc::new(Home { block: BlockHash(hash(seed)), number: BlockNumber(seed) })
    }

    fn entries(index: &LocationIndex) -> usize {
        index.shards.iter().map(|shard| shard.read().entries.len()).sum()
    }

    #[test]
    fn a_transaction_costs_at_most_64_bytes() {
        let index = LocationIndex::new();
        let mut worst: f64 = 0.0;
        let mut count = 0;
        for block in 0..3000 {
            let home = home(block);
            for position in 0..200 {
                index.insert(&TxHash(hash(1_000_000 + block * 200 + position)), &home, TxPosition(position));
                count += 1;
            }
            // Small tables are all rounding; a cache of a hundred blocks is small.
            if block >= 100 {
                let homes = (block + 1) * size_of::<Home>() as u64;
                worst = worst.max((index.allocated() as f64 + homes as f64) / f64::from(count));
            }
        }
        println!("location index: at most {worst:.1} bytes a transaction");
        assert!(worst <= 64.0, "{worst}");
    }

    #[test]
    fn hashes_that_share_all_but_two_bytes_do_not_collide() {
        let index = LocationIndex::new();
        let colliding = (0..10_000u16).map(|number| {
            let mut bytes = [0x5a; 32];
            bytes[30..].copy_from_slice(&number.to_be_bytes());
            TxHash(bytes.into())
        });
        let places: Vec<_> = colliding.map(|transaction| index.place(&transaction)).collect();
        let fingerprints: HashSet<_> = places.iter().map(|(fingerprint, _)| fingerprint).collect();
        assert!(fingerprints.len() >= 9_999, "{}", fingerprints.len());
        for shard in &index.shards {
            let count = places.iter().filter(|(_, of)| std::ptr::eq(*of, shard)).count();
            assert!(count < 10_000 / SHARDS * 2, "{count} in one shard");
        }
    }

    #[test]
    fn fingerprints_differ_between_processes() {
        let [one, other] = [LocationIndex::new(), LocationIndex::new()];
        let transaction = TxHash(hash(1));
        assert_ne!(one.place(&transaction).0, other.place(&transaction).0);
    }

    #[test]
    fn a_transaction_listed_ten_thousand_times_takes_a_few_entries() {
        let (index, home) = (LocationIndex::new(), home(7));
        let transaction = TxHash(hash(1));
        let positions = || (0..10_000).map(TxPosition);
        positions().for_each(|position| index.insert(&transaction, &home, position));
        assert_eq!((index.len(), entries(&index)), (1, MAX_PER_FINGERPRINT));
        positions().rev().for_each(|position| index.remove(&transaction, &home, position));
        assert_eq!((index.len(), entries(&index)), (0, 0));
    }

    #[test]
    fn removing_a_dropped_entry_leaves_its_equal_alone() {
        let index = LocationIndex::new();
        let transaction = TxHash(hash(1));
        let fillers: Vec<_> = (0..MAX_PER_FINGERPRINT as u64).map(home).collect();
        fillers.iter().for_each(|home| index.insert(&transaction, home, TxPosition(0)));
        // A block, which is dropped, and then its receipts.
        let (block, receipts) = (home(100), home(100));
        index.insert(&transaction, &block, TxPosition(3));
        index.remove(&transaction, &fillers[0], TxPosition(0));
        index.insert(&transaction, &receipts, TxPosition(3));
        index.remove(&transaction, &block, TxPosition(3));
        let place = Location { home: *receipts, index: TxPosition(3) };
        assert!(index.get(&transaction).contains(&place));
    }

    proptest! {
        #[test]
        fn a_location_lasts_as_long_as_the_last_content_that_has_it(
            steps in proptest::collection::vec((0u64..3, 0usize..40, any::<bool>()), 0..400)
        ) {
            let index = LocationIndex::new();
            // Ten contents of each of four blocks: more than the cap, and equal locations among them.
            let contents: Vec<_> = (0..40).map(|content| home(content % 4)).collect();
            // The contents that hold an entry for each transaction: those beyond the cap do not.
            let mut model = [const { Vec::new() }; 3];
            for (transaction, content, insert) in steps {
                let (tx, home) = (TxHash(hash(1000 + transaction)), &contents[content]);
                let holders = &mut model[transaction as usize];
                let position = TxPosition(content as u64 % 3);
                if insert {
                    index.insert(&tx, home, position);
                    if holders.len() < MAX_PER_FINGERPRINT {
                        holders.push(content);
                    }
                } else {
                    index.remove(&tx, home, position);
                    if let Some(at) = holders.iter().position(|holder| *holder == content) {
                        holders.swap_remove(at);
                    }
                }
                let got = index.get(&tx);
                let found: HashSet<_> =
                    got.iter().map(|found| (found.home.number.0, found.index.0)).collect();
                prop_assert_eq!(found.len(), got.len(), "a location twice");
                let expected: HashSet<_> =
                    holders.iter().map(|content| (*content as u64 % 4, *content as u64 % 3)).collect();
                prop_assert_eq!(found, expected);
                prop_assert_eq!(entries(&index), model.iter().map(Vec::len).sum::<usize>());
                prop_assert_eq!(index.len(), model.iter().filter(|holders| !holders.is_empty()).count());
            }
        }
    }
}
