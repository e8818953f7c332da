//! Transactions and receipts that are fetched without their block.
//!
//! Such an entry names its block, but does not prove it. For `max_staleness` after its fetch, the view takes its word; later,
//! the block at that number must list the transaction. The second entry of a block brings the whole block, or all its
//! receipts.

use std::sync::Arc;

use super::fetcher::{Fetched, Fetcher};
use crate::{
    chain::Stamp,
    eth::{At, Part, Query},
    proxy::call::single_flight::Shared,
    verify::Content,
};

/// Confirms single entries, and fetches the rest of their blocks.
#[derive(Debug)]
pub(super) struct Singles(Arc<Fetcher>);

// === impl Singles ===

impl Singles {
    pub(super) fn new(fetcher: Arc<Fetcher>) -> Self {
        Self(fetcher)
    }

    /// Takes in content that helps to answer a query by transaction: the block at the number of a cached entry, which shows
    /// whether the entry is canonical, or the whole that contains the answer. Returns whether to look up again.
    pub(super) fn helped(&self, query: Query, fetch: Query, content: &Content, is_kept: bool) -> bool {
        let (Some(transaction), state) = (query.transaction(), self.0.state()) else { return false };
        if fetch.names_hash() {
            if !is_kept {
                state.uncacheable.note(fetch);
            }
            return is_kept;
        }
        let lists = match content {
            Content::Block(block) => block.transaction_hashes().any(|hash| hash == transaction),
            Content::BlockWithHashes(with_hashes) => with_hashes.lists(transaction),
            _ => return false,
        };
        if !lists {
            state.cache.remove_single(transaction);
        }
        true
    }

    /// Fetches the rest of a block if this is the second transaction or receipt that was fetched without it.
    pub(super) async fn fetch_rest(&self, content: &Content, arrival: Stamp) {
        let (part, place, hash) = match content {
            Content::Transaction(single) => match single.place() {
                Some(place) => (Part::Transaction, place, single.hash()),
                None => return,
            },
            Content::Receipt(single) => (Part::Receipt, single.place(), single.hash()),
            _ => return,
        };
        let state = self.0.state();
        // Fetched by number, a block also shows that it is canonical there. Receipts do not, so fetch them by hash.
        let at = if part == Part::Receipt { At::Hash(place.block) } else { At::Number(place.number) };
        let whole = Query::new(part.whole(), at);
        let has_whole = match part {
            Part::Receipt => state.cache.receipts(place.block).is_some() || !state.node.has_block_receipts(),
            _ => state.cache.block(place.block).is_some(),
        };
        if state.derivations.allow(part)
            && state.is_second(part, place.block, hash)
            && !has_whole
            && !state.uncacheable.contains(whole)
        {
            let fetched = Box::pin(self.0.fetch(whole, arrival)).await;
            let is_kept = |content: &Content| self.0.is_kept(content);
            if !matches!(fetched, Ok(Shared { value: Fetched::Content(content), .. }) if is_kept(&content)) {
                state.uncacheable.note(whole);
            }
        }
    }
}
