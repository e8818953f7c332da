//! Data that is known to exist: `null` is no valid answer to a query for it.

use std::sync::Arc;

use crate::{
    cache::Location,
    chain::Stamp,
    eth::{At, BlockHash, BlockNumber, Part, Query, TxHash},
    proxy::{call::query_call::QueryCall, head::SharedView, lookup::CacheState},
};

/// Number of newest blocks to search for a transaction that the upstream does not have: a client may have just seen
/// the transaction in one of them.
const NEWEST: u64 = 32;

/// Place of data that must exist.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) number: BlockNumber,
    /// The block; `None` if the view knows only that a final block is there.
    pub(super) block: Option<BlockHash>,
}

/// Blocks and transactions that are known to exist. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct KnownToExist {
    state: Arc<CacheState>,
    view: Arc<SharedView>,
}

// === impl KnownToExist ===

impl KnownToExist {
    pub(crate) fn new(state: Arc<CacheState>, view: Arc<SharedView>) -> Self {
        Self { state, view }
    }

    pub(super) fn state(&self) -> &Arc<CacheState> {
        &self.state
    }

    /// Returns the place of a transaction, if a cached block that is canonical in the view lists it, or if an entry names a
    /// newly final number.
    pub(super) fn place_of(&self, transaction: TxHash, arrival: Stamp) -> Option<Known> {
        let (cache, view) = (&self.state.cache, &self.view);
        let locations = cache.locations(transaction);
        let listed = locations.iter().find(|Location { home, index }| {
            let in_block = || cache.block(home.block).and_then(|block| block.transaction_hash(*index));
            let in_receipts = || cache.receipts(home.block).and_then(|all| all.transaction_hash(*index));
            in_block().or_else(in_receipts) == Some(transaction)
                && view.tracker().canonical_at(home.number, arrival) == Some(home.block)
        });
        if let Some(Location { home, .. }) = listed {
            return Some(Known { number: home.number, block: Some(home.block) });
        }
        // New heads are often cached only as blocks with hashes.
        let newest: Vec<_> = {
            let tracker = view.tracker();
            let head = tracker.head()?.number.0;
            let numbers = (head.saturating_sub(NEWEST)..=head).rev().map(BlockNumber);
            numbers.map(|number| Known { number, block: tracker.known_at(number) }).collect()
        };
        let lists = |block| cache.block_with_hashes(block).is_some_and(|block| block.lists(transaction));
        let in_newest = newest.into_iter().find(|known| known.block.is_some_and(lists));
        let parts = [Part::Transaction, Part::Receipt].into_iter();
        let singles = parts.filter_map(|part| Some(cache.single(part, transaction)?.home()?.number));
        let mut numbers = locations.iter().map(|at| at.home.number).chain(singles);
        in_newest.or_else(|| numbers.find_map(|number| self.newly_final(number)))
    }

    /// Returns the number of transactions of a block, if the block is cached in any form.
    pub(super) fn transactions_in(&self, block: BlockHash) -> Option<u64> {
        let whole = self.state.cache.block(block).map(|block| block.len() as u64);
        whole
            .or_else(|| self.state.cache.block_with_hashes(block).map(|with_hashes| with_hashes.len() as u64))
    }

    /// Returns the place of data that must exist: the view has its block and, if the data is about a transaction, a cached
    /// block lists it; or the place is newly final. The view may be stale; callers refresh it before they act on this.
    pub(super) fn known(&self, asked: &QueryCall, fetch: Query) -> Option<Known> {
        let view = &self.view;
        if view.tracker().rules().development {
            return None;
        }
        let arrival = asked.request.packet().arrival(view.clock());
        let known_at = |number: BlockNumber| {
            let block = view.tracker().canonical_at(number, arrival)?;
            Some(Known { number, block: Some(block) })
        };
        let known_as = |hash: BlockHash| {
            let number = asked.query.number().or_else(|| Some(view.cached_link(hash)?.number));
            let number = number.or_else(|| view.tracker().tracked_number(hash))?;
            let known = known_at(number).filter(|known| known.block == Some(hash));
            // A client may ask for an orphan by its hash.
            known.or_else(|| self.newly_final(number).filter(|_| !asked.query.names_hash()))
        };
        let is_listed = |known: &Known| {
            let Some(index) = fetch.index else { return true };
            let count = known.block.and_then(|block| self.transactions_in(block));
            count.is_some_and(|count| index.0 < count)
        };
        let known = match fetch.at {
            At::Hash(hash) => known_as(hash),
            At::Number(number) => known_at(number).or_else(|| self.newly_final(number)),
            At::Tag(_) => None,
            At::Tx(transaction) => self.place_of(transaction, arrival),
        };
        known.filter(is_listed)
    }

    /// Returns the place with this number, if the block there has become final lately, so that no node has pruned it, and
    /// the view does not know the block.
    fn newly_final(&self, number: BlockNumber) -> Option<Known> {
        let tracker = self.view.tracker();
        let is_unknown =
            tracker.known_at(number).is_none() && !tracker.skips(number) && !tracker.is_suspended();
        (is_unknown && tracker.is_newly_final(number)).then_some(Known { number, block: None })
    }
}
