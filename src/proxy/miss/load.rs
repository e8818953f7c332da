//! Loads entries from cache tiers.

use std::{sync::Arc, time::Duration};

use super::store::Store;
use crate::{
    cache::{
        Tiers,
        tier::{ChainKey, Part, TierKind},
    },
    chain::Stamp,
    eth::{self, At, Block, BlockHash, Query, Receipts, TxHash},
    proxy::{
        call::single_flight::Coalesce,
        head::{Canon, SharedView},
        lookup::CacheState,
        parts::ProxyParts,
        tiers::{Asks, Links, TierSync},
    },
    timeout::timeout,
    upstream::is_development,
    verify::{Content, Doubt, TierVerifier, Verified, Verifier},
};

/// Longest time for the proof of a loaded entry; after that, the proxy asks the upstream.
const PROOF: Duration = Duration::from_secs(2);

/// Loads entries from tiers.
#[derive(Debug)]
pub(crate) struct Loader {
    sync: Arc<TierSync>,
    tiers: Tiers,
    links: Links,
    view: Arc<SharedView>,
    state: Arc<CacheState>,
    store: Store,
    verifier: Verifier,
    /// Chain id that the operator demands.
    chain_id: Option<u64>,
    flights: Coalesce<(Query, Asks), Option<Option<TierKind>>>,
    names: [Arc<str>; TierKind::ALL.len()],
}

// === impl Loader ===

impl Loader {
    pub(crate) fn new(
        sync: Arc<TierSync>,
        canon: Canon,
        state: Arc<CacheState>,
        store: Store,
        chain_id: Option<u64>,
        parts: &ProxyParts,
    ) -> Self {
        let ProxyParts { tiers, verifier, .. } = parts.clone();
        Self {
            sync,
            view: canon.view().clone(),
            links: Links::new(tiers.clone(), canon),
            tiers,
            state,
            store,
            verifier,
            chain_id,
            flights: Coalesce::default(),
            names: TierKind::ALL.map(|kind| kind.as_str().into()),
        }
    }

    /// Loads the entry for `query` from a tier and returns that tier. The inner value is `None` if the content was in
    /// memory already, and the tier showed only which block is at the number, or which block has the transaction.
    pub(crate) async fn load(
        self: &Arc<Self>,
        query: Query,
        arrival: Stamp,
        asks: Asks,
    ) -> Option<Option<TierKind>> {
        if self.tiers.is_empty() {
            return None;
        }
        let whole = query.whole()?;
        let this = self.clone();
        let load = move || async move { this.load_whole(whole, asks).await };
        // Join a load of any age: final content does not change.
        let landed = self.flights.run((whole, asks), arrival, |_| true, load).await;
        landed.ok()?.value
    }

    async fn load_whole(self: &Arc<Self>, whole: Query, asks: Asks) -> Option<Option<TierKind>> {
        let generation = self.view.generation();
        let chain = self.chain(asks).await?;
        let hash = match whole.at {
            At::Hash(hash) => hash,
            At::Number(number) => self.links.hash_at(chain, number, asks).await?,
            At::Tx(transaction) => {
                let home = self.tiers.home_of(chain, transaction).await?;
                let hash = self.links.hash_at(chain, home.number, asks).await?;
                (hash == home.block).then_some(hash)?
            }
            At::Tag(_) => return None,
        };
        let (block, mut tier) = self.load_block(chain, hash, generation, asks).await?;
        if tier.is_some() {
            // Copies it to the tiers before that one, if the block is known to be final.
            self.sync.write_back().write_block(&block, tier);
        }
        if let eth::Part::Receipts | eth::Part::Receipt = whole.part {
            tier = self.load_receipts(chain, &block, generation, asks).await?.or(tier);
        }
        Some(tier)
    }

    /// Returns the block, and the tier that it was loaded from, if it was not in memory.
    async fn load_block(
        self: &Arc<Self>,
        chain: ChainKey,
        hash: BlockHash,
        generation: u64,
        asks: Asks,
    ) -> Option<(Arc<Verified<Block>>, Option<TierKind>)> {
        if let Some(block) = self.good_block(hash, asks) {
            return Some((block, None));
        }
        let tiers = &self.tiers;
        let mut wrong = None;
        loop {
            let found = tiers.get(chain, Part::Block, hash, wrong).await?;
            let text = found.text.clone();
            let restored = self.verifier_of(found.tier).block(text, hash);
            match timeout(PROOF, restored).await.unwrap_or(Err(Doubt::Unsure)) {
                Ok(_) if self.view.generation() != generation => return None,
                Ok(block) => {
                    return Some((self.store.insert_block(block.into()).await, Some(found.tier)));
                }
                Err(Doubt::Wrong) => tiers.reject(chain, Part::Block, hash, found.tier),
                Err(Doubt::Unsure) => return None,
            }
            wrong = Some(found.tier);
        }
    }

    /// Loads the receipts and returns the tier that they came from; `Some(None)` if they were in memory.
    async fn load_receipts(
        self: &Arc<Self>,
        chain: ChainKey,
        block: &Arc<Verified<Block>>,
        generation: u64,
        asks: Asks,
    ) -> Option<Option<TierKind>> {
        let hash = block.hash();
        if self.good_receipts(hash, asks).is_some() {
            return Some(None);
        }
        let tiers = &self.tiers;
        let mut wrong = None;
        loop {
            let found = tiers.get(chain, Part::Receipts, hash, wrong).await?;
            let text = found.text.clone();
            let restored = self.verifier_of(found.tier).receipts(text, block.clone());
            match timeout(PROOF, restored).await.unwrap_or(Err(Doubt::Unsure)) {
                Ok(_) if self.view.generation() != generation => return None,
                Ok(receipts) => {
                    let receipts = self.store.insert_receipts(receipts.into()).await;
                    self.sync.write_back().write_receipts(&receipts, Some(found.tier));
                    return Some(Some(found.tier));
                }
                Err(Doubt::Wrong) => tiers.reject(chain, Part::Receipts, hash, found.tier),
                Err(Doubt::Unsure) => return None,
            }
            wrong = Some(found.tier);
        }
    }

    /// Returns the block from memory. While an upstream answers, skips an unproved block that was fetched before it
    /// was final: a tier or the upstream may have a better copy.
    fn good_block(&self, hash: BlockHash, asks: Asks) -> Option<Arc<Verified<Block>>> {
        self.state.cache.block(hash).filter(|block| block.lasts() || asks == Asks::Never)
    }

    /// Like [`good_block`](Self::good_block), for the receipts.
    fn good_receipts(&self, hash: BlockHash, asks: Asks) -> Option<Arc<Verified<Receipts>>> {
        self.state.cache.receipts(hash).filter(|receipts| receipts.lasts() || asks == Asks::Never)
    }

    /// Returns the chain whose entries to load: the adopted chain or, until an upstream has shown its chain, the one
    /// of the last run.
    async fn chain(&self, asks: Asks) -> Option<ChainKey> {
        if let Some(chain) = self.sync.chain() {
            return Some(chain);
        }
        let (tiers, chain_id) = (&self.tiers, &self.chain_id);
        if asks != Asks::Never || self.view.has_chain() {
            return None;
        }
        let chain = tiers.last_chain().await?;
        let is_it = chain_id.is_none_or(|id| id == chain.id) && !is_development(chain.id);
        (is_it && self.sync.assume_chain(chain)).then_some(chain)
    }

    /// Removes the entries of a block from tiers. Returns the tiers that may still have them.
    pub(crate) async fn remove_from_tiers(&self, block: BlockHash) -> Vec<TierKind> {
        match self.chain(Asks::Never).await {
            Some(chain) => self.tiers.remove(chain, block).await,
            None => Vec::new(),
        }
    }

    /// Returns the blocks where tiers would look for this transaction, and the tiers that could not answer.
    pub(crate) async fn homes_in_tiers(&self, transaction: TxHash) -> (Vec<BlockHash>, Vec<TierKind>) {
        let Some(chain) = self.chain(Asks::Never).await else { return Default::default() };
        self.tiers.homes_of(chain, transaction).await
    }

    /// Returns the tier that content was loaded from.
    pub(crate) fn tier_of(&self, content: &Content) -> Option<TierKind> {
        let origin = content.origin()?;
        // Compared by pointer: an endpoint may have the same name.
        TierKind::ALL.into_iter().find(|kind| Arc::ptr_eq(&origin.endpoint, self.name(*kind)))
    }

    fn verifier_of(&self, tier: TierKind) -> TierVerifier<'_> {
        TierVerifier::new(&self.verifier, self.name(tier))
    }

    fn name(&self, tier: TierKind) -> &Arc<str> {
        &self.names[tier as usize]
    }
}
