//! The cache: content by block hash, and the locations of transactions.

use std::{any::Any, ptr, sync::Arc};

use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::{
    deflated::{Deflated, Whole},
    entity::{Entity, KINDS, Key, Value},
    held::Held,
    indexed_logs::IndexedLogs,
    location::{Location, LocationIndex},
    metrics::Metrics,
    windowed::Windowed,
};
use crate::{
    blocking,
    cache::config::Config,
    eth::{Block, BlockHash, BlockNumber, BlockWithHashes, Home, Part, Receipts, TxHash, TxPosition},
    verify::{Content, Verified},
};

/// The cache in memory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Cache {
    store: Arc<Windowed>,
    locations: Arc<LocationIndex>,
    metrics: Metrics,
}

/// Removes from the index all locations of an entry that leaves the cache.
fn remove_locations(index: &LocationIndex, entity: &Entity) {
    for (transaction, position) in entity.locations() {
        index.remove(&transaction, &entity.home, position);
    }
}

// === impl Cache ===

impl Cache {
    /// Creates an empty cache.
    pub fn new(config: &Config, metrics: Metrics) -> Self {
        let locations = Arc::new(LocationIndex::new());
        metrics.may_be(config.size.as_u64());
        let (located, counted) = (locations.clone(), metrics.clone());
        let removed = move |entity: &Entity, evicted| {
            counted.went(entity, evicted);
            if entity.is_long() && Handle::try_current().is_ok() {
                let (located, entity) = (located.clone(), entity.clone());
                blocking::spawn(move || remove_locations(&located, &entity));
            } else {
                remove_locations(&located, entity);
            }
        };
        let store = Arc::new(Windowed::new(config.size.as_u64(), removed));
        Self { store, locations, metrics }
    }

    /// Sets the head of the chain. Content of blocks near the head stays longer.
    pub fn set_head(&self, head: Option<BlockNumber>) {
        self.store.set_head(head);
    }

    /// Stores a block and returns it. If the cached block has a higher verification level, keeps and returns the cached
    /// block instead.
    pub fn insert_block(&self, block: impl Into<Arc<Verified<Block>>>) -> Arc<Verified<Block>> {
        let block = block.into();
        if let Some(held) = self.peek_block(block.hash()).filter(|held| held.level() > block.level()) {
            return held;
        }
        self.insert(Content::Block(block.clone()));
        self.remove_other_count(block.hash(), block.len());
        if block.is_proved() {
            self.store.invalidate(&Key::BlockWithHashes(block.hash()));
        }
        // The block replaces the transactions and receipts that were fetched alone.
        block.transaction_hashes().for_each(|transaction| self.remove_single(transaction));
        block
    }

    /// Removes the unproved receipts of a block if their number is not `transactions`. They may have arrived before the
    /// block, when their number could not be checked.
    fn remove_other_count(&self, block: BlockHash, transactions: usize) {
        if self.peek_receipts(block).is_some_and(|receipts| receipts.len() != transactions) {
            self.remove_unproved_receipts(block);
        }
    }

    /// Stores a block with transaction hashes, unless the full block is cached and proved.
    pub fn insert_block_with_hashes(&self, with_hashes: &Arc<Verified<BlockWithHashes>>) {
        if !self.peek_block(with_hashes.hash()).is_some_and(|block| block.is_proved()) {
            self.insert(Content::BlockWithHashes(with_hashes.clone()));
            self.remove_other_count(with_hashes.hash(), with_hashes.len());
        }
    }

    /// Stores the receipts of a block and returns them. If the cached receipts have a higher verification level, keeps
    /// and returns the cached receipts instead.
    pub fn insert_receipts(&self, receipts: impl Into<Arc<Verified<Receipts>>>) -> Arc<Verified<Receipts>> {
        let receipts = receipts.into();
        let Some(block) = receipts.block() else { return receipts };
        if let Some(held) = self.peek_receipts(block).filter(|held| held.level() > receipts.level()) {
            return held;
        }
        self.insert(Content::Receipts(receipts.clone()));
        receipts.transaction_hashes().for_each(|hash| self.remove_if_there(Key::Receipt(hash)));
        receipts
    }

    /// Stores a transaction or a receipt that was fetched without its block. Ignores a pending transaction.
    pub fn insert_single(&self, single: &Content) {
        self.insert(single.clone());
    }

    /// Removes the single transaction and the single receipt with this transaction hash.
    pub fn remove_single(&self, transaction: TxHash) {
        self.remove_if_there(Key::Transaction(transaction));
        self.remove_if_there(Key::Receipt(transaction));
    }

    /// Removes a single entry. Mostly there is none, and a removal takes a lock.
    fn remove_if_there(&self, key: Key) {
        if self.store.peek(&key).is_some() {
            self.store.invalidate(&key);
        }
    }

    /// Removes the receipts of a block, unless they are proved.
    pub fn remove_unproved_receipts(&self, block: BlockHash) {
        if self.peek_receipts(block).is_some_and(|receipts| !receipts.is_proved()) {
            self.invalidate(Key::Receipts(block));
        }
    }

    /// Returns the block with this hash, for a client. The eviction policy takes the read into account.
    pub fn block(&self, hash: BlockHash) -> Option<Arc<Verified<Block>>> {
        self.store.get(&Key::Block(hash))?.into_block()
    }

    /// Returns the block with transaction hashes, for a client. The eviction policy takes the read into account.
    pub fn block_with_hashes(&self, hash: BlockHash) -> Option<Arc<Verified<BlockWithHashes>>> {
        self.store.get(&Key::BlockWithHashes(hash))?.into_block_with_hashes()
    }

    /// Returns the receipts of the block with this hash, for a client. The eviction policy takes the read into account.
    pub fn receipts(&self, hash: BlockHash) -> Option<Arc<Verified<Receipts>>> {
        self.store.get(&Key::Receipts(hash))?.into_receipts()
    }

    /// Returns the block with this hash, for an internal check.
    pub fn peek_block(&self, hash: BlockHash) -> Option<Arc<Verified<Block>>> {
        self.store.peek(&Key::Block(hash))?.into_block()
    }

    /// Returns the block with transaction hashes, for an internal check.
    pub fn peek_block_with_hashes(&self, hash: BlockHash) -> Option<Arc<Verified<BlockWithHashes>>> {
        self.store.peek(&Key::BlockWithHashes(hash))?.into_block_with_hashes()
    }

    /// Returns the receipts of the block with this hash, for an internal check.
    pub fn peek_receipts(&self, hash: BlockHash) -> Option<Arc<Verified<Receipts>>> {
        self.store.peek(&Key::Receipts(hash))?.into_receipts()
    }

    /// Returns the transaction with this hash, or its receipt, that was fetched without its block.
    pub fn single(&self, part: Part, transaction: TxHash) -> Option<Content> {
        let key =
            if part == Part::Receipt { Key::Receipt(transaction) } else { Key::Transaction(transaction) };
        self.store.get(&key)?.content().cloned()
    }

    /// Returns whether the cache can serve this content from its own entry. A block with transaction hashes can also be
    /// served from the full block.
    pub fn serves(&self, content: &Content) -> bool {
        let is_its = |entity: Entity| Some(*entity.home) == content.home();
        let has = |key: Key| self.store.get(&key).is_some_and(is_its);
        Key::of(content).is_some_and(|key| match key {
            Key::BlockWithHashes(block) => has(key) || has(Key::Block(block)),
            key => has(key),
        })
    }

    /// Returns the deflated text of `whole`. Never returns a text that was made of other content.
    pub fn deflated(&self, whole: &Whole) -> Option<Arc<Deflated>> {
        match self.store.get(&Key::Deflated(whole.home.block, whole.part))?.value {
            // The text may have been made of other content, because content can be replaced at any time.
            Value::Deflated(deflated) if deflated.is_of(whole) => Some(deflated),
            _ => None,
        }
    }

    /// Stores a deflated text, unless its content has left the cache meanwhile.
    pub fn insert_deflated(&self, whole: &Whole, deflated: Deflated) {
        if !self.keeps(whole) || !deflated.is_of(whole) {
            return;
        }
        let key = Key::Deflated(whole.home.block, whole.part);
        self.insert_value(key, whole.home, Value::Deflated(Arc::new(deflated)));
    }

    /// Returns whether the cache holds this exact content.
    fn keeps(&self, whole: &Whole) -> bool {
        let block = whole.home.block;
        let is = |content: &(dyn Any + Send + Sync)| ptr::addr_eq(content, Arc::as_ptr(&whole.content));
        let is_block = || self.peek_block(block).is_some_and(|block| is(&*block));
        match whole.part {
            Part::Block => is_block(),
            Part::BlockWithHashes => {
                is_block() || self.peek_block_with_hashes(block).is_some_and(|with_hashes| is(&*with_hashes))
            }
            Part::Receipts => self.peek_receipts(block).is_some_and(|receipts| is(&*receipts)),
            _ => false,
        }
    }

    /// Returns the index of the logs of the block with this hash. An index of unproved receipts is returned only while
    /// the cache has those receipts.
    pub fn log_index(&self, block: BlockHash) -> Option<Arc<IndexedLogs>> {
        let Value::LogIndex(index) = self.store.get(&Key::LogIndex(block))?.value else { return None };
        let is_valid = || self.peek_receipts(block).is_some_and(|receipts| index.is_of(&receipts));
        (index.is_proved() || is_valid()).then_some(index)
    }

    /// Stores an index, unless its receipts have left the cache meanwhile.
    pub fn insert_log_index(&self, receipts: &Arc<Verified<Receipts>>, index: &Arc<IndexedLogs>) {
        let Some(home) = receipts.home() else { return };
        let is_cached = |cached: &Arc<_>| Arc::ptr_eq(cached, receipts);
        if self.peek_receipts(home.block).as_ref().is_some_and(is_cached) {
            self.insert_value(Key::LogIndex(home.block), home, Value::LogIndex(index.clone()));
        }
    }

    /// Removes an entry and the entries made of it.
    pub(super) fn invalidate(&self, key: Key) {
        self.store.invalidate(&key);
        self.remove_made_of(key);
    }

    fn remove_made_of(&self, key: Key) {
        if let Key::Receipts(block) = key {
            self.store.invalidate(&Key::LogIndex(block));
        }
        let (block, parts): (_, &[Part]) = match key {
            Key::Block(block) => (block, &[Part::Block, Part::BlockWithHashes]),
            Key::BlockWithHashes(block) => (block, &[Part::BlockWithHashes]),
            Key::Receipts(block) => (block, &[Part::Receipts]),
            Key::Transaction(_) | Key::Receipt(_) | Key::Deflated(..) | Key::LogIndex(_) => return,
        };
        for part in parts {
            self.store.invalidate(&Key::Deflated(block, *part));
        }
    }

    /// Returns the locations where a transaction may be. These are hints: the caller must check the content, and ask
    /// the module `chain` whether the block is canonical.
    pub fn locations(&self, transaction: TxHash) -> SmallVec<[Location; 2]> {
        self.locations.get(&transaction)
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.store.invalidate_all();
    }

    /// Returns the number of entries and of bytes. The numbers may lag behind recent changes.
    pub fn sizes(&self) -> (u64, u64) {
        (self.store.entry_count(), self.store.weighted_size())
    }

    /// Returns the number of entries evicted to make room.
    pub fn evictions(&self) -> u64 {
        self.metrics.evictions()
    }

    /// Limit of the cache in bytes.
    pub fn capacity(&self) -> u64 {
        self.store.capacity()
    }

    /// Returns the number of transactions in the location index, and the size of this index in bytes.
    pub fn located(&self) -> (usize, usize) {
        (self.locations.len(), self.locations.allocated())
    }

    /// Returns the number of entries of a kind. Scans all entries.
    pub fn count(&self, kind: &str) -> usize {
        self.store.iter().filter(|(_, entity)| KINDS[entity.kind()] == kind).count()
    }

    /// Returns the entries of all blocks that `wanted` selects, sorted by block and kind. Scans all entries. The scan
    /// does not count as a read.
    pub fn held_in(&self, wanted: impl Fn(&Home) -> bool) -> Vec<Held> {
        let wanted = self.store.iter().filter(|(_, entity)| wanted(&entity.home));
        let mut held: Vec<_> = wanted.map(|(key, entity)| Held::new(key, &entity)).collect();
        held.sort_by_key(|held| (held.home.number, held.home.block, held.kind, held.transaction));
        held
    }

    /// Returns the entries that hold a transaction or its receipt, with the position of the transaction in the block.
    pub fn held_of(&self, transaction: TxHash) -> Vec<(TxPosition, Held)> {
        let locations = self.locations(transaction);
        let wholes = locations.iter().flat_map(|Location { home, index }| {
            [Key::Block(home.block), Key::Receipts(home.block)].map(|key| (key, Some(*index)))
        });
        let singles = [Key::Transaction(transaction), Key::Receipt(transaction)].map(|key| (key, None));
        let entities = wholes.chain(singles).filter_map(|(key, index)| {
            let entity = self.store.peek(&key)?;
            // A location is a hint: only the content shows whether the location is right.
            Some((entity.position(transaction, index)?, Held::new(key, &entity)))
        });
        entities.collect()
    }

    /// Removes these entries and the entries made of them.
    pub fn forget(&self, held: &[Held]) {
        for Held { key, .. } in held {
            self.invalidate(*key);
        }
    }

    /// Carries out pending evictions now. Without this call, later reads and writes carry them out.
    pub fn settle(&self) {
        self.store.run_pending_tasks();
    }

    fn insert(&self, content: Content) {
        if let (Some(key), Some(home)) = (Key::of(&content), content.home()) {
            self.insert_value(key, home, Value::Content(content));
        }
    }

    fn insert_value(&self, key: Key, home: Home, value: Value) {
        let entity = Entity { home: Arc::new(home), value };
        // Insert the locations before the entry. A location without content is harmless, since it is only a hint.
        for (transaction, index) in entity.locations() {
            self.locations.insert(&transaction, &entity.home, index);
        }
        self.metrics.came(&entity);
        self.store.insert(key, entity);
        // Remove the entries that were made of the previous content.
        self.remove_made_of(key);
    }
}
