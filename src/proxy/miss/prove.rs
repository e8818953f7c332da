//! Gets the proof of what cannot be proved alone.
//!
//! A transaction or a receipt that came alone, and a list of hashes, say nothing for themselves: it is
//! their whole block that proves them, and all its receipts. Where everything must be proved these are
//! fetched, once a block, and the answer is cut out of them.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    chain::Stamp,
    eth::{Block, BlockHash, Home, Part, Place, Query, Receipts, TxHash},
    proxy::{
        call::cacheable::cut,
        lookup::hashes_only,
        miss::fetcher::{Fetched, Fetcher},
    },
    upstream::UpstreamError,
    verify::{Content, Level, Verified},
};

// === impl Fetcher ===

impl Fetcher {
    /// The proved answer to a call for which this content was fetched; `None` if it cannot be proved.
    pub(in crate::proxy) async fn proved(
        self: &Arc<Self>,
        query: Query,
        content: &Content,
        arrival: Stamp,
        canonical: Option<Stamp>,
    ) -> Result<Option<Bytes>, UpstreamError> {
        Ok(match content {
            Content::Block(block) if block.is_proved() => cut(query, content),
            Content::BlockWithHashes(thin) if thin.is_proved() => Some(thin.bytes()),
            Content::BlockWithHashes(thin) => {
                let block = self.proved_block(thin.hash(), arrival).await?;
                block
                    .filter(|block| block.header().number == thin.header().number)
                    .map(|block| hashes_only(&block))
            }
            Content::Transaction(lone) => match lone.place() {
                // Pending: it is in no block, and its hash is all there is to it.
                None => (lone.level() >= Level::Partial && !lone.is_half_placed()).then(|| lone.bytes()),
                Some(place) => match self.proved_place(place, lone.hash(), arrival, canonical).await? {
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
            Content::Receipt(lone) => {
                let place = lone.place();
                if self.proved_place(place, lone.hash(), arrival, canonical).await?.is_none() {
                    return Ok(None);
                }
                let receipts = self.proved_receipts(place.block, None, arrival).await?;
                receipts
                    .filter(|receipts| receipts.transaction_hash(place.index) == Some(lone.hash()))
                    .and_then(|receipts| receipts.receipt(place.index))
            }
            Content::Block(_) => None,
        })
    }

    /// The block that something which came alone names, if that is proved and has it there. What is said of
    /// the chain by that is believed from then on.
    async fn proved_place(
        self: &Arc<Self>,
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
        self.observe_place(hash, place, canonical).await;
        Ok(Some(block))
    }

    async fn proved_block(
        self: &Arc<Self>,
        hash: BlockHash,
        arrival: Stamp,
    ) -> Result<Option<Arc<Verified<Block>>>, UpstreamError> {
        if let Some(block) = self.cache.block(hash).filter(|block| block.is_proved()) {
            return Ok(Some(block));
        }
        Ok(match self.fetch(Query::new(Part::Block, hash), arrival).await?.value {
            Fetched::Content(Content::Block(block)) if block.is_proved() => Some(block),
            _ => None,
        })
    }

    /// The receipts of a block: those in memory, those that came already, or those that come now.
    async fn proved_receipts(
        self: &Arc<Self>,
        hash: BlockHash,
        came: Option<Arc<Verified<Receipts>>>,
        arrival: Stamp,
    ) -> Result<Option<Arc<Verified<Receipts>>>, UpstreamError> {
        if let Some(receipts) = self.cache.receipts(hash).filter(|receipts| receipts.is_proved()) {
            return Ok(Some(receipts));
        }
        let Some(block) = self.proved_block(hash, arrival).await? else { return Ok(None) };
        if came.is_none() && !self.has_block_receipts() {
            return Ok(None);
        }
        let receipts = match came {
            Some(receipts) => receipts,
            None => match self.fetch(Query::new(Part::Receipts, hash), arrival).await?.value {
                Fetched::Content(Content::Receipts(receipts)) => receipts,
                _ => return Ok(None),
            },
        };
        if receipts.is_proved() {
            return Ok(Some(receipts));
        }
        // They came before their block did, or it has been forgotten since.
        let proved = self.verifier.prove_receipts((*receipts).clone(), block).await;
        Ok(match proved {
            Ok(receipts) => Some(self.keep_receipts(receipts.into()).await),
            Err(_) => None,
        })
    }
}
