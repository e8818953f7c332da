//! Looks up a query in the cache: without waiting, answers a hit or plans a miss.

use std::sync::Arc;

use super::{
    by_block::BlockLookup,
    by_transaction::TransactionLookup,
    compress::Compressor,
    entries::Entries,
    plan::{CachedAnswer, LookupPlan},
    state::CacheState,
    tags::{TagMeaning, Tags},
};
use crate::{
    chain::Link,
    eth::{Home, Query, Tag},
    jsonrpc::Answer,
    proxy::{
        call::{
            outcome::{Answered, Outcome},
            packet::PacketContext,
        },
        head::SharedView,
        metrics::Metrics,
    },
    verify::Verifier,
};

/// Looks up queries in the cache.
#[derive(Debug)]
pub(crate) struct CacheLookup {
    state: Arc<CacheState>,
    view: Arc<SharedView>,
    verifier: Verifier,
    compressor: Compressor,
}

// === impl CacheLookup ===

impl CacheLookup {
    pub(crate) fn new(
        state: Arc<CacheState>,
        view: Arc<SharedView>,
        verifier: Verifier,
        metrics: Metrics,
    ) -> Self {
        let compressor = Compressor::new(state.cache.clone(), metrics);
        Self { state, view, verifier, compressor }
    }

    /// Answers a query from the cache, or plans the next step of a miss. `shown` is a block that the node has just shown to
    /// be canonical.
    pub(crate) fn plan(&self, query: Query, packet: &PacketContext, shown: Option<Home>) -> LookupPlan {
        let (entries, tags) = (self.entries(), Tags::new(&self.view, packet));
        let (entries, tags) = (&entries, &tags);
        let plan = match query.transaction() {
            Some(hash) => TransactionLookup { entries, tags, shown }.plan(query, hash),
            None => BlockLookup { entries, tags, packet, shown }.plan(query),
        };
        if let (LookupPlan::Hit(_), Some(tag), Some(link)) = (&plan, query.tag(), tags.pinned.get())
            && !packet.commit(tag, link)
        {
            // Another call found meanwhile that this block left the chain.
            return LookupPlan::Refresh(tag);
        }
        plan
    }

    fn entries(&self) -> Entries<'_> {
        Entries::new(&self.state, &self.view, &self.verifier)
    }

    /// Returns the block that a tag stands for in all calls of a packet.
    pub(crate) fn meaning(&self, tag: Tag, packet: &PacketContext) -> TagMeaning {
        Tags::new(&self.view, packet).meaning(tag)
    }

    /// Pins `tag` to a block that the node shows, unless that breaks the order of tags.
    pub(crate) fn pin_shown(&self, tag: Tag, link: Link, packet: &PacketContext) -> Option<Link> {
        Tags::new(&self.view, packet).pin_shown(tag, link)
    }

    /// Returns a cached answer as the answer to a call, in compressed form if there is one.
    pub(crate) fn hit(
        &self,
        query: Query,
        CachedAnswer { bytes, source, whole, .. }: CachedAnswer,
    ) -> Answered {
        let deflated = whole.and_then(|whole| self.compressor.deflated(whole, &bytes));
        Answered { deflated, ..Answered::new(Answer::Result(bytes), Outcome::of_hit(query, source)) }
    }
}
