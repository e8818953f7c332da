//! Asks again for data that must exist but that the upstream lacks.

use std::{sync::Arc, time::Duration};

use tokio::time;
use tracing::debug;

use super::{
    existing::Known,
    fetcher::{Fetched, Fetcher},
    prove::Prover,
};
use crate::{
    eth::{BlockHash, Part, Query, Tag},
    jsonrpc::Answer,
    proxy::{
        call::{query_call::QueryCall, single_flight::Shared},
        error::CallError,
    },
};

/// Pauses before each further request for data that must exist: replicas behind a load balancer rarely lag by more.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(300), Duration::from_millis(900)];

/// Asks again for data that must exist.
#[derive(Debug)]
pub(super) struct Insister(Prover);

/// Returns whether an answer is an empty list.
fn is_empty_list(answer: &Answer) -> bool {
    matches!(answer, Answer::Result(result) if result == "[]")
}

/// Returns whether an answer lacks data.
fn is_denial(fetched: &Fetched) -> bool {
    match fetched {
        Fetched::Short(_) => true,
        Fetched::Other(answer) => answer.is_null() || is_empty_list(answer),
        Fetched::Content(_) => false,
    }
}

/// Returns whether the query fetches a block by hash.
pub(super) fn is_block_by_hash(fetch: Query) -> bool {
    fetch.names_hash() && matches!(fetch.part, Part::Block | Part::BlockWithHashes)
}

// === impl Insister ===

impl Insister {
    pub(super) fn new(prover: Prover) -> Self {
        Self(prover)
    }

    fn fetcher(&self) -> &Arc<Fetcher> {
        self.0.fetcher()
    }

    /// Returns whether no endpoint is likely to have the data of this known block again, so that the node's `null` is an
    /// answer.
    ///
    /// # Errors
    /// If the upstream lacked the data a moment ago, and may have it soon.
    pub(super) fn is_gone(&self, asked: &QueryCall, fetch: Query) -> Result<bool, CallError> {
        let known = || self.fetcher().existing().known(asked, fetch);
        let uncacheable = &self.fetcher().state().uncacheable;
        if uncacheable.is_lacking(fetch) && known().is_some() {
            return Err(CallError::Lacking { what: fetch });
        }
        let gone = uncacheable.gone_from(fetch, asked.query.part);
        Ok(gone.is_some_and(|block| known().is_some_and(|known| known.block == Some(block))))
    }

    /// Returns the answer to a fetch. If it denies data that must exist, asks again, at any endpoint. Returns `None` if the
    /// call should look up again: its block has left the chain, or the data is gone, so that the next round forwards the
    /// call.
    pub(super) async fn confirmed(
        &self,
        asked: &QueryCall,
        fetch: Query,
        shared: Shared<Fetched>,
    ) -> Result<Option<Shared<Fetched>>, CallError> {
        let known = || self.fetcher().existing().known(asked, fetch);
        let Some(known) = is_denial(&shared.value).then(known).flatten() else { return Ok(Some(shared)) };
        if matches!(&shared.value, Fetched::Other(answer) if is_empty_list(answer))
            && !self.lists_some(known).await
        {
            return Ok(Some(shared));
        }
        Box::pin(self.insist(asked, fetch, known)).await
    }

    /// Returns whether a block has transactions, and therefore receipts.
    async fn lists_some(&self, known: Known) -> bool {
        let Some(block) = known.block else { return false };
        let existing = self.fetcher().existing();
        if existing.transactions_in(block).is_none() {
            let block = Query::new(Part::BlockWithHashes, block);
            let _ = self.fetcher().fetch(block, self.fetcher().view().clock().now()).await;
        }
        existing.transactions_in(block).is_some_and(|count| count > 0)
    }

    async fn insist(
        &self,
        asked: &QueryCall,
        fetch: Query,
        known: Known,
    ) -> Result<Option<Shared<Fetched>>, CallError> {
        let (canon, view) = (self.fetcher().canon(), self.fetcher().view());
        let arrival = asked.request.packet().arrival(view.clock());
        let is_known = || view.tracker().canonical_at(known.number, arrival) == known.block;
        // An unlinked final block rests on one answer or on the own disk. This denial outweighs both: look up again.
        if known.block.is_some_and(|block| is_block_by_hash(fetch) && canon.deny(known.number, block)) {
            return Ok(None);
        }
        let mut denials = 0;
        for pause in PAUSES {
            // If this refresh fails, the next one may succeed.
            let _ = canon.head().refresh(Tag::Latest, view.clock().now()).await;
            if !is_known() {
                return Ok(None);
            }
            time::sleep(pause).await;
            match self.fetcher().fetch_anywhere(fetch).await {
                Ok(shared) if !is_denial(&shared.value) => return Ok(Some(shared)),
                Ok(shared) => denials += u32::from(matches!(shared.value, Fetched::Other(_))),
                Err(_) => {}
            }
        }
        self.fetcher().check_place(known.number).await;
        if !is_known() {
            return Ok(None);
        }
        // A failed request says nothing about the data.
        let is_gone = |block: &BlockHash| denials == PAUSES.len() as u32 && self.may_be_pruned(asked, *block);
        let gone = known.block.filter(is_gone);
        self.fetcher().state().uncacheable.note_lacking(fetch, gone);
        if gone.is_some() {
            return Ok(None);
        }
        debug!(what = %fetch, method = asked.request.call().method.as_str(), "upstream lacks a known block, transaction or receipt; answering -32010");
        Err(CallError::Lacking { what: fetch })
    }

    /// Returns whether no endpoint is likely to have this part of a known block again: the block is final and old, and no
    /// endpoint has shown the part. Nothing proves an absence, so this is never so where clients get proved data only.
    fn may_be_pruned(&self, asked: &QueryCall, block: BlockHash) -> bool {
        let view = self.fetcher().view();
        let is_old = |link| view.tracker().is_old_final_block(link, view.clock().now());
        !self.0.is_strict()
            && view.cached_link(block).is_some_and(is_old)
            && !self.fetcher().state().uncacheable.was_shown(asked.query.part, block)
    }
}
