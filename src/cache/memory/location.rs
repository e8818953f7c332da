//! Compact index of transaction locations. Each location is a hint, which the content must confirm.

use std::{hash::BuildHasher, sync::Arc};

use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

use crate::eth::{Home, TxHash, TxPosition};

/// Number of shards. It is high enough that readers and writers of different transactions rarely contend.
const SHARDS: usize = 64;

/// Maximum number of entries per fingerprint. A transaction is in one block, or in a few after reorgs. Two
/// cache entries of a block contain it: the block and its receipts. A hostile block can list one transaction thousands of times. This limit keeps the time to insert and remove such a
/// block linear.
const MAX_PER_FINGERPRINT: usize = 16;

/// Maximum number of transactions that a runtime thread indexes at once, which takes a few hundred microseconds. A
/// mainnet block has several times fewer. A longer list, from a hostile upstream or a chain with huge blocks, would
/// delay other calls on the thread.
pub const INDEXED_INLINE: usize = 2_000;

/// Maximum number of bytes that the index takes per transaction: an entry of 24 bytes and a control byte, in a table
/// that has just doubled and is seven sixteenths full.
pub(super) const ENTRY_BYTES: usize = 58;

/// A block and position where a transaction may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The block.
    pub home: Home,
    /// The position in the block.
    pub index: TxPosition,
}

/// Index of transactions by fingerprint, which is a seeded hash of the transaction's hash. Because of the seed, an
/// upstream cannot choose transactions whose fingerprints collide.
///
/// Each cached content (a block, its receipts) has its own index entries. Its `Arc<Home>` distinguishes them from the
/// index entries of other contents of the same block. So insertions and evictions may come in any order. If
/// [`insert`](Self::insert) dropped a location at the limit, removing this location removes no other entry.
#[derive(Debug)]
pub(super) struct LocationIndex {
    hasher: DefaultHashBuilder,
    shards: Box<[RwLock<Shard>]>,
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashTable<Entry>,
    /// Number of distinct fingerprints among the entries.
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

    /// Adds the location of `transaction` in the content that owns `home`. Drops the location if the transaction
    /// already has [`MAX_PER_FINGERPRINT`] entries. This is harmless, since a location is only a hint.
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

    /// Removes the entry that [`insert`](Self::insert) added for the same `Arc`, if any.
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
        // Shrink the table; otherwise, a table that was once large would stay large.
        let entries = &mut shard.entries;
        if entries.capacity() > 64 && entries.len() * 4 < entries.capacity() {
            entries.shrink_to_fit(|entry| entry.fingerprint);
        }
    }

    /// Returns the distinct locations where `transaction` may be. The caller must check each location against the
    /// content there.
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

    /// Memory of all tables in bytes.
    pub(super) fn allocated(&self) -> usize {
        let allocated = |shard: &RwLock<Shard>| shard.read().entries.allocation_size();
        self.shards.iter().map(allocated).sum()
    }

    fn place(&self, transaction: &TxHash) -> (u64, &RwLock<Shard>) {
        let fingerprint = self.hasher.hash_one(transaction);
        // A table uses the lowest bits for buckets and the highest for tags, so the shard uses bits in between.
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
    /// Returns the entries with this fingerprint.
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
            // With less than a hundred blocks, the size of the tables depends mostly on rounding.
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
    fn removing_a_dropped_entry_keeps_an_equal_one() {
        let index = LocationIndex::new();
        let transaction = TxHash(hash(1));
        let fillers: Vec<_> = (0..MAX_PER_FINGERPRINT as u64).map(home).collect();
        fillers.iter().for_each(|home| index.insert(&transaction, home, TxPosition(0)));
        // At the limit, the index drops the location that the block adds. Later, it accepts the equal location that the
        // receipts add.
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
        fn location_lasts_until_its_last_content_leaves(
            steps in proptest::collection::vec((0u64..3, 0usize..40, any::<bool>()), 0..400)
        ) {
            let index = LocationIndex::new();
            // Four blocks have ten contents each. All 40 contents together exceed the limit per transaction, and some
            // have equal locations.
            let contents: Vec<_> = (0..40).map(|content| home(content % 4)).collect();
            // For each transaction, the contents that have an index entry. Contents beyond the limit have none.
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
                prop_assert_eq!(found.len(), got.len(), "duplicate location");
                let expected: HashSet<_> =
                    holders.iter().map(|content| (*content as u64 % 4, *content as u64 % 3)).collect();
                prop_assert_eq!(found, expected);
                prop_assert_eq!(entries(&index), model.iter().map(Vec::len).sum::<usize>());
                prop_assert_eq!(index.len(), model.iter().filter(|holders| !holders.is_empty()).count());
            }
        }
    }
}
