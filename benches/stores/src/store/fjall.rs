//! fjall: an LSM tree; large values in files of their own.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};

use super::{Place, Result, Store};
use crate::data::{Block, Hash, Value};

const MIB: u64 = 1 << 20;

pub struct Fjall {
    db: Database,
    bodies: Keyspace,
    receipts: Keyspace,
    numbers: Keyspace,
    places: Keyspace,
    /// Sequence → hash, number, bytes; and the hashes of its transactions: what eviction must undo, oldest first.
    order: Keyspace,
    transactions: Keyspace,
    limit: u64,
    next: AtomicU64,
    oldest: AtomicU64,
    bytes: AtomicU64,
}

// === impl Fjall ===

impl Fjall {
    pub fn open(dir: &Path, limit: u64) -> Result<Self> {
        // The least it takes is 64 MiB of journal, beside the limit.
        let db = Database::builder(dir).cache_size(32 * MIB).max_journaling_size(64 * MIB).open()?;
        let large = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(16 * MIB)
                .with_kv_separation(Some(KvSeparationOptions::default().file_target_size(16 * MIB)))
        };
        let small = || KeyspaceCreateOptions::default().max_memtable_size(16 * MIB);
        let store = Self {
            bodies: db.keyspace("bodies", large)?,
            receipts: db.keyspace("receipts", large)?,
            numbers: db.keyspace("numbers", small)?,
            places: db.keyspace("places", small)?,
            order: db.keyspace("order", small)?,
            transactions: db.keyspace("transactions", large)?,
            db,
            limit,
            next: 0.into(),
            oldest: 0.into(),
            bytes: 0.into(),
        };
        let number = |key: &[u8]| u64::from_be_bytes(key.try_into().expect("keys of order are 8 bytes"));
        if let (Some(first), Some(last)) = (store.order.first_key_value(), store.order.last_key_value()) {
            store.oldest.store(number(&first.key()?), Relaxed);
            store.next.store(number(&last.key()?) + 1, Relaxed);
        }
        for row in store.order.iter() {
            store.bytes.fetch_add(weight(&row.value()?), Relaxed);
        }
        Ok(store)
    }

    fn evict(&self, batch: &mut fjall::OwnedWriteBatch) -> Result<()> {
        while self.bytes.load(Relaxed) > self.limit {
            let key = self.oldest.fetch_add(1, Relaxed).to_be_bytes();
            let Some(row) = self.order.get(key)? else { break };
            batch.remove(&self.bodies, &row[..32]);
            batch.remove(&self.receipts, &row[..32]);
            batch.remove(&self.numbers, &row[32..40]);
            for transaction in self.transactions.get(key)?.iter().flat_map(|hashes| hashes.chunks_exact(32)) {
                batch.remove(&self.places, transaction);
            }
            batch.remove(&self.order, key);
            batch.remove(&self.transactions, key);
            self.bytes.fetch_sub(weight(&row), Relaxed);
        }
        Ok(())
    }
}

impl Store for Fjall {
    fn put(&self, block: &Block) -> Result<()> {
        let mut batch = self.db.batch();
        batch.insert(&self.bodies, block.hash, block.body.as_slice());
        batch.insert(&self.receipts, block.hash, block.receipts.as_slice());
        batch.insert(&self.numbers, block.number.to_be_bytes(), block.hash);
        for (index, transaction) in (0u16..).zip(&block.transactions) {
            batch.insert(&self.places, *transaction, [&block.hash[..], &index.to_be_bytes()].concat());
        }
        let row = row(block);
        self.bytes.fetch_add(weight(&row), Relaxed);
        let key = self.next.fetch_add(1, Relaxed).to_be_bytes();
        batch.insert(&self.order, key, row);
        batch.insert(&self.transactions, key, block.transactions.concat());
        self.evict(&mut batch)?;
        Ok(batch.commit()?)
    }

    fn body(&self, hash: &Hash) -> Result<Option<Value>> {
        Ok(self.bodies.get(hash)?.map(|value| value.to_vec()))
    }

    fn receipts(&self, hash: &Hash) -> Result<Option<Value>> {
        Ok(self.receipts.get(hash)?.map(|value| value.to_vec()))
    }

    fn hash(&self, number: u64) -> Result<Option<Hash>> {
        Ok(self.numbers.get(number.to_be_bytes())?.and_then(|hash| hash[..].try_into().ok()))
    }

    fn place(&self, transaction: &Hash) -> Result<Option<Place>> {
        Ok(self.places.get(transaction)?.map(|place| super::redb::place(&place)))
    }

    fn flush(&self) -> Result<()> {
        Ok(self.db.persist(PersistMode::Buffer)?)
    }
}

/// What eviction needs of a block: hash, number, bytes.
pub fn row(block: &Block) -> Vec<u8> {
    let bytes = (block.body.len() + block.receipts.len() + block.transactions.len() * 98 + 128) as u64;
    [&block.hash[..], &block.number.to_be_bytes(), &bytes.to_be_bytes()].concat()
}

/// The bytes of a row's block.
pub fn weight(row: &[u8]) -> u64 {
    u64::from_be_bytes(row[40..48].try_into().expect("a row has its weight"))
}
