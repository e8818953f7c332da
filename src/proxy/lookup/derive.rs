//! Answers sliced out of larger entries, on chains where nothing proves that a node would answer the same.
//!
//! On Ethereum, a single transaction equals the transaction in its block. On a chain with other rules it may have more
//! or different members. So where verification checks only the structure, this module compares the two if both are
//! cached. After the first difference, the proxy no longer slices that part.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use serde_json::Value;
use tracing::warn;

use crate::{
    cache::Cache,
    eth::{Part, Query, TxHash, TxPosition},
    proxy::call::slice::{hashes_only, slice},
    verify::Content,
};

/// Parts that are sliced out of larger entries: hashes and transactions out of a block, receipts out of the list of a
/// block.
const DERIVED: [Part; 3] = [Part::BlockWithHashes, Part::Transaction, Part::Receipt];

/// Parts that are no longer sliced, by [`Part`].
#[derive(Debug, Default)]
pub(crate) struct Derivations([AtomicBool; Part::COUNT]);

// === impl Derivations ===

impl Derivations {
    /// Returns whether this part may be sliced out of a larger entry.
    pub(crate) fn allow(&self, part: Part) -> bool {
        !self.0[part as usize].load(Relaxed)
    }

    /// Returns the names of the parts that are no longer sliced.
    pub(crate) fn given_up(&self) -> impl Iterator<Item = &'static str> {
        DERIVED.into_iter().filter(|part| !self.allow(*part)).map(name)
    }

    /// Compares new content with cached entries of the same data, whole or single.
    pub(crate) fn compare(&self, cache: &Cache, content: &Content) {
        match content {
            Content::Block(block) => {
                if let Some(with_hashes) = cache.block_with_hashes(block.hash()) {
                    self.settle(Part::BlockWithHashes, &hashes_only(block), &with_hashes.bytes());
                }
                let slices = block.transaction_hashes().zip(0..);
                let slices = slices.map(|(hash, index)| (hash, block.transaction(TxPosition(index))));
                self.compare_singles(cache, content, Part::Transaction, slices);
            }
            Content::BlockWithHashes(with_hashes) => {
                if let Some(block) = cache.block(with_hashes.hash()) {
                    self.settle(Part::BlockWithHashes, &hashes_only(&block), &with_hashes.bytes());
                }
            }
            Content::Receipts(receipts) => {
                let slices = receipts.transaction_hashes().zip(0..);
                let slices = slices.map(|(hash, index)| (hash, receipts.receipt(TxPosition(index))));
                self.compare_singles(cache, content, Part::Receipt, slices);
            }
            // A single is fetched beside its block only where nothing is cut out of it.
            Content::Transaction(_) | Content::Receipt(_) => {}
        }
    }

    fn compare_singles(
        &self,
        cache: &Cache,
        whole: &Content,
        part: Part,
        slices: impl Iterator<Item = (TxHash, Option<Bytes>)>,
    ) {
        for (transaction, cut) in slices {
            let single = cache.single(part, transaction).filter(|single| single.home() == whole.home());
            let alone = single.and_then(|single| slice(Query::new(part, transaction), &single));
            if let (Some(cut), Some(alone)) = (cut, alone) {
                self.settle(part, &cut, &alone);
            }
        }
    }

    fn settle(&self, part: Part, cut: &Bytes, single: &Bytes) {
        if !is_same(cut, single) && !self.0[part as usize].swap(true, Relaxed) {
            warn!(
                derivation = name(part),
                "on this chain, an answer fetched alone differs from the same data in its block ({}); \
                 fetching such answers separately from now on",
                name(part)
            );
        }
    }
}

/// Returns the name of a part, in logs and the status.
fn name(part: Part) -> &'static str {
    match part {
        Part::BlockWithHashes => "hashes",
        Part::Receipt => "receipt",
        _ => "transaction",
    }
}

/// Returns whether two JSON texts are equal apart from member order and white space.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    let read = serde_json::from_slice::<Value>;
    one == other || matches!((read(one), read(other)), (Ok(one), Ok(other)) if one == other)
}
