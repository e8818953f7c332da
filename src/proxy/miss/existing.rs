//! Data that is known to exist: `null` is no valid answer to a query for it.

use std::sync::Arc;

use crate::{
    cache::Location,
    chain::{Link, Stamp},
    eth::{At, BlockHash, BlockNumber, Home, Query, TxHash},
    proxy::{call::query_call::QueryCall, head::SharedView, lookup::CacheState},
};

/// Number of newest blocks to search for a transaction that the upstream does not have: a client may have just seen
/// the transaction in one of them.
const NEWEST: usize = 16;

/// Largest distance below the finalized block at which a node has every block: it may have pruned older ones.
const NOT_PRUNED: u64 = 64;

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

    /// Returns the block of a transaction, if a cached block that is canonical in the view lists it.
    pub(super) fn home_of(&self, transaction: TxHash, arrival: Stamp) -> Option<Home> {
        let (cache, view) = (&self.state.cache, &self.view);
        let listed = cache.locations(transaction).into_iter().find(|Location { home, index }| {
            let in_block = || cache.block(home.block).and_then(|block| block.transaction_hash(*index));
            let in_receipts = || cache.receipts(home.block).and_then(|all| all.transaction_hash(*index));
            in_block().or_else(in_receipts) == Some(transaction)
                && view.tracker().canonical_at(home.number, arrival) == Some(home.block)
        });
        if let Some(Location { home, .. }) = listed {
            return Some(home);
        }
        // New heads are often cached only as blocks with hashes.
        let newest: Vec<_> = view.tracker().newest().take(NEWEST).collect();
        let lists = |link: &&Link| {
            cache.block_with_hashes(link.hash).is_some_and(|with_hashes| with_hashes.lists(transaction))
        };
        newest.iter().find(lists).map(|link| Home { block: link.hash, number: link.number })
    }

    /// Returns the number of transactions of a block, if the block is cached in any form.
    pub(super) fn transactions_in(&self, block: BlockHash) -> Option<u64> {
        let whole = self.state.cache.block(block).map(|block| block.len() as u64);
        whole
            .or_else(|| self.state.cache.block_with_hashes(block).map(|with_hashes| with_hashes.len() as u64))
    }

    /// Returns the place of data that must exist: the view has its block and, if the data is about a transaction, a cached
    /// block lists it; or the place is in final blocks. The view may be stale; callers refresh it before they act on this.
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
            let number = number.or_else(|| view.tracker().tracked_number(hash));
            let number = number.or_else(|| view.tracker().placed_number(hash))?;
            let known = known_at(number).filter(|known| known.block == Some(hash));
            known.or_else(|| self.in_final_blocks(number, None))
        };
        let is_listed = |known: &Known| {
            let Some(index) = fetch.index else { return true };
            let count = known.block.and_then(|block| self.transactions_in(block));
            count.is_some_and(|count| index.0 < count)
        };
        let known = match fetch.at {
            At::Hash(hash) => known_as(hash),
            At::Number(number) => known_at(number).or_else(|| self.in_final_blocks(number, Some(NOT_PRUNED))),
            At::Tag(_) => None,
            At::Tx(transaction) => match self.home_of(transaction, arrival) {
                Some(Home { block, number }) => Some(Known { number, block: Some(block) }),
                None => {
                    let locations = self.state.cache.locations(transaction);
                    let numbers = locations.into_iter().map(|location| location.home.number);
                    numbers.filter_map(|number| self.in_final_blocks(number, None)).next()
                }
            },
        };
        known.filter(is_listed)
    }

    /// Returns the place with this number, if a final block is there that the view does not know.
    fn in_final_blocks(&self, number: BlockNumber, depth: Option<u64>) -> Option<Known> {
        let tracker = self.view.tracker();
        let (finalized, _) = tracker.finalized().filter(|_| !tracker.is_suspended())?;
        let below = finalized.0.checked_sub(number.0)?;
        let is_unknown = depth.is_none_or(|depth| below <= depth) && tracker.known_at(number).is_none();
        is_unknown.then_some(Known { number, block: None })
    }
}
