//! Stores verified content.

use std::{panic::resume_unwind, sync::Arc};

use crate::{
    blocking,
    cache::INDEXED_INLINE,
    eth::{At, Block, Part, Query, Receipts},
    proxy::{lookup::CacheState, tiers::WriteBack},
    verify::{Content, Unproved, Verified, Verifier},
};

/// Runs `insert`, on a blocking thread if the content lists many transactions.
async fn index<T: Send + 'static>(transactions: usize, insert: impl FnOnce() -> T + Send + 'static) -> T {
    if transactions <= INDEXED_INLINE {
        return insert();
    }
    // Resume a panic in the caller, as if it had happened inline.
    blocking::run(insert).await.unwrap_or_else(|died| resume_unwind(died.into_payload()))
}

/// Stores content in the cache, and final content in tiers. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    state: Arc<CacheState>,
    verifier: Verifier,
    write_back: WriteBack,
}

// === impl Store ===

impl Store {
    pub(crate) fn new(state: Arc<CacheState>, verifier: Verifier, write_back: WriteBack) -> Self {
        Self { state, verifier, write_back }
    }

    /// Stores content; returns the content that is cached afterwards.
    pub(super) async fn insert(&self, content: Content) -> Content {
        let cache = &self.state.cache;
        match &content {
            Content::Block(block) => {
                let block = self.insert_block(block.clone()).await;
                self.write_back.write_block(&block, None);
                return Content::Block(block);
            }
            Content::BlockWithHashes(block) => cache.insert_block_with_hashes(block),
            Content::Receipts(receipts) => {
                return Content::Receipts(self.store_receipts(receipts.clone()).await);
            }
            Content::Transaction(_) | Content::Receipt(_) => cache.insert_single(&content),
        }
        content
    }

    pub(super) async fn insert_block(&self, block: Arc<Verified<Block>>) -> Arc<Verified<Block>> {
        let (cache, transactions) = (self.state.cache.clone(), block.len());
        let block = index(transactions, move || cache.insert_block(block)).await;
        self.prove_waiting(&block);
        block
    }

    pub(super) async fn store_receipts(&self, receipts: Arc<Verified<Receipts>>) -> Arc<Verified<Receipts>> {
        let receipts = self.insert_receipts(receipts).await;
        self.write_back.write_receipts(&receipts, None);
        // The block may have arrived while the receipts were being verified.
        if let Some(block) = receipts.block().and_then(|block| self.state.cache.peek_block(block)) {
            self.prove_waiting(&block);
        }
        receipts
    }

    /// Stores the receipts of a block; returns the receipts that are cached afterwards.
    pub(super) async fn insert_receipts(&self, receipts: Arc<Verified<Receipts>>) -> Arc<Verified<Receipts>> {
        let cache = self.state.cache.clone();
        index(receipts.len(), move || cache.insert_receipts(receipts)).await
    }

    /// Proves, in the background, cached receipts that arrived before their block.
    fn prove_waiting(&self, block: &Arc<Verified<Block>>) {
        if !block.is_proved() {
            return;
        }
        let waiting = self.state.cache.peek_receipts(block.hash());
        let Some(receipts) = waiting.filter(|receipts| !receipts.is_proved()) else { return };
        let (this, block) = (self.clone(), block.clone());
        tokio::spawn(async move {
            let hash = block.hash();
            match this.verifier.prove_receipts((*receipts).clone(), block).await {
                Ok(receipts) if receipts.is_proved() => {
                    let receipts = this.insert_receipts(receipts.into()).await;
                    this.write_back.write_receipts(&receipts, None);
                }
                Err(Unproved::Failed(_)) => {
                    this.state.cache.remove_unproved_receipts(hash);
                    this.note_uncacheable(Query::new(Part::Receipts, hash));
                }
                // Nothing else would prove them later: the next read fetches them again, with their block.
                Err(Unproved::Overdue(_)) => this.state.cache.remove_unproved_receipts(hash),
                // The cache has them already, unless the first proof has just dropped them.
                Ok(_) | Err(Unproved::NotDemanded) => {}
            }
        });
    }

    /// Records that the answer to this fetch cannot be stored. For a receipt list, also removes the single receipts
    /// of the block: they are unproved, and the whole list has just turned out to be wrong.
    pub(super) fn note_uncacheable(&self, query: Query) {
        self.state.uncacheable.note(query);
        if let (Part::Receipts, At::Hash(block)) = (query.part, query.at)
            && let Some(block) = self.state.cache.block(block)
        {
            block.transaction_hashes().for_each(|transaction| self.state.cache.remove_single(transaction));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn long_lists_are_indexed_off_the_runtime() {
        let here = thread::current().id();
        let indexes_on = |transactions| index(transactions, || thread::current().id());
        assert_eq!(indexes_on(INDEXED_INLINE).await, here);
        assert_ne!(indexes_on(INDEXED_INLINE + 1).await, here);
    }
}
