//! Learns from answers which block is where.
//!
//! Content is stored by its hash; this is the only code that takes an answer's word for its place on the chain.

use std::sync::Arc;

use super::{source::NotShown, tracker::HeadTracker, view::SharedView};
use crate::{
    chain::{Contrary, Link, Stamp},
    eth::{BlockHash, BlockNumber, Place, Tag, TxHash},
    proxy::metrics::Metrics,
    upstream::UpstreamError,
    verify::Content,
};

/// Tells the view the places that answers name. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Canon {
    head: Arc<HeadTracker>,
    metrics: Metrics,
}

// === impl Canon ===

impl Canon {
    pub(crate) fn new(head: Arc<HeadTracker>, metrics: Metrics) -> Self {
        Self { head, metrics }
    }

    pub(crate) fn head(&self) -> &Arc<HeadTracker> {
        &self.head
    }

    pub(crate) fn view(&self) -> &Arc<SharedView> {
        self.head.view()
    }

    /// Tells the view the place that content names; returns whether the view agrees. `sent` is `None` for an answer by block
    /// hash, which does not say which block is canonical. Only a block or a header determines the block at a number. The
    /// view ignores the place in an answer to a request from before a reorg or a write, and then does not disagree.
    pub(crate) async fn learn(&self, content: &Content, sent: Option<Stamp>) -> bool {
        let link = match content {
            Content::Block(block) => Link::from(block.header()),
            Content::BlockWithHashes(with_hashes) => Link::from(with_hashes.header()),
            // A list of receipts names a block, but never says that the block is canonical.
            Content::Receipts(receipts) => return receipts.home().is_some(),
            // A pending transaction is in no block yet, and not stored.
            Content::Transaction(single) => match single.place() {
                Some(place) => return self.learn_place(single.hash(), place, sent).await,
                None => return false,
            },
            Content::Receipt(single) => return self.learn_place(single.hash(), single.place(), sent).await,
        };
        let view = self.view();
        let Some(sent) = sent else {
            view.learn(|tracker, find| tracker.observe_block(link, find));
            return true;
        };
        let observe = || view.learn(|tracker, find| tracker.observe_number(link, sent, find));
        self.observe_or_recheck(None, observe).await
    }

    /// Tells the view the block that a single transaction or receipt names; returns whether the view agrees.
    pub(crate) async fn learn_place(
        &self,
        transaction: TxHash,
        Place { number, block, .. }: Place,
        sent: Option<Stamp>,
    ) -> bool {
        let Some(sent) = sent else { return true };
        let observe =
            || self.view().change(|tracker| tracker.observe_place(transaction, number, block, sent));
        self.observe_or_recheck(Some(number), observe).await
    }

    /// Asks the node which block is at this number, and tells the view.
    pub(crate) async fn ask(&self, number: BlockNumber) -> Result<Result<Link, NotShown>, UpstreamError> {
        let (source, sent) = (self.head.source(), self.view().clock().now());
        Ok(match source.request(number, sent).await? {
            Ok(shown) if shown.is_storable() => {
                let link = shown.link;
                source.store(shown);
                // Callers read the view, which may not have taken the block in.
                let _ = self.view().learn(|tracker, find| tracker.observe_number(link, sent, find));
                Ok(link)
            }
            Ok(_) => Err(NotShown::Other),
            Err(not_shown) => Err(not_shown),
        })
    }

    /// Tells the view that the node denies this block. Returns whether an unlinked final block is forgotten.
    pub(crate) fn deny(&self, number: BlockNumber, block: BlockHash) -> bool {
        self.view().learn(|tracker, _| tracker.remove_denied(number, block))
    }

    /// Applies `observe` to the view. If that contradicts a tracked block, refreshes the view. If it contradicts a
    /// final block, rechecks the finalized block and, if the contradicted block became final by a single answer, also
    /// asks for the block at `number`. Returns whether the view agrees in the end.
    async fn observe_or_recheck(
        &self,
        number: Option<BlockNumber>,
        observe: impl Fn() -> Result<(), Contrary>,
    ) -> bool {
        match observe() {
            Ok(()) => return true,
            Err(Contrary::Tracked) => {
                let _ = self.head.refresh(Tag::Latest, self.view().clock().now()).await;
            }
            Err(Contrary::Final) => {
                self.head.finality().recheck().await;
                if let Some(number) = number.filter(|number| self.view().tracker().is_unlinked(*number)) {
                    let _ = self.ask(number).await;
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
