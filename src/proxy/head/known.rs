//! Data that the verifier compares answers with: the cache, the canonical view, and the number of the finalized block
//! at the time of the request.

use std::sync::Arc;

use alloy_primitives::Bloom;
use bytes::Bytes;

use crate::{
    cache::Cache,
    chain::Stamp,
    eth::{Block, BlockHash, BlockNumber, IndexedFilter, Receipts},
    proxy::head::view::SharedView,
    verify::{Known, Level, Verified},
};

/// Known data for an answer that was requested at `sent`.
#[derive(Debug)]
pub(crate) struct KnownAt {
    cache: Cache,
    view: Arc<SharedView>,
    sent: Stamp,
    /// Number of the finalized block at the time of the request.
    finalized: Option<BlockNumber>,
}

// === impl KnownAt ===

impl KnownAt {
    pub(crate) fn new(cache: Cache, view: Arc<SharedView>, sent: Stamp) -> Self {
        let finalized = view.tracker().finalized().map(|(number, _)| number);
        Self { cache, view, sent, finalized }
    }
}

/// Returns the bloom of the block with this hash, if its cached header is proved.
pub(crate) fn proved_bloom(cache: &Cache, hash: BlockHash) -> Option<Bloom> {
    let of_block = || cache.peek_block(hash).filter(|block| block.level() >= Level::Partial)?.bloom();
    let of_header = || {
        let with_hashes = cache.peek_block_with_hashes(hash)?;
        with_hashes.bloom().filter(|_| with_hashes.level() >= Level::Partial)
    };
    of_block().or_else(of_header)
}

impl Known for KnownAt {
    fn block(&self, hash: BlockHash) -> Option<Arc<Verified<Block>>> {
        self.cache.peek_block(hash)
    }

    fn listed(&self, hash: BlockHash) -> Option<(BlockNumber, usize)> {
        let whole = self.cache.peek_block(hash).map(|block| (block.header().number, block.len()));
        whole.or_else(|| {
            self.cache
                .peek_block_with_hashes(hash)
                .map(|with_hashes| (with_hashes.header().number, with_hashes.len()))
        })
    }

    fn receipts(&self, hash: BlockHash) -> Option<Arc<Verified<Receipts>>> {
        self.cache.peek_receipts(hash)
    }

    fn bloom(&self, hash: BlockHash) -> Option<Bloom> {
        proved_bloom(&self.cache, hash)
    }

    fn indexed_logs(&self, hash: BlockHash, filter: &IndexedFilter) -> Option<Vec<Bytes>> {
        let index = self.cache.log_index(hash).filter(|index| index.level() == Level::Proved)?;
        let mut found = Vec::new();
        index.find(filter, &mut found).ok().map(|()| found)
    }

    fn at(&self, number: BlockNumber) -> Option<BlockHash> {
        self.view.tracker().lookup(number, self.sent).hash()
    }

    fn was_at(&self, number: BlockNumber, block: BlockHash) -> bool {
        let hint = || self.view.tracker().hint_at(number).map(|link| link.hash);
        self.at(number).or_else(hint) == Some(block)
    }

    fn was_final(&self, number: BlockNumber) -> bool {
        self.finalized.is_some_and(|finalized| number <= finalized)
    }
}
