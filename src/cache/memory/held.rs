//! Descriptions of cached entries, for operators who look them up or purge them.

use super::entity::{Entity, KINDS, Key};
use crate::{
    eth::{Home, TxHash, TxPosition},
    verify::{Content, Level, Origin},
};

/// Description of a cached entry.
#[derive(Clone, Debug)]
pub struct Held {
    pub(super) key: Key,
    /// Index of the entry's kind in [`KINDS`].
    pub(super) kind: usize,
    /// The block that the entry belongs to.
    pub home: Home,
    /// The transaction of a single transaction or receipt, and its position in the block.
    pub transaction: Option<(TxHash, TxPosition)>,
    /// Memory in bytes, including index and overhead.
    pub bytes: u64,
    /// Verification level; `None` for an entry that Holdfast makes from verified content.
    pub level: Option<Level>,
    /// The source of the content, if known.
    pub origin: Option<Origin>,
}

// === impl Held ===

impl Held {
    /// Returns the name of the entry's kind.
    pub fn kind(&self) -> &'static str {
        KINDS[self.kind]
    }

    pub(super) fn new(key: Key, entity: &Entity) -> Self {
        let content = entity.content();
        let transaction = match key {
            Key::Transaction(hash) | Key::Receipt(hash) => {
                entity.position(hash, None).map(|index| (hash, index))
            }
            _ => None,
        };
        Self {
            key,
            kind: entity.kind(),
            home: *entity.home,
            transaction,
            bytes: entity.weight() as u64,
            level: content.map(Content::level),
            origin: content.and_then(Content::origin).cloned(),
        }
    }
}
