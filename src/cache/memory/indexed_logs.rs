//! Indexes of logs. Holdfast builds the index of a block at the first search for its logs.
//!
//! An index is an entry like any other, with its own weight and the same eviction rules. It outlives its receipts, and
//! then still tells that a filter matches none of their logs.

use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::{
    eth::{BlockNumber, Disputed, IndexedFilter, LogIndex, Receipts, ShapeError},
    verify::{Level, Verified},
};

/// Index of the logs of a block's receipts.
#[derive(Debug)]
pub struct IndexedLogs {
    index: LogIndex,
    number: BlockNumber,
    level: Level,
    lasts: bool,
    /// The receipts that the index was made of. A weak reference keeps the allocation, so that no other receipts get
    /// the same address.
    of: Weak<Verified<Receipts>>,
}

/// Reason why an index does not tell which logs match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsearchable {
    /// A log may match, and its receipts have left the cache.
    Evicted,
    /// Nodes differ in whether a log matches.
    Disputed,
}

// === impl IndexedLogs ===

impl IndexedLogs {
    /// Indexes the logs of these receipts. Takes about a millisecond per megabyte.
    ///
    /// # Errors
    /// If a receipt or a log has not the expected shape.
    pub fn new(receipts: &Arc<Verified<Receipts>>) -> Result<Self, ShapeError> {
        let index = LogIndex::new(receipts)?;
        let number = receipts.home().ok_or(ShapeError::Member("blockNumber"))?.number;
        let (level, lasts, of) = (receipts.level(), receipts.lasts(), Arc::downgrade(receipts));
        Ok(Self { index, number, level, lasts, of })
    }

    /// Adds the logs that match to `found`, in order.
    ///
    /// # Errors
    /// If the index does not tell which logs match.
    pub fn find(&self, filter: &IndexedFilter, found: &mut Vec<Bytes>) -> Result<(), Unsearchable> {
        if !self.index.may_match(filter) {
            return Ok(());
        }
        let receipts = self.of.upgrade().ok_or(Unsearchable::Evicted)?;
        self.index.find(&receipts, filter, found).map_err(|Disputed| Unsearchable::Disputed)
    }

    /// Returns the level of verification of the receipts.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Returns whether fetching the receipts again cannot improve them.
    pub fn lasts(&self) -> bool {
        self.lasts
    }

    /// Returns the number of the block.
    pub fn number(&self) -> BlockNumber {
        self.number
    }

    /// Returns whether the receipts are proved.
    pub(super) fn is_proved(&self) -> bool {
        self.level == Level::Proved
    }

    /// Returns whether the index was made of these receipts.
    pub(super) fn is_of(&self, receipts: &Arc<Verified<Receipts>>) -> bool {
        std::ptr::eq(self.of.as_ptr(), Arc::as_ptr(receipts))
    }

    /// Memory in bytes, including the allocation of the receipts, which the weak reference retains.
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>() + self.index.weight() + size_of::<Verified<Receipts>>()
    }
}
