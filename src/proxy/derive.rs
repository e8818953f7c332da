//! What is cut out of larger content, where nothing proves that the cut is what a node would say.
//!
//! On Ethereum a transaction asked for alone is the one that stands in its block. On a chain with rules
//! of its own it may carry more members, or other ones. So where only structure is checked, whatever is held
//! both ways is compared, and one difference is enough: that way of answering is given up.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use serde_json::Value;
use tracing::warn;

use super::look::hashes_only;
use crate::{
    cache::Cache,
    eth::{Block, Receipts, TxPosition},
    verify::Checked,
};

/// Something that is cut out of something larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Derivation {
    /// A block with hashes of transactions, out of the whole block.
    Hashes,
    /// A transaction, out of its block.
    Transaction,
    /// A receipt, out of those of its block.
    Receipt,
}

/// Which derivations have been given up.
#[derive(Debug, Default)]
pub(super) struct Derivations([AtomicBool; Derivation::ALL.len()]);

// === impl Derivation ===

impl Derivation {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Hashes, Self::Transaction, Self::Receipt];

    /// Its name in logs and the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hashes => "hashes",
            Self::Transaction => "transaction",
            Self::Receipt => "receipt",
        }
    }
}

// === impl Derivations ===

impl Derivations {
    /// May this be cut out of something larger?
    pub(super) fn allow(&self, derivation: Derivation) -> bool {
        !self.0[derivation as usize].load(Relaxed)
    }

    /// Compares what has come with what is held of it already, whole or alone.
    pub(super) fn compare(&self, cache: &Cache, checked: &Checked) {
        match checked {
            Checked::Block(block) => {
                if let Some(thin) = cache.thin(block.hash()) {
                    self.settle(Derivation::Hashes, &hashes_only(block), &thin.bytes());
                }
                for index in (0..block.len() as u64).map(TxPosition) {
                    if let Some(lone) = cache.lone_transaction(block.hash(), index) {
                        self.compare_transaction(block, index, &lone.bytes());
                    }
                }
            }
            Checked::Thin(thin) => {
                if let Some(block) = cache.block(thin.hash()) {
                    self.settle(Derivation::Hashes, &hashes_only(&block), &thin.bytes());
                }
            }
            Checked::Receipts { block, receipts, .. } => {
                for index in (0..receipts.len() as u64).map(TxPosition) {
                    if let Some(lone) = cache.lone_receipt(*block, index) {
                        self.compare_receipt(receipts, index, &lone.bytes());
                    }
                }
            }
            Checked::Transaction(lone) => {
                if let Some(place) = lone.place()
                    && let Some(block) = cache.block(place.block)
                {
                    self.compare_transaction(&block, place.index, &lone.bytes());
                }
            }
            Checked::Receipt(lone) => {
                let place = lone.place();
                if let Some(receipts) = cache.receipts(place.block) {
                    self.compare_receipt(&receipts, place.index, &lone.bytes());
                }
            }
        }
    }

    fn compare_transaction(&self, block: &Block, index: TxPosition, lone: &Bytes) {
        if let Some(slice) = block.transaction(index) {
            self.settle(Derivation::Transaction, &slice, lone);
        }
    }

    fn compare_receipt(&self, receipts: &Receipts, index: TxPosition, lone: &Bytes) {
        if let Some(slice) = receipts.receipt(index) {
            self.settle(Derivation::Receipt, &slice, lone);
        }
    }

    fn settle(&self, derivation: Derivation, slice: &Bytes, lone: &Bytes) {
        if !is_same(slice, lone) && !self.0[derivation as usize].swap(true, Relaxed) {
            warn!(
                derivation = derivation.as_str(),
                "on this chain a {} asked for alone is not what is found in its block: \
                 from here on it is always asked for alone",
                derivation.as_str()
            );
        }
    }
}

/// Do two texts say the same, in whatever order and spacing?
pub(super) fn is_same(one: &[u8], other: &[u8]) -> bool {
    let read = serde_json::from_slice::<Value>;
    one == other || matches!((read(one), read(other)), (Ok(one), Ok(other)) if one == other)
}
