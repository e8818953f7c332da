//! Turns cached entries into answers.

use std::{cell::RefCell, sync::Arc};

use bytes::Bytes;

use super::{plan::CachedAnswer, state::CacheState};
use crate::{
    eth::{Block, BlockHash, BlockNumber, Home, Part, Query, Receipts, TxHash, TxPosition},
    proxy::{
        call::slice::{NULL, slice},
        head::SharedView,
    },
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
        let renew = self.renews(Query::new(Part::Block, header.hash), block.lasts(), header.number);
        CachedAnswer::cached(Part::Block, bytes, renew)
    }

    /// Returns the transaction at a position of a cached block; `null` if a proved block has none there.
    pub(super) fn transaction_at(&self, hash: BlockHash, index: TxPosition) -> Option<CachedAnswer> {
        let block = self.block_of(hash).filter(|_| self.state.derivations.allow(Part::Transaction))?;
        match block.transaction(index) {
            Some(bytes) => Some(self.block_answer(&block, bytes)),
            None => block.is_proved().then(|| CachedAnswer::cached(Part::Block, NULL, None)),
        }
    }

    /// Returns the receipt at a position of cached receipts.
    pub(super) fn receipt_at(&self, hash: BlockHash, index: TxPosition) -> Option<CachedAnswer> {
        let receipts = self.receipts_of(hash).filter(|_| self.state.derivations.allow(Part::Receipt))?;
        let renew = self.receipts_renew(&receipts);
        Some(CachedAnswer::cached(Part::Receipts, receipts.receipt(index)?, renew))
    }

    /// Returns a transaction or a receipt that was fetched without its block, and the block that it names.
    pub(super) fn single(&self, part: Part, transaction: TxHash) -> Option<(Home, CachedAnswer)> {
        let query = Query::new(part, transaction);
        let single = self.state.cache.single(part, transaction)?;
        let home = single.home()?;
        let renew = self.renews(query, single.lasts(), home.number);
        Some((home, CachedAnswer::cached(part, slice(query, &single)?, renew)))
    }

    pub(super) fn receipts_renew(&self, receipts: &Verified<Receipts>) -> Option<Query> {
        let Home { block, number } = receipts.named_home()?;
        self.renews(Query::new(Part::Receipts, block), receipts.lasts(), number)
    }

    /// Returns `query` if it should fetch an entry again: entries of its kind get only structural checks, this one is
    /// unproved and was requested before its block became final, and the block is final now. Nodes make most mistakes about
    /// new blocks. If the fetch was useless, the next one is due after a minute.
    pub(super) fn renews(&self, query: Query, lasts: bool, number: BlockNumber) -> Option<Query> {
        let is_due = self.demands(Kind::of(query.part)) == Demand::Structural
            && !lasts
            && self.view.tracker().is_final(number)
            && !self.state.uncacheable.contains(query);
        is_due.then_some(query)
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
