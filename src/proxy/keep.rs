//! Keeps what was fetched and checked, and tells the view what it showed.

use std::sync::Arc;

use super::fetch::{Fetch, Fetched, Fetcher};
use crate::{
    chain::{Link, Stamp},
    eth::{Block, BlockHash, BlockNumber, Header, Place, Receipts, Tag},
    verify::{Checked, Demand, Level, Verified},
};

// === impl Fetcher ===

impl Fetcher {
    /// Keeps content, if the view believes that it is where it says. `canonical` is when it was asked
    /// for, where that says what is canonical: asked for by block hash, it does not.
    pub(super) async fn keep(self: &Arc<Self>, checked: Checked, canonical: Option<Stamp>) -> Fetched {
        // Where proof is demanded, what is not proved is as good as not there: also what it says of its place.
        let keeps = checked.level() == Level::Proved || !self.verifier.demands_proof(checked.kind());
        if !keeps || self.is_tainted(&checked) || !self.place(&checked, canonical).await {
            return Fetched::from(checked);
        }
        if self.verifier.demands(checked.kind()) == Demand::Structural {
            self.derivations.compare(&self.cache, &checked);
        }
        match checked {
            Checked::Block(block) => Fetched::Block(self.keep_block(block)),
            Checked::Thin(thin) => Fetched::Thin(self.cache.insert_thin(thin)),
            Checked::Receipts { block, number, receipts } => {
                Fetched::Receipts(self.keep_receipts(block, number, receipts))
            }
            Checked::Transaction(transaction) => {
                Fetched::Transaction(self.cache.insert_transaction(transaction))
            }
            Checked::Receipt(receipt) => Fetched::Receipt(self.cache.insert_receipt(receipt)),
        }
    }

    /// A receipt that came alone proves nothing; where all receipts of its block have just been found wrong, it is
    /// not kept either.
    fn is_tainted(&self, checked: &Checked) -> bool {
        let Checked::Receipt(receipt) = checked else { return false };
        let place = receipt.place();
        self.is_vain(Fetch::Receipts(place.block)) || self.is_vain(Fetch::ReceiptsAt(place.number))
    }

    /// Hands on content that could not be proved. Where that is no fault of its own, because nothing of this
    /// chain has been proved yet, what it says of its place is believed like that of any other.
    pub(super) async fn read(self: &Arc<Self>, checked: Checked, canonical: Option<Stamp>) -> Fetched {
        if canonical.is_some() && !self.verifier.is_sure() {
            self.place(&checked, canonical).await;
        }
        Fetched::from(checked)
    }

    fn keep_block(self: &Arc<Self>, block: Verified<Block>) -> Arc<Verified<Block>> {
        let block = self.keep_restored_block(block);
        self.view.spill_block(&block, None);
        block
    }

    pub(super) fn keep_restored_block(self: &Arc<Self>, block: Verified<Block>) -> Arc<Verified<Block>> {
        let block = self.cache.insert_block(block);
        self.prove_waiting(&block);
        block
    }

    pub(super) fn keep_receipts(
        self: &Arc<Self>,
        block: BlockHash,
        number: BlockNumber,
        receipts: Verified<Receipts>,
    ) -> Arc<Verified<Receipts>> {
        let receipts = self.cache.insert_receipts(block, number, receipts);
        self.view.spill_receipts(&receipts, None);
        // Their block may have come while they were being checked.
        if let Some(block) = self.cache.block(block) {
            self.prove_waiting(&block);
        }
        receipts
    }

    /// Receipts that came before their block are proved when it comes; nobody waits for that.
    fn prove_waiting(self: &Arc<Self>, block: &Arc<Verified<Block>>) {
        if !block.is_proved() {
            return;
        }
        let waiting = self.cache.receipts(block.hash());
        let Some(receipts) = waiting.filter(|receipts| !receipts.is_proved()) else { return };
        let (this, block) = (self.clone(), block.clone());
        tokio::spawn(async move {
            let (hash, number) = (block.hash(), block.header().number);
            match this.verifier.prove_receipts((*receipts).clone(), block).await {
                Some(Ok(receipts)) => {
                    let receipts = this.cache.insert_receipts(hash, number, receipts);
                    this.view.spill_receipts(&receipts, None);
                }
                Some(Err(_)) => {
                    this.cache.remove_unproved_receipts(hash);
                    this.found_vain(Fetch::Receipts(hash));
                }
                None => {}
            }
        });
    }

    /// Tells the view where content says that it is; tells whether the view agrees.
    async fn place(&self, checked: &Checked, canonical: Option<Stamp>) -> bool {
        let (number, hash, parent) = match checked {
            Checked::Block(block) => linked(block.header()),
            Checked::Thin(thin) => linked(thin.header()),
            Checked::Receipts { block, number, .. } => (*number, *block, None),
            Checked::Transaction(transaction) => match transaction.place() {
                Some(Place { number, block, .. }) => (number, block, None),
                // Pending: it is nowhere yet, and not kept.
                None => return false,
            },
            Checked::Receipt(receipt) => (receipt.place().number, receipt.place().block, None),
        };
        match (canonical, parent) {
            (Some(sent), parent) => self.observe(number, hash, parent, sent).await,
            (None, Some(parent)) => {
                self.view.change(|tracker| tracker.observe_block(Link { number, hash, parent }));
                true
            }
            (None, None) => true,
        }
    }

    /// Tells the view which block stands at a number. If that contradicts what is tracked, the view
    /// is refreshed; tells whether it agrees in the end.
    pub(super) async fn observe(
        &self,
        number: BlockNumber,
        hash: BlockHash,
        parent: Option<BlockHash>,
        sent: Stamp,
    ) -> bool {
        let observe =
            || self.view.change(|tracker| tracker.observe_number(number, hash, parent, sent)).is_ok();
        if observe() {
            return true;
        }
        let now = self.view.clock().now();
        if self.view.refresh(Tag::Latest, now).await.is_ok() && observe() {
            return true;
        }
        self.metrics.contrary();
        false
    }
}

fn linked(header: &Header) -> (BlockNumber, BlockHash, Option<BlockHash>) {
    (header.number, header.hash, Some(header.parent))
}

// === impl Fetched ===

impl From<Checked> for Fetched {
    fn from(checked: Checked) -> Self {
        match checked {
            Checked::Block(block) => Self::Block(Arc::new(block)),
            Checked::Thin(thin) => Self::Thin(Arc::new(thin)),
            Checked::Receipts { receipts, .. } => Self::Receipts(Arc::new(receipts)),
            Checked::Transaction(transaction) => Self::Transaction(Arc::new(transaction)),
            Checked::Receipt(receipt) => Self::Receipt(Arc::new(receipt)),
        }
    }
}
