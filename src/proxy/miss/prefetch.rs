//! Fetches whole blocks, and all receipts of a block, when more of them are likely to be read.

use std::sync::Arc;

use super::fetcher::{Fetched, Fetcher};
use crate::{
    chain::{Lookup, Stamp},
    eth::{At, BlockHash, Part, Place, Query},
    proxy::{
        call::{outcome::Outcome, single_flight::Shared},
        head::SharedView,
        lookup::{CacheLookup, CacheState},
    },
    verify::Content,
};

/// Fetches whole blocks and receipt lists. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Prefetcher {
    view: Arc<SharedView>,
    state: Arc<CacheState>,
    lookup: Arc<CacheLookup>,
    fetcher: Arc<Fetcher>,
}

// === impl Prefetcher ===

impl Prefetcher {
    pub(crate) fn new(
        view: Arc<SharedView>,
        state: Arc<CacheState>,
        lookup: Arc<CacheLookup>,
        fetcher: Arc<Fetcher>,
    ) -> Self {
        Self { view, state, lookup, fetcher }
    }

    /// Fetches a whole block, or all its receipts. If they are cached now, returns the outcome of answers from them.
    pub(super) async fn fetch_whole(&self, whole: Query, arrival: Stamp) -> Option<Outcome> {
        if let Ok(Shared { value: Fetched::Content(content), joined, .. }) =
            self.fetcher.fetch(whole, arrival).await
            && self.fetcher.is_kept(&content)
        {
            return Some(Outcome::of_fetch(joined, true));
        }
        if let At::Hash(block) = whole.at {
            let single = if whole.part == Part::Receipts { Part::Receipt } else { Part::Transaction };
            self.lookup.prefetch().give_up(single, block);
        }
        None
    }

    /// Fetches the rest of a block if this is the second answer from it: its neighbours are likely to be next.
    pub(super) async fn fetch_rest(&self, content: &Content, arrival: Stamp) {
        let (part, place, hash) = match content {
            Content::Transaction(single) => match single.place() {
                Some(place) => (Part::Transaction, place, single.hash()),
                None => return,
            },
            Content::Receipt(single) => (Part::Receipt, single.place(), single.hash()),
            _ => return,
        };
        if !self.state.derivations.allow(part) {
            return;
        }
        let whole = self.whole(part, place, arrival);
        if self.lookup.prefetch().note_single(part, place.block, hash)
            && !self.has_whole(part, place.block)
            && !self.state.uncacheable.contains(whole)
        {
            Box::pin(self.fetch_whole(whole, arrival)).await;
        }
    }

    fn has_whole(&self, part: Part, block: BlockHash) -> bool {
        let cache = &self.state.cache;
        match part {
            Part::Receipt => cache.receipts(block).is_some() || !self.state.node.has_block_receipts(),
            _ => cache.block(block).is_some(),
        }
    }

    /// Returns the query for the whole: by hash if the block surely is canonical, else by number.
    fn whole(&self, part: Part, Place { block, number, .. }: Place, arrival: Stamp) -> Query {
        let surely = matches!(
            self.view.tracker().lookup(number, arrival),
            Lookup::Final(at) | Lookup::Tracked { hash: at, fresh: true } if at == block
        );
        let at = if surely { At::Hash(block) } else { At::Number(number) };
        Query::new(part.whole(), at)
    }
}
