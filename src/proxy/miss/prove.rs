//! Proves content that contains no proof of its own.
//!
//! Only the whole block, and all its receipts, prove a single transaction or receipt, or a list of hashes. Where proof
//! is demanded, the prover fetches them, once per block, and slices the answer out of them.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    fetcher::{Fetched, Fetcher},
    store::Store,
};
use crate::{
    chain::Stamp,
    eth::{Block, BlockHash, Home, Part, Place, Query, Receipts, TxHash},
    proxy::{
        call::slice::{hashes_only, slice},
        error::CallError,
        lookup::CacheState,
    },
    upstream::UpstreamError,
    verify::{Content, Demand, Kind, Level, Verified, Verifier},
};

/// Fetches the blocks and receipts that prove an answer. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Prover {
    fetcher: Arc<Fetcher>,
    state: Arc<CacheState>,
    store: Store,
    verifier: Verifier,
}

// === impl Prover ===

impl Prover {
    pub(crate) fn new(
        fetcher: Arc<Fetcher>,
        state: Arc<CacheState>,
        store: Store,
        verifier: Verifier,
    ) -> Self {
        Self { fetcher, state, store, verifier }
    }

    /// Returns whether clients get an error instead of a wrong or unproved answer.
    pub(super) fn rejects(&self) -> bool {
        self.verifier.rejects()
    }

    /// Returns whether the operator wants proved answers only, even if parts of this chain cannot be proved.
    pub(super) fn is_strict(&self) -> bool {
        self.rejects() && self.verifier.config().level == Demand::Full
    }

    /// Returns whether the answer to this query must be proved.
    pub(super) fn demands_proof(&self, query: Query) -> bool {
        self.verifier.demands_proof(Kind::of(query.part))
    }

    /// Returns the proved answer. Without a proof, returns the unproved answer, or an error if `on_mismatch` is
    /// `reject`.
    pub(super) async fn prove(
        &self,
        query: Query,
        content: &Content,
        arrival: Stamp,
        canonical: Option<Stamp>,
    ) -> Result<Option<Bytes>, CallError> {
        let proved = self.proved(query, content, arrival, canonical).await;
        self.judge(query, content, proved)
    }

    pub(super) fn judge(
        &self,
        query: Query,
        content: &Content,
        proved: Result<Option<Bytes>, UpstreamError>,
    ) -> Result<Option<Bytes>, CallError> {
        let rejects = self.verifier.rejects();
        match proved {
            Ok(Some(proved)) => Ok(Some(proved)),
            Ok(None) if rejects => Err(CallError::Unproved),
            Err(error) if rejects => Err(CallError::Upstream(error)),
            Ok(None) | Err(_) => Ok(slice(query, content)),
        }
    }

    /// Returns the proved answer to a query from the content fetched for it; `None` if there is no proof.
    pub(super) async fn proved(
        &self,
        query: Query,
        content: &Content,
        arrival: Stamp,
        canonical: Option<Stamp>,
    ) -> Result<Option<Bytes>, UpstreamError> {
        Ok(match content {
            Content::Block(block) if block.is_proved() => slice(query, content),
            Content::BlockWithHashes(with_hashes) if with_hashes.is_proved() => Some(with_hashes.bytes()),
            Content::BlockWithHashes(with_hashes) => {
                let block = self.proved_block(with_hashes.hash(), arrival).await?;
                block
                    .filter(|block| block.header().number == with_hashes.header().number)
                    .map(|block| hashes_only(&block))
            }
            Content::Transaction(single) => match single.place() {
                // Pending: it is in no block, and its hash is the only proof.
                None => {
                    (single.level() >= Level::Partial && !single.is_half_placed()).then(|| single.bytes())
                }
                Some(place) => match self.proved_place(place, single.hash(), arrival, canonical).await? {
                    Some(block) => block.transaction(place.index),
                    None => None,
                },
            },
            Content::Receipts(receipts) if receipts.is_proved() => Some(receipts.all()),
            Content::Receipts(receipts) => match receipts.named_home() {
                Some(Home { block, .. }) => self
                    .proved_receipts(block, Some(receipts.clone()), arrival)
                    .await?
                    .map(|receipts| receipts.all()),
                None => None,
            },
            Content::Receipt(single) => {
                let place = single.place();
                if self.proved_place(place, single.hash(), arrival, canonical).await?.is_none() {
                    return Ok(None);
                }
                let receipts = self.proved_receipts(place.block, None, arrival).await?;
                receipts
                    .filter(|receipts| receipts.transaction_hash(place.index) == Some(single.hash()))
                    .and_then(|receipts| receipts.receipt(place.index))
            }
            Content::Block(_) => None,
        })
    }

    /// Returns the block that single content names, if the block is proved and contains it at that index. Tells the
    /// view the position.
    async fn proved_place(
        &self,
        place: Place,
        hash: TxHash,
        arrival: Stamp,
        canonical: Option<Stamp>,
    ) -> Result<Option<Arc<Verified<Block>>>, UpstreamError> {
        let Some(block) = self.proved_block(place.block, arrival).await? else { return Ok(None) };
        let header = block.header();
        if header.number != place.number || block.transaction_hash(place.index) != Some(hash) {
            return Ok(None);
        }
        self.fetcher.observe_place(hash, place, canonical).await;
        Ok(Some(block))
    }

    async fn proved_block(
        &self,
        hash: BlockHash,
        arrival: Stamp,
    ) -> Result<Option<Arc<Verified<Block>>>, UpstreamError> {
        if let Some(block) = self.state.cache.block(hash).filter(|block| block.is_proved()) {
            return Ok(Some(block));
        }
        Ok(match self.fetcher.fetch(Query::new(Part::Block, hash), arrival).await?.value {
            Fetched::Content(Content::Block(block)) if block.is_proved() => Some(block),
            _ => None,
        })
    }

    /// Returns the proved receipts of a block: from the cache, from `came`, or from an upstream.
    async fn proved_receipts(
        &self,
        hash: BlockHash,
        came: Option<Arc<Verified<Receipts>>>,
        arrival: Stamp,
    ) -> Result<Option<Arc<Verified<Receipts>>>, UpstreamError> {
        if let Some(receipts) = self.state.cache.receipts(hash).filter(|receipts| receipts.is_proved()) {
            return Ok(Some(receipts));
        }
        let Some(block) = self.proved_block(hash, arrival).await? else { return Ok(None) };
        if came.is_none() && !self.state.node.has_block_receipts() {
            return Ok(None);
        }
        let receipts = match came {
            Some(receipts) => receipts,
            None => match self.fetcher.fetch(Query::new(Part::Receipts, hash), arrival).await?.value {
                Fetched::Content(Content::Receipts(receipts)) => receipts,
                _ => return Ok(None),
            },
        };
        if receipts.is_proved() {
            return Ok(Some(receipts));
        }
        // The receipts arrived before their block, or the block was evicted since.
        let proved = self.verifier.prove_receipts((*receipts).clone(), block).await;
        Ok(match proved {
            Ok(receipts) => Some(self.store.store_receipts(receipts.into()).await),
            Err(_) => None,
        })
    }
}
