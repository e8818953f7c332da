//! Where transactions are: a hint for each, as small as it gets.

use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hashbrown::HashTable;
use smallvec::SmallVec;

use crate::eth::{BlockHash, BlockNumber, TxHash, TxPosition};

/// Readers and writers of different transactions seldom meet.
const SHARDS: usize = 64;

/// What a transaction costs here at worst: an entry of 24 bytes and a control byte, in a table that
/// has just doubled and is seven sixteenths full.
pub(super) const ENTRY_BYTES: usize = 58;

/// A block that holds transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Home {
    /// Its hash.
    pub block: BlockHash,
    /// Its height.
    pub number: BlockNumber,
}

/// Where a transaction may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The block.
    pub home: Home,
    /// The position in it.
    pub index: TxPosition,
}

/// Transactions by a part of their hash.
///
/// An entry counts how many contents vouch for it and goes with the last of them, so insertions
/// and evictions may come in any order.
#[derive(Debug)]
pub(super) struct LocationIndex {
    shards: Box<[RwLock<HashTable<Entry>>]>,
}

#[derive(Debug)]
struct Entry {
    fingerprint: u64,
    home: Arc<Home>,
    index: u32,
    holders: u32,
}

// === impl LocationIndex ===

impl LocationIndex {
    pub(super) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| RwLock::default()).collect() }
    }

    /// Notes that a content locates `transaction`.
    pub(super) fn insert(&self, transaction: &TxHash, home: &Arc<Home>, index: TxPosition) {
        let (fingerprint, mut shard) = self.write(transaction);
        let index = index.0 as u32;
        match shard.find_mut(fingerprint, |entry| entry.is(fingerprint, home, index)) {
            Some(entry) => entry.holders += 1,
            None => {
                let entry = Entry { fingerprint, home: home.clone(), index, holders: 1 };
                shard.insert_unique(fingerprint, entry, |entry| entry.fingerprint);
            }
        }
    }

    /// Takes back what [`insert`](Self::insert) noted.
    pub(super) fn remove(&self, transaction: &TxHash, home: &Home, index: TxPosition) {
        let (fingerprint, mut shard) = self.write(transaction);
        let index = index.0 as u32;
        let Ok(mut entry) = shard.find_entry(fingerprint, |entry| entry.is(fingerprint, home, index)) else {
            return;
        };
        entry.get_mut().holders -= 1;
        if entry.get().holders == 0 {
            entry.remove();
        }
        // A table that was large once would stay so for ever.
        if shard.capacity() > 64 && shard.len() * 4 < shard.capacity() {
            shard.shrink_to_fit(|entry| entry.fingerprint);
        }
    }

    /// Where `transaction` may be: to be checked against the content found there.
    pub(super) fn get(&self, transaction: &TxHash) -> SmallVec<[Location; 2]> {
        let (fingerprint, shard) = self.read(transaction);
        shard
            .iter_hash(fingerprint)
            .filter(|entry| entry.fingerprint == fingerprint)
            .map(|entry| Location { home: *entry.home, index: TxPosition(u64::from(entry.index)) })
            .collect()
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().map_or(0, |shard| shard.len())).sum()
    }

    /// The memory that all tables take.
    pub(super) fn allocated(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().map_or(0, |shard| shard.allocation_size())).sum()
    }

    fn place(&self, transaction: &TxHash) -> (u64, &RwLock<HashTable<Entry>>) {
        // A transaction's hash is as good as random: any eight bytes of it will do, and the shard
        // is chosen by others, so that a shard's fingerprints still differ in every bit.
        let bytes = transaction.0.as_slice();
        let fingerprint = u64::from_le_bytes([
            bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
        ]);
        (fingerprint, &self.shards[usize::from(bytes[8]) % SHARDS])
    }

    fn read(&self, transaction: &TxHash) -> (u64, RwLockReadGuard<'_, HashTable<Entry>>) {
        let (fingerprint, shard) = self.place(transaction);
        (fingerprint, shard.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn write(&self, transaction: &TxHash) -> (u64, RwLockWriteGuard<'_, HashTable<Entry>>) {
        let (fingerprint, shard) = self.place(transaction);
        (fingerprint, shard.write().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

// === impl Entry ===

impl Entry {
    fn is(&self, fingerprint: u64, home: &Home, index: u32) -> bool {
        self.fingerprint == fingerprint && self.index == index && *self.home == *home
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{B256, keccak256};
    use proptest::prelude::*;

    use super::*;

    fn hash(seed: u64) -> B256 {
        keccak256(seed.to_be_bytes())
    }

    fn home(seed: u64) -> Arc<Home> {
        Arc::new(Home { block: BlockHash(hash(seed)), number: BlockNumber(seed) })
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

    proptest! {
        #[test]
        fn an_entry_lasts_as_long_as_its_last_holder(
            steps in proptest::collection::vec((0u64..6, 0u64..4, 0u64..3, any::<bool>()), 0..200)
        ) {
            let index = LocationIndex::new();
            let mut model = std::collections::HashMap::<(u64, u64, u64), u32>::new();
            for (transaction, block, position, insert) in steps {
                let (tx, home) = (TxHash(hash(transaction)), home(100 + block));
                let held = model.entry((transaction, block, position)).or_default();
                if insert {
                    *held += 1;
                    index.insert(&tx, &home, TxPosition(position));
                } else if *held > 0 {
                    *held -= 1;
                    index.remove(&tx, &home, TxPosition(position));
                }
                for transaction in 0..6 {
                    let mut got: Vec<_> = index.get(&TxHash(hash(transaction)))
                        .into_iter().map(|found| (found.home.number.0 - 100, found.index.0)).collect();
                    got.sort_unstable();
                    let mut expected: Vec<_> = model.iter()
                        .filter(|((of, _, _), held)| *of == transaction && **held > 0)
                        .map(|((_, block, position), _)| (*block, *position)).collect();
                    expected.sort_unstable();
                    prop_assert_eq!(got, expected);
                }
            }
        }
    }
}
