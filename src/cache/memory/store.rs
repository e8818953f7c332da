//! The cache: content by block hash, and the locations of transactions.

use std::{any::Any, ptr, sync::Arc};

use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::{
    deflated::{Deflated, Whole},
    entity::{Entity, KINDS, Key, Value},
    location::{Location, LocationIndex},
    metrics::Metrics,
    windowed::Windowed,
};
use crate::{
    cache::config::Config,
    eth::{
        Block, BlockHash, BlockNumber, BlockWithHashes, Home, Part, Receipts, SingleReceipt,
        SingleTransaction, TxHash, TxPosition,
    },
    verify::{Content, Verified},
};

/// Content in memory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Cache {
    pub(super) store: Arc<Windowed>,
    locations: Arc<LocationIndex>,
    metrics: Metrics,
}

/// Removes from the index what an entity located that leaves the cache.
fn remove_locations(index: &LocationIndex, entity: &Entity) {
    for (transaction, position) in entity.locations() {
        index.remove(&transaction, &entity.home, position);
    }
}

// === impl Cache ===

impl Cache {
    /// An empty cache.
    pub fn new(config: &Config, metrics: Metrics) -> Self {
        let locations = Arc::new(LocationIndex::new());
        metrics.may_be(config.size.as_u64());
        let (located, counted) = (locations.clone(), metrics.clone());
        let removed = move |entity: &Entity, evicted| {
            counted.went(entity, evicted);
            if entity.is_long()
                && let Ok(runtime) = Handle::try_current()
            {
                let (located, entity) = (located.clone(), entity.clone());
                runtime.spawn_blocking(move || remove_locations(&located, &entity));
            } else {
                remove_locations(&located, entity);
            }
        };
        let store = Arc::new(Windowed::new(config.size.as_u64(), removed));
        Self { store, locations, metrics }
    }

    /// Sets the head of the chain, near which new content stays longer.
    pub fn set_head(&self, head: Option<BlockNumber>) {
        self.store.set_head(head);
    }

    /// Keeps a block, and returns it; what is proved does not yield to what is not.
    pub fn insert_block(&self, block: impl Into<Arc<Verified<Block>>>) -> Arc<Verified<Block>> {
        let block = block.into();
        if let Some(held) = self.peek_block(block.hash()).filter(|held| held.level() > block.level()) {
            return held;
        }
        self.insert(Content::Block(block.clone()));
        self.remove_other_count(block.hash(), block.len());
        if block.is_proved() {
            // A head that was stored with hashes only, and what came alone, is told by the block from here on.
            self.store.invalidate(&Key::BlockWithHashes(block.hash()));
            for index in (0..block.len() as u64).map(TxPosition) {
                self.store.invalidate(&Key::Transaction(block.hash(), index));
            }
            self.remove_singles_elsewhere(block.hash(), block.transaction_hashes());
        }
        block
    }

    /// Forgets receipts that came before their block, and are not as many as its transactions.
    fn remove_other_count(&self, block: BlockHash, transactions: usize) {
        if self.peek_receipts(block).is_some_and(|receipts| receipts.len() != transactions) {
            self.remove_unproved_receipts(block);
        }
    }

    /// Forgets what came alone of these transactions and names another block than the one that is proved to have them. Most
    /// often there is nothing.
    fn remove_singles_elsewhere(&self, block: BlockHash, transactions: impl Iterator<Item = TxHash>) {
        let locations = transactions.flat_map(|transaction| self.locations(transaction));
        for Location { home, index } in locations.filter(|location| location.home.block != block) {
            self.remove_single(home.block, index);
        }
    }

    /// Keeps a block with hashes of transactions, unless the whole block is there and proved.
    pub fn insert_block_with_hashes(&self, with_hashes: &Arc<Verified<BlockWithHashes>>) {
        if !self.peek_block(with_hashes.hash()).is_some_and(|block| block.is_proved()) {
            self.insert(Content::BlockWithHashes(with_hashes.clone()));
            self.remove_other_count(with_hashes.hash(), with_hashes.len());
        }
    }

    /// Keeps the receipts of a block, and returns them; what is proved does not yield to what is not.
    pub fn insert_receipts(&self, receipts: impl Into<Arc<Verified<Receipts>>>) -> Arc<Verified<Receipts>> {
        let receipts = receipts.into();
        let Some(block) = receipts.block() else { return receipts };
        if let Some(held) = self.peek_receipts(block).filter(|held| held.level() > receipts.level()) {
            return held;
        }
        self.insert(Content::Receipts(receipts.clone()));
        if receipts.is_proved() {
            for index in (0..receipts.len() as u64).map(TxPosition) {
                self.store.invalidate(&Key::Receipt(block, index));
            }
        }
        receipts
    }

    /// Keeps a transaction that came alone, if it is in a block.
    pub fn insert_transaction(&self, transaction: &Arc<Verified<SingleTransaction>>) {
        let Some(place) = transaction.place() else { return };
        let known = self.single_transaction(place.block, place.index);
        // The better answer stays.
        if !known.is_some_and(|known| known.is_asked_of_block() && !transaction.is_asked_of_block()) {
            self.insert(Content::Transaction(transaction.clone()));
        }
    }

    /// Keeps a receipt that came alone.
    pub fn insert_receipt(&self, receipt: &Arc<Verified<SingleReceipt>>) {
        self.insert(Content::Receipt(receipt.clone()));
    }

    /// Forgets the transaction and the receipt at this position of a block that came alone.
    pub fn remove_single(&self, block: BlockHash, index: TxPosition) {
        self.store.invalidate(&Key::Transaction(block, index));
        self.store.invalidate(&Key::Receipt(block, index));
    }

    /// The receipts of a block that came alone, for a check.
    pub fn single_receipts(&self, block: &Block) -> Vec<Arc<Verified<SingleReceipt>>> {
        let single = |index| self.store.peek(&Key::Receipt(block.hash(), index))?.into_receipt();
        (0..block.len() as u64).filter_map(|index| single(TxPosition(index))).collect()
    }

    /// Forgets the receipts of a block that came alone.
    pub fn remove_single_receipts(&self, block: &Block) {
        for index in (0..block.len() as u64).map(TxPosition) {
            self.store.invalidate(&Key::Receipt(block.hash(), index));
        }
    }

    /// Forgets the receipts of a block, unless they are proved.
    pub fn remove_unproved_receipts(&self, block: BlockHash) {
        if self.peek_receipts(block).is_some_and(|receipts| !receipts.is_proved()) {
            self.invalidate(Key::Receipts(block));
        }
    }

    /// Forgets what is known of a block, and of one position in it.
    pub fn remove(&self, block: BlockHash, index: Option<TxPosition>) {
        for key in [Key::Block(block), Key::BlockWithHashes(block), Key::Receipts(block)] {
            self.invalidate(key);
        }
        if let Some(index) = index {
            self.store.invalidate(&Key::Transaction(block, index));
            self.store.invalidate(&Key::Receipt(block, index));
        }
    }

    /// The block with this hash, for a client.
    pub fn block(&self, hash: BlockHash) -> Option<Arc<Verified<Block>>> {
        self.store.get(&Key::Block(hash))?.into_block()
    }

    /// The block with this hash, its transactions by hash, for a client.
    pub fn block_with_hashes(&self, hash: BlockHash) -> Option<Arc<Verified<BlockWithHashes>>> {
        self.store.get(&Key::BlockWithHashes(hash))?.into_block_with_hashes()
    }

    /// The receipts of the block with this hash, for a client.
    pub fn receipts(&self, hash: BlockHash) -> Option<Arc<Verified<Receipts>>> {
        self.store.get(&Key::Receipts(hash))?.into_receipts()
    }

    /// The block with this hash, for a check.
    pub fn peek_block(&self, hash: BlockHash) -> Option<Arc<Verified<Block>>> {
        self.store.peek(&Key::Block(hash))?.into_block()
    }

    /// The block with this hash, its transactions by hash, for a check.
    pub fn peek_block_with_hashes(&self, hash: BlockHash) -> Option<Arc<Verified<BlockWithHashes>>> {
        self.store.peek(&Key::BlockWithHashes(hash))?.into_block_with_hashes()
    }

    /// The receipts of the block with this hash, for a check.
    pub fn peek_receipts(&self, hash: BlockHash) -> Option<Arc<Verified<Receipts>>> {
        self.store.peek(&Key::Receipts(hash))?.into_receipts()
    }

    /// A transaction that came alone.
    pub fn single_transaction(
        &self,
        block: BlockHash,
        index: TxPosition,
    ) -> Option<Arc<Verified<SingleTransaction>>> {
        match self.store.get(&Key::Transaction(block, index))?.value {
            Value::Content(Content::Transaction(transaction)) => Some(transaction),
            _ => None,
        }
    }

    /// A receipt that came alone.
    pub fn single_receipt(
        &self,
        block: BlockHash,
        index: TxPosition,
    ) -> Option<Arc<Verified<SingleReceipt>>> {
        self.store.get(&Key::Receipt(block, index))?.into_receipt()
    }

    /// Returns whether a client finds this part of its block, or the whole that it is cut out of.
    pub fn serves(&self, content: &Content) -> bool {
        let has = |key: Key| self.store.get(&key).is_some();
        Key::of(content).is_some_and(|key| match key {
            Key::BlockWithHashes(block) => has(key) || has(Key::Block(block)),
            key => has(key),
        })
    }

    /// The deflated form of what is being served; never one that was made of anything else.
    pub fn deflated(&self, whole: &Whole) -> Option<Arc<Deflated>> {
        match self.store.get(&Key::Deflated(whole.home.block, whole.part))?.value {
            // What is kept may have been replaced since that form was made, or be replaced while it is made.
            Value::Deflated(deflated) if deflated.is_of(whole) => Some(deflated),
            _ => None,
        }
    }

    /// Keeps a deflated form for as long as its content is kept: not at all, if that has gone meanwhile.
    pub fn insert_deflated(&self, whole: &Whole, deflated: Deflated) {
        if !self.keeps(whole) || !deflated.is_of(whole) {
            return;
        }
        let key = Key::Deflated(whole.home.block, whole.part);
        self.insert_value(key, whole.home, Value::Deflated(Arc::new(deflated)));
    }

    /// Is this the very content that is kept?
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

    /// Forgets an entry, and the texts that were deflated from it.
    pub(super) fn invalidate(&self, key: Key) {
        self.store.invalidate(&key);
        self.remove_deflated(key);
    }

    fn remove_deflated(&self, key: Key) {
        let (block, parts): (_, &[Part]) = match key {
            Key::Block(block) => (block, &[Part::Block, Part::BlockWithHashes]),
            Key::BlockWithHashes(block) => (block, &[Part::BlockWithHashes]),
            Key::Receipts(block) => (block, &[Part::Receipts]),
            Key::Transaction(..) | Key::Receipt(..) | Key::Deflated(..) => return,
        };
        for part in parts {
            self.store.invalidate(&Key::Deflated(block, *part));
        }
    }

    /// Where a transaction may be. Hints: whoever uses one asks the content, and `chain`.
    pub fn locations(&self, transaction: TxHash) -> SmallVec<[Location; 2]> {
        self.locations.get(&transaction)
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.store.invalidate_all();
    }

    /// How many entries and bytes there are, by what has been counted so far.
    pub fn sizes(&self) -> (u64, u64) {
        (self.store.entry_count(), self.store.weighted_size())
    }

    /// How many bytes there may be.
    pub fn capacity(&self) -> u64 {
        self.store.capacity()
    }

    /// How many transactions are located, and in how many bytes.
    pub fn located(&self) -> (usize, usize) {
        (self.locations.len(), self.locations.allocated())
    }

    /// Returns the number of entries of the kind with this name; looks at all of them.
    pub fn count(&self, kind: &str) -> usize {
        self.store.iter().filter(|(_, entity)| KINDS[entity.kind()] == kind).count()
    }

    /// Lets evictions that are due happen now; otherwise they happen along with other work.
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
        // Before the entity: a location without content is only a hint that leads nowhere.
        for (transaction, index) in entity.locations() {
            self.locations.insert(&transaction, &entity.home, index);
        }
        self.metrics.came(&entity);
        self.store.insert(key, entity);
        // What was made of the content before is of no use any more.
        self.remove_deflated(key);
    }
}
