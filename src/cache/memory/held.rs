//! What is kept of something, for people who look and for those who have it forgotten.

use super::{
    entity::{Entity, KINDS, Key},
    store::Cache,
};
use crate::{
    eth::{BlockHash, Home, TxHash, TxPosition},
    verify::{Content, Level, Origin},
};

/// An entry, described.
#[derive(Clone, Debug)]
pub struct Held {
    key: Key,
    /// Its place among [`KINDS`].
    kind: usize,
    /// The block that it is of.
    pub home: Home,
    /// The transaction that it is of, if it came alone, and its position.
    pub transaction: Option<(TxHash, TxPosition)>,
    /// The memory that it takes, index and overhead included.
    pub bytes: u64,
    /// How far it was checked; what was made here needs no check.
    pub level: Option<Level>,
    /// Who said it.
    pub origin: Option<Origin>,
}

// === impl Cache ===

impl Cache {
    /// Whatever is of a home of which `wanted` holds. Looks at all entries, and counts as a read of none.
    pub fn held_in(&self, wanted: impl Fn(&Home) -> bool) -> Vec<Held> {
        let wanted = self.store.iter().filter(|(_, entity)| wanted(&entity.home));
        let mut held: Vec<_> = wanted.map(|(key, entity)| Held::new(key, &entity)).collect();
        held.sort_by_key(|held| (held.home.number, held.home.block, held.kind, held.transaction));
        held
    }

    /// The whole block with this hash.
    pub fn held_block(&self, hash: BlockHash) -> Option<Held> {
        self.held(Key::Block(hash))
    }

    /// All receipts of the block with this hash.
    pub fn held_receipts(&self, hash: BlockHash) -> Option<Held> {
        self.held(Key::Receipts(hash))
    }

    /// Whatever a transaction, or its receipt, can be cut out of, with its position there.
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
            // A location is a hint: what is there says whether it is true.
            let own = entities.filter(|(_, entity)| entity.holds(transaction, index));
            held.extend(own.map(|(key, entity)| (index, Held::new(key, &entity))));
        }
        held
    }

    /// Forgets these, and what was made of them.
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
    /// Returns the name of its kind.
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
