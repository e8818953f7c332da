//! Turns cached entries into answers.

use std::{cell::RefCell, sync::Arc};

use bytes::Bytes;

use super::{plan::CachedAnswer, state::CacheState};
use crate::{
    chain::Stamp,
    eth::{Block, BlockHash, BlockNumber, Home, Part, Query, Receipts, TxHash, TxPosition},
    proxy::{call::slice::NULL, head::SharedView},
    verify::{Demand, Kind, Verified, Verifier},
};

/// The cached entries, for one lookup.
#[derive(Debug)]
pub(super) struct Entries<'a> {
    pub(super) state: &'a CacheState,
    pub(super) view: &'a SharedView,
    /// Demanded level of verification, by [`Kind`].
    demands: [Demand; 3],
    /// The entries found last: one lookup reads the same entry more than once.
    block: RefCell<Option<Arc<Verified<Block>>>>,
    receipts: RefCell<Option<Arc<Verified<Receipts>>>>,
}

// === impl Entries ===

impl<'a> Entries<'a> {
    pub(super) fn new(state: &'a CacheState, view: &'a SharedView, verifier: &Verifier) -> Self {
        let demands = Kind::ALL.map(|kind| verifier.demands(kind));
        Self { state, view, demands, block: RefCell::default(), receipts: RefCell::default() }
    }

    pub(super) fn block_answer(&self, block: &Verified<Block>, bytes: Bytes) -> CachedAnswer {
        let header = block.header();
        let renew = self
            .renews(Kind::Transactions, block, header.number)
            .then_some(Query::new(Part::Block, header.hash));
        CachedAnswer::cached(Part::Block, bytes, renew)
    }

    /// Answers with a transaction from its cached block, or with a single transaction. A query by hash names the
    /// transaction. A query by index is answered with `null` if a proved block has no transaction at that index.
    pub(super) fn transaction_answer(
        &self,
        hash: BlockHash,
        index: TxPosition,
        named: Option<TxHash>,
    ) -> Option<CachedAnswer> {
        if self.state.derivations.allow(Part::Transaction)
            && let Some(block) = self.block_of(hash)
        {
            return match block.transaction(index) {
                Some(bytes) => Some(self.block_answer(&block, bytes)),
                None if named.is_none() && block.is_proved() => {
                    Some(CachedAnswer::cached(Part::Block, NULL, None))
                }
                None => None,
            };
        }
        // The index of a single transaction is unverified. So the transaction answers a query by index only if the node
        // was asked for this index, and a query by hash only if it has that hash.
        let single = self.state.cache.single_transaction(hash, index)?;
        if !named.map_or(single.is_asked_of_block(), |named| single.hash() == named) {
            return None;
        }
        let number = single.place()?.number;
        let renew =
            self.renews(Kind::Transactions, &single, number).then_some(Query::transaction_in(hash, index));
        Some(CachedAnswer::cached(Part::Transaction, single.bytes(), renew))
    }

    /// Returns a single transaction as the answer for this number and index, if the node gave it as the answer to that, and
    /// no newer answer names another block.
    pub(super) fn transaction_at(
        &self,
        number: BlockNumber,
        index: TxPosition,
        arrival: Stamp,
    ) -> Option<CachedAnswer> {
        let block = self.view.tracker().placed_at(number, arrival)?;
        let single = self.state.cache.single_transaction(block, index)?;
        let is_recent = self.view.tracker().is_placed(single.hash(), block, arrival);
        let answer = self.transaction_answer(block, index, Some(single.hash()));
        answer.filter(|_| single.is_asked_at(number) && is_recent)
    }

    pub(super) fn receipt_answer(
        &self,
        transaction: TxHash,
        hash: BlockHash,
        index: TxPosition,
    ) -> Option<CachedAnswer> {
        if self.state.derivations.allow(Part::Receipt)
            && let Some(receipts) = self.receipts_of(hash)
        {
            let renew = self.receipts_renew(&receipts);
            return Some(CachedAnswer::cached(Part::Receipts, receipts.receipt(index)?, renew));
        }
        // A single receipt with a false block hash may be stored at the place of another transaction.
        let single =
            self.state.cache.single_receipt(hash, index).filter(|single| single.hash() == transaction)?;
        let renew = self
            .renews(Kind::Receipts, &single, single.place().number)
            .then_some(Query::new(Part::Receipt, transaction));
        Some(CachedAnswer::cached(Part::Receipt, single.bytes(), renew))
    }

    pub(super) fn receipts_renew(&self, receipts: &Verified<Receipts>) -> Option<Query> {
        let Home { block, number } = receipts.named_home()?;
        self.renews(Kind::Receipts, receipts, number).then_some(Query::new(Part::Receipts, block))
    }

    /// Returns whether to fetch an entry again: entries of this kind get only structural checks, this one is unproved
    /// and was requested before its block became final, and the block is final now. Nodes make most mistakes about new
    /// blocks.
    pub(super) fn renews<T>(&self, kind: Kind, content: &Verified<T>, number: BlockNumber) -> bool {
        self.demands(kind) == Demand::Structural && !content.lasts() && self.view.tracker().is_final(number)
    }

    pub(super) fn demands(&self, kind: Kind) -> Demand {
        self.demands[kind as usize]
    }

    pub(super) fn demands_proof(&self, kind: Kind) -> bool {
        self.demands(kind) == Demand::Full
    }

    pub(super) fn is_uncacheable(&self, fetch: Query) -> bool {
        !self.demands_proof(Kind::Transactions) && self.state.uncacheable.contains(fetch)
    }

    /// Returns whether the cached block with this hash has another number than in the view. If so, removes it from
    /// the view.
    pub(super) fn is_at_other_number(&self, hash: BlockHash, number: BlockNumber) -> bool {
        let held = self.block_of(hash).map(|block| block.header().number);
        let held = held.or_else(|| Some(self.state.cache.block_with_hashes(hash)?.header().number));
        let is_other = held.is_some_and(|held| held != number);
        if is_other {
            self.view.change(|tracker| tracker.remove(number, hash));
        }
        is_other
    }

    /// Returns the cached block with this hash.
    pub(super) fn block_of(&self, hash: BlockHash) -> Option<Arc<Verified<Block>>> {
        let mut last = self.block.borrow_mut();
        if last.as_ref().is_none_or(|last| last.hash() != hash) {
            *last = self.state.cache.block(hash);
        }
        last.clone()
    }

    /// Returns the cached receipts of the block with this hash.
    pub(super) fn receipts_of(&self, hash: BlockHash) -> Option<Arc<Verified<Receipts>>> {
        let mut last = self.receipts.borrow_mut();
        if last.as_ref().is_none_or(|last| last.block() != Some(hash)) {
            *last = self.state.cache.receipts(hash);
        }
        last.clone()
    }
}
