//! Descriptions of cached entries, for operators who look them up or purge them.

use super::{
    entity::{Entity, KINDS, Key},
    store::Cache,
};
use crate::{
    eth::{BlockHash, Home, TxHash, TxPosition},
    verify::{Content, Level, Origin},
};

/// Description of a cached entry.
#[derive(Clone, Debug)]
pub struct Held {
    key: Key,
    /// Index of the entry's kind in [`KINDS`].
    kind: usize,
    /// The block that the entry belongs to.
    pub home: Home,
    /// The transaction of a single transaction or receipt, and its position in the block.
    pub transaction: Option<(TxHash, TxPosition)>,
    /// Memory in bytes, including index and overhead.
    pub bytes: u64,
    /// Verification level; `None` for a deflated text, which Holdfast makes from verified content.
    pub level: Option<Level>,
    /// The source of the content, if known.
    pub origin: Option<Origin>,
}

// === impl Cache ===

impl Cache {
    /// Returns the entries of all blocks that `wanted` selects, sorted by block and kind. Scans all entries. The scan
    /// does not count as a read.
    pub fn held_in(&self, wanted: impl Fn(&Home) -> bool) -> Vec<Held> {
        let wanted = self.store.iter().filter(|(_, entity)| wanted(&entity.home));
        let mut held: Vec<_> = wanted.map(|(key, entity)| Held::new(key, &entity)).collect();
        held.sort_by_key(|held| (held.home.number, held.home.block, held.kind, held.transaction));
        held
    }

    /// Returns the entry of the block `hash` with full transactions.
    pub fn held_block(&self, hash: BlockHash) -> Option<Held> {
        self.held(Key::Block(hash))
    }

    /// Returns the entry of all receipts of the block `hash`.
    pub fn held_receipts(&self, hash: BlockHash) -> Option<Held> {
        self.held(Key::Receipts(hash))
    }

    /// Returns the entries that hold a transaction or its receipt, with the position of the transaction in the block.
    pub fn held_of(&self, transaction: TxHash) -> Vec<(TxPosition, Held)> {
        let mut held = Vec::new();
        for place in self.locations(transaction) {
            let (block, index) = (place.home.block, place.index);
            let keys = [
                Key::Block(block),
                Key::Receipts(block),
                Key::Transaction(block, index),
                Key::Receipt(block, index),
            ];
            let entities = keys.into_iter().filter_map(|key| Some((key, self.store.peek(&key)?)));
            // A location is a hint: only the content shows whether the location is right.
            let own = entities.filter(|(_, entity)| entity.holds(transaction, index));
            held.extend(own.map(|(key, entity)| (index, Held::new(key, &entity))));
        }
        held
    }

    /// Removes these entries and the texts deflated from them.
    pub fn forget(&self, held: &[Held]) {
        for Held { key, .. } in held {
            self.invalidate(*key);
        }
    }

    fn held(&self, key: Key) -> Option<Held> {
        self.store.peek(&key).map(|entity| Held::new(key, &entity))
    }
}

// === impl Held ===

impl Held {
    /// Returns the name of the entry's kind.
    pub fn kind(&self) -> &'static str {
        KINDS[self.kind]
    }

    fn new(key: Key, entity: &Entity) -> Self {
        let content = entity.content();
        let single = content.filter(|content| content.is_single());
        Self {
            key,
            kind: entity.kind(),
            home: *entity.home,
            transaction: single.and_then(|_| entity.locations().first().copied()),
            bytes: entity.weight() as u64,
            level: content.map(Content::level),
            origin: content.and_then(Content::origin).cloned(),
        }
    }
}
