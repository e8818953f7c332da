//! Keeps what was fetched and checked, and tells the view what it showed.

use std::{future::pending, panic::resume_unwind, sync::Arc};

use futures_util::future::BoxFuture;
use tokio::task;

use crate::{
    cache::INDEXED_INLINE,
    chain::{Contrary, Link, Stamp},
    eth::{Block, BlockNumber, Home, LoneReceipt, Part, Place, Query, Receipts, Tag, TxHash},
    proxy::miss::fetcher::Fetcher,
    upstream::Audience,
    verify::{Content, Demand, Kind, Level, Unproved, Verified},
};

/// Single receipts of one block that the block is compared with when it arrives. If there are more, all are removed: each
/// comparison parses the block, and a client that reads so many is better served by the list of all receipts.
const MAX_COMPARED: usize = 4;

/// Runs an insertion of content that lists so many transactions, off the runtime if they are many.
async fn index<T: Send + 'static>(transactions: usize, insert: impl FnOnce() -> T + Send + 'static) -> T {
    if transactions <= INDEXED_INLINE {
        return insert();
    }
    // A panic is the caller's, as it would be inline.
    match task::spawn_blocking(insert).await {
        Ok(inserted) => inserted,
        Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
        // The runtime is shutting down, and drops this future with all others.
        Err(_) => pending().await,
    }
}

// === impl Fetcher ===

impl Fetcher {
    /// Keeps content, if the view believes that it is where it says. `canonical` is when it was asked
    /// for, where that says what is canonical: asked for by block hash, it does not.
    pub(in crate::proxy) async fn keep(
        self: &Arc<Self>,
        content: Content,
        canonical: Option<Stamp>,
    ) -> Content {
        // Where proof is demanded, what is not proved is as good as not there: also what it says of its place.
        let kind = Kind::of(content.part());
        if content.level() != Level::Proved && self.verifier.demands_proof(kind) {
            self.place_cached(&content, canonical).await;
            return content;
        }
        if self.is_tainted(&content) || !self.place(&content, canonical).await {
            return content;
        }
        if self.verifier.demands(kind) == Demand::Structural {
            self.derivations.compare(&self.cache, &content);
        }
        match &content {
            Content::Block(block) => return Content::Block(self.keep_block(block.clone()).await),
            Content::BlockWithHashes(thin) => self.cache.insert_thin(thin),
            Content::Receipts(receipts) => {
                return Content::Receipts(self.keep_receipts(receipts.clone()).await);
            }
            Content::Transaction(transaction) => self.cache.insert_transaction(transaction),
            Content::Receipt(receipt) => {
                self.cache.insert_receipt(receipt);
                // The block may have arrived after the receipt was verified.
                if let Some(block) = self.cache.peek_block(receipt.place().block) {
                    self.compare_receipt(receipt, &block);
                }
            }
        }
        content
    }

    /// Hashes alone prove nothing, but a block that was proved before may be the one at their number.
    async fn place_cached(self: &Arc<Self>, content: &Content, canonical: Option<Stamp>) {
        let Content::BlockWithHashes(thin) = content else { return };
        let cached = self.cache.peek_block(thin.hash());
        if cached.is_some_and(|block| block.header() == thin.header()) {
            self.place(content, canonical).await;
        }
    }

    /// A receipt that came alone proves nothing; where all receipts of its block have just been found wrong, it is
    /// not kept either.
    fn is_tainted(&self, content: &Content) -> bool {
        let Content::Receipt(receipt) = content else { return false };
        let place = receipt.place();
        self.is_vain(Query::new(Part::Receipts, place.block))
            || self.is_vain(Query::new(Part::Receipts, place.number))
    }

    /// Hands on content that could not be proved. Where that is no fault of its own, because nothing of this
    /// chain has been proved yet, what it says of its place is believed like that of any other.
    pub(in crate::proxy) async fn read(self: &Arc<Self>, content: &Content, canonical: Option<Stamp>) {
        if canonical.is_some() && !self.verifier.is_sure() {
            self.place(content, canonical).await;
        }
    }

    async fn keep_block(self: &Arc<Self>, block: Arc<Verified<Block>>) -> Arc<Verified<Block>> {
        let block = self.keep_restored_block(block).await;
        self.view.spill_block(&block, None);
        block
    }

    pub(in crate::proxy) async fn keep_restored_block(
        self: &Arc<Self>,
        block: Arc<Verified<Block>>,
    ) -> Arc<Verified<Block>> {
        let (this, transactions) = (self.clone(), block.len());
        let insert = move || {
            let block = this.cache.insert_block(block);
            this.compare_receipts(&block);
            block
        };
        let block = index(transactions, insert).await;
        self.prove_waiting(&block);
        block
    }

    /// Removes single receipts that arrived before their block, if the block is proved and contradicts them.
    fn compare_receipts(&self, block: &Verified<Block>) {
        if !block.is_proved() {
            return;
        }
        let receipts = self.cache.lone_receipts(block);
        if receipts.len() > MAX_COMPARED {
            self.cache.remove_lone_receipts(block);
            return;
        }
        receipts.iter().for_each(|receipt| self.compare_receipt(receipt, block));
    }

    fn compare_receipt(&self, receipt: &Verified<LoneReceipt>, block: &Verified<Block>) {
        if block.is_proved() && !self.verifier.agrees(receipt, block) {
            self.cache.remove_single(block.hash(), receipt.place().index);
        }
    }

    pub(in crate::proxy) async fn keep_receipts(
        self: &Arc<Self>,
        receipts: Arc<Verified<Receipts>>,
    ) -> Arc<Verified<Receipts>> {
        let receipts = self.insert_receipts(receipts).await;
        self.view.spill_receipts(&receipts, None);
        // Their block may have come while they were being checked.
        if let Some(block) = receipts.block().and_then(|block| self.cache.peek_block(block)) {
            self.prove_waiting(&block);
        }
        receipts
    }

    /// Stores the receipts of a block, and returns those that are cached then.
    pub(in crate::proxy) async fn insert_receipts(
        &self,
        receipts: Arc<Verified<Receipts>>,
    ) -> Arc<Verified<Receipts>> {
        let cache = self.cache.clone();
        index(receipts.len(), move || cache.insert_receipts(receipts)).await
    }

    /// Receipts that came before their block are proved when it comes; nobody waits for that.
    fn prove_waiting(self: &Arc<Self>, block: &Arc<Verified<Block>>) {
        if !block.is_proved() {
            return;
        }
        let waiting = self.cache.peek_receipts(block.hash());
        let Some(receipts) = waiting.filter(|receipts| !receipts.is_proved()) else { return };
        let (this, block) = (self.clone(), block.clone());
        tokio::spawn(async move {
            let hash = block.hash();
            match this.verifier.prove_receipts((*receipts).clone(), block).await {
                Ok(receipts) => {
                    let receipts = this.insert_receipts(receipts.into()).await;
                    this.view.spill_receipts(&receipts, None);
                }
                Err(Unproved::Failed(_)) => {
                    this.cache.remove_unproved_receipts(hash);
                    this.found_vain(Query::new(Part::Receipts, hash));
                }
                // Nothing would prove them later: the next read fetches them once more, beside their block.
                Err(Unproved::Overdue(_)) => this.cache.remove_unproved_receipts(hash),
                Err(Unproved::NotDemanded) => {}
            }
        });
    }

    /// Tells the view where content says that it is; returns whether the view agrees. Only a block or a header says which
    /// block stands at a number.
    async fn place(self: &Arc<Self>, content: &Content, canonical: Option<Stamp>) -> bool {
        let link = match content {
            Content::Block(block) => Link::from(block.header()),
            Content::BlockWithHashes(thin) => Link::from(thin.header()),
            Content::Receipts(receipts) => {
                let Some(Home { block, number }) = receipts.home() else { return false };
                let agrees = || self.view.tracker().agrees(number, block);
                return canonical.is_none() || self.agree(Some(number), agrees).await;
            }
            Content::Transaction(transaction) => match transaction.place() {
                Some(place) => return self.observe_place(transaction.hash(), place, canonical).await,
                // Pending: it is nowhere yet, and not kept.
                None => return false,
            },
            Content::Receipt(receipt) => {
                return self.observe_place(receipt.hash(), receipt.place(), canonical).await;
            }
        };
        match canonical {
            Some(sent) => {
                let observe = || self.view.learn(|tracker, find| tracker.observe_number(link, sent, find));
                self.agree(None, observe).await
            }
            None => {
                self.view.learn(|tracker, find| tracker.observe_block(link, find));
                true
            }
        }
    }

    /// Tells the view where a single transaction or receipt says that it is; returns whether the view agrees.
    pub(in crate::proxy) async fn observe_place(
        self: &Arc<Self>,
        transaction: TxHash,
        Place { number, block, .. }: Place,
        canonical: Option<Stamp>,
    ) -> bool {
        let Some(sent) = canonical else { return true };
        let observe = || self.view.change(|tracker| tracker.observe_place(transaction, number, block, sent));
        self.agree(Some(number), observe).await
    }

    /// Asks which block is at a number. A type of its own: what comes is kept by the function that has this done.
    fn look_at(self: Arc<Self>, number: BlockNumber) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let whole = self.verifier.demands_proof(Kind::Transactions);
            let part = if whole { Part::Block } else { Part::BlockWithHashes };
            let _ = self.fetch(Query::new(part, number), self.view.clock().now()).await;
        })
    }

    /// Applies `observe` to the view. Where that contradicts what is tracked, the view is refreshed; where it contradicts
    /// what is final, the finalized block is asked for; where that is final by one answer alone, so is the block at `number`.
    /// Returns whether the view agrees in the end.
    async fn agree(
        self: &Arc<Self>,
        number: Option<BlockNumber>,
        observe: impl Fn() -> Result<(), Contrary>,
    ) -> bool {
        match observe() {
            Ok(()) => return true,
            // Nobody waits for what another call would show.
            Err(_) if !Audience::is_there_now() => return false,
            Err(Contrary::Tracked) => {
                let _ = self.view.refresh(Tag::Latest, self.view.clock().now()).await;
            }
            Err(Contrary::Final) => {
                self.view.recheck_finalized().await;
                if let Some(number) = number.filter(|number| self.view.tracker().is_unlinked(*number)) {
                    self.clone().look_at(number).await;
                }
            }
        }
        let agrees = observe().is_ok();
        if !agrees {
            self.metrics.contrary();
        }
        agrees
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
