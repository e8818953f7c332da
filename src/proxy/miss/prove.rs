//! Proves content that contains no proof of its own.
//!
//! Only the whole block, and all its receipts, prove a single transaction or receipt, or a list of hashes. Where proof
//! is demanded, the prover fetches them, once per block, and slices the answer out of them.

use std::sync::Arc;

use bytes::Bytes;

use super::fetcher::{Fetched, Fetcher};
use crate::{
    chain::Stamp,
    eth::{Block, BlockHash, Part, Place, Query, Receipts, TxHash},
    proxy::{call::slice::slice, error::CallError},
    upstream::UpstreamError,
    verify::{Content, Demand, Kind, Level, Verified},
};

/// Fetches the blocks and receipts that prove an answer. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Prover {
    fetcher: Arc<Fetcher>,
}

// === impl Prover ===

impl Prover {
    pub(crate) fn new(fetcher: Arc<Fetcher>) -> Self {
        Self { fetcher }
    }

    pub(super) fn fetcher(&self) -> &Arc<Fetcher> {
        &self.fetcher
    }

    /// Returns whether clients get an error instead of a wrong or unproved answer.
    pub(super) fn rejects(&self) -> bool {
        self.fetcher.verifier().rejects()
    }

    /// Returns whether the operator wants proved answers only, even if parts of this chain cannot be proved.
    pub(super) fn is_strict(&self) -> bool {
        self.rejects() && self.fetcher.verifier().config().level == Demand::Full
    }

    /// Returns whether the answer to this query must be proved.
    pub(super) fn demands_proof(&self, query: Query) -> bool {
        self.fetcher.verifier().demands_proof(Kind::of(query.part))
    }

    /// Returns the proved answer. Without a proof, returns the unproved answer, or an error if `on_mismatch` is
    /// `reject`. `sent` is set if the content says which block is canonical.
    pub(super) async fn prove(
        &self,
        query: Query,
        content: &Content,
        arrival: Stamp,
        sent: Option<Stamp>,
    ) -> Result<Option<Bytes>, CallError> {
        let proved = self.proved(query, content, arrival, sent).await;
        self.judge(query, content, proved)
    }

    pub(super) fn judge(
        &self,
        query: Query,
        content: &Content,
        proved: Result<Option<Bytes>, UpstreamError>,
    ) -> Result<Option<Bytes>, CallError> {
        match proved {
            Ok(Some(proved)) => Ok(Some(proved)),
            Ok(None) if self.rejects() => Err(CallError::Unproved),
            Err(error) if self.rejects() => Err(CallError::Upstream(error)),
            Ok(None) | Err(_) => Ok(slice(query, content)),
        }
    }

    /// Returns the proved answer; `None` if there is no proof.
    pub(super) async fn proved(
        &self,
        query: Query,
        content: &Content,
        arrival: Stamp,
        sent: Option<Stamp>,
    ) -> Result<Option<Bytes>, UpstreamError> {
        match content {
            // Pending: it is in no block, and its hash is the only proof.
            Content::Transaction(single) if single.place().is_none() => {
                let is_proved = single.level() >= Level::Partial && !single.is_half_placed();
                Ok(is_proved.then(|| single.bytes()))
            }
            content if content.level() == Level::Proved => Ok(slice(query, content)),
            content => self.by_block(query, content, arrival, sent).await,
        }
    }

    /// Returns the answer out of the proved block that the content names, and its proved receipts; `None` if they do not
    /// contain it.
    async fn by_block(
        &self,
        query: Query,
        content: &Content,
        arrival: Stamp,
        sent: Option<Stamp>,
    ) -> Result<Option<Bytes>, UpstreamError> {
        let single: Option<(Place, TxHash)> = match content {
            Content::Transaction(single) => single.place().map(|place| (place, single.hash())),
            Content::Receipt(single) => Some((single.place(), single.hash())),
            Content::Block(_) => return Ok(None),
            Content::BlockWithHashes(_) | Content::Receipts(_) => None,
        };
        let Some(home) = content.named_home() else { return Ok(None) };
        let Some(block) = self.block(home.block, arrival).await? else { return Ok(None) };
        let is_there = |(place, hash): (Place, TxHash)| block.transaction_hash(place.index) == Some(hash);
        if !single.is_none_or(is_there) {
            return Ok(None);
        }
        if let Some((place, hash)) = single {
            self.fetcher.canon().learn_place(hash, place, sent).await;
        }
        let index = single.map(|(place, _)| place.index);
        let (Part::Receipts | Part::Receipt) = query.part else {
            return Ok(slice(Query { index: index.or(query.index), ..query }, &Content::Block(block)));
        };
        let Some(receipts) = self.receipts(home.block, content, block, arrival).await? else {
            return Ok(None);
        };
        let is_its =
            |hash| single.is_some_and(|(place, _)| receipts.transaction_hash(place.index) == Some(hash));
        Ok(match (query.part, single) {
            (Part::Receipt, Some((place, hash))) if is_its(hash) => receipts.receipt(place.index),
            (Part::Receipts, _) => Some(receipts.all()),
            _ => None,
        })
    }

    async fn block(
        &self,
        hash: BlockHash,
        arrival: Stamp,
    ) -> Result<Option<Arc<Verified<Block>>>, UpstreamError> {
        let cached = self.fetcher.state().cache.block(hash);
        if let Some(block) = cached.filter(|block| block.is_proved()) {
            return Ok(Some(block));
        }
        Ok(match self.fetcher.fetch(Query::new(Part::Block, hash), arrival).await?.value {
            Fetched::Content(Content::Block(block)) if block.is_proved() => Some(block),
            _ => None,
        })
    }

    /// Returns the proved receipts of a block: from the cache, from `content`, or from an upstream.
    async fn receipts(
        &self,
        hash: BlockHash,
        content: &Content,
        block: Arc<Verified<Block>>,
        arrival: Stamp,
    ) -> Result<Option<Arc<Verified<Receipts>>>, UpstreamError> {
        let cached = self.fetcher.state().cache.receipts(hash);
        if let Some(receipts) = cached.filter(|receipts| receipts.is_proved()) {
            return Ok(Some(receipts));
        }
        let receipts = match content {
            Content::Receipts(receipts) => receipts.clone(),
            _ if !self.fetcher.state().node.has_block_receipts() => return Ok(None),
            _ => match self.fetcher.fetch(Query::new(Part::Receipts, hash), arrival).await?.value {
                Fetched::Content(Content::Receipts(receipts)) => receipts,
                _ => return Ok(None),
            },
        };
        if receipts.is_proved() {
            return Ok(Some(receipts));
        }
        // The receipts arrived before their block, or the block was evicted since.
        Ok(match self.fetcher.verifier().prove_receipts((*receipts).clone(), block).await {
            Ok(receipts) => Some(self.fetcher.store().store_receipts(receipts.into()).await),
            Err(_) => None,
        })
    }
}
