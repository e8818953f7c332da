//! Loads entries from cache tiers.

use std::{sync::Arc, time::Duration};

use super::store::Store;
use crate::{
    cache::{
        Accept, Tiers,
        tier::{ChainKey, Part, TierKind},
    },
    chain::{Link, Lookup, Stamp},
    eth::{self, At, Block, BlockHash, BlockNumber, Query, Receipts, TxHash},
    proxy::{
        call::single_flight::Coalesce,
        head::{HeadTracker, SharedView},
        lookup::CacheState,
        metrics::Metrics,
        parts::ProxyParts,
        tiers::TierSync,
    },
    timeout::timeout,
    upstream::is_development,
    verify::{Content, Doubt, TierVerifier, Verified, Verifier},
};

/// Whether an upstream answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum UpstreamState {
    Reachable,
    /// No upstream answers: unconfirmed tiers may be used.
    Unreachable,
}

/// Longest time for the proof of a loaded entry; after that, the proxy asks the upstream.
const PROOF: Duration = Duration::from_secs(2);

/// Loads entries from tiers.
#[derive(Debug)]
pub(crate) struct Loader {
    sync: Arc<TierSync>,
    tiers: Tiers,
    head: Arc<HeadTracker>,
    view: Arc<SharedView>,
    state: Arc<CacheState>,
    store: Store,
    verifier: Verifier,
    metrics: Metrics,
    /// Chain id that the operator demands.
    chain_id: Option<u64>,
    flights: Coalesce<(Query, UpstreamState), Option<Option<TierKind>>>,
    names: [Arc<str>; TierKind::ALL.len()],
}

// === impl Loader ===

impl Loader {
    pub(crate) fn new(
        sync: Arc<TierSync>,
        head: Arc<HeadTracker>,
        state: Arc<CacheState>,
        store: Store,
        chain_id: Option<u64>,
        parts: &ProxyParts,
    ) -> Self {
        let ProxyParts { tiers, verifier, metrics, .. } = parts.clone();
        Self {
            sync,
            tiers,
            view: head.view().clone(),
            head,
            state,
            store,
            verifier,
            metrics,
            chain_id,
            flights: Coalesce::default(),
            names: TierKind::ALL.map(|kind| kind.as_str().into()),
        }
    }

    /// Loads the entry for `query` from a tier and returns that tier. The inner value is `None` if the content was in
    /// memory already, and only its block number had to be loaded.
    pub(crate) async fn load(
        self: &Arc<Self>,
        query: Query,
        arrival: Stamp,
        upstreams: UpstreamState,
    ) -> Option<Option<TierKind>> {
        if self.tiers.is_empty() {
            return None;
        }
        let whole = query.whole()?;
        let this = self.clone();
        let load = move || async move { this.load_whole(whole, upstreams).await };
        // Join a load of any age: final content does not change.
        let landed = self.flights.run((whole, upstreams), arrival, |_| true, load).await;
        landed.ok()?.value
    }

    async fn load_whole(
        self: &Arc<Self>,
        whole: Query,
        upstreams: UpstreamState,
    ) -> Option<Option<TierKind>> {
        let generation = self.view.generation();
        let chain = self.chain(upstreams).await?;
        let (at, hash) = match whole.at {
            At::Hash(hash) => (None, hash),
            At::Number(number) => {
                let (hash, asked) = self.final_hash(chain, number, upstreams).await?;
                (Some((number, asked)), hash)
            }
            At::Tx(transaction) => {
                let number = self.tiers.place_of(chain, transaction).await?;
                let (hash, asked) = self.final_hash(chain, number, upstreams).await?;
                (Some((number, asked)), hash)
            }
            At::Tag(_) => return None,
        };
        let (block, mut tier) = self.load_block(chain, hash, generation, upstreams).await?;
        if let Some((number, asked)) = at {
            self.observe(number, &block, asked)?;
        }
        if tier.is_some() {
            // Write it to the other tiers only now that the block is known to be final.
            self.sync.write_back().write_block(&block, tier);
        }
        if let eth::Part::Receipts | eth::Part::Receipt = whole.part {
            tier = self.load_receipts(chain, &block, generation, upstreams).await?.or(tier);
        }
        Some(tier)
    }

    /// Tells the view the number of a loaded block; `None` if the block has another number, or the view disagrees.
    /// Has no effect if the view was reset since `asked`.
    fn observe(&self, number: BlockNumber, block: &Verified<Block>, asked: Stamp) -> Option<()> {
        let header = block.header();
        if header.number != number {
            return None;
        }
        let link = Link::from(header);
        let observed = self.view.learn(|tracker, _| tracker.restore_number(link, asked));
        observed.inspect_err(|_| self.metrics.contrary()).ok()
    }

    /// Returns the block, and the tier that it was loaded from, if it was not in memory.
    async fn load_block(
        self: &Arc<Self>,
        chain: ChainKey,
        hash: BlockHash,
        generation: u64,
        upstreams: UpstreamState,
    ) -> Option<(Arc<Verified<Block>>, Option<TierKind>)> {
        if let Some(block) = self.good_block(hash, upstreams) {
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
        upstreams: UpstreamState,
    ) -> Option<Option<TierKind>> {
        let hash = block.hash();
        if self.good_receipts(hash, upstreams).is_some() {
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
    fn good_block(&self, hash: BlockHash, upstreams: UpstreamState) -> Option<Arc<Verified<Block>>> {
        self.state.cache.block(hash).filter(|block| block.lasts() || upstreams == UpstreamState::Unreachable)
    }

    /// Like [`good_block`](Self::good_block), for the receipts.
    fn good_receipts(&self, hash: BlockHash, upstreams: UpstreamState) -> Option<Arc<Verified<Receipts>>> {
        self.state
            .cache
            .receipts(hash)
            .filter(|receipts| receipts.lasts() || upstreams == UpstreamState::Unreachable)
    }

    /// Returns the final hash at this number, and when it was looked up.
    async fn final_hash(
        self: &Arc<Self>,
        chain: ChainKey,
        number: BlockNumber,
        upstreams: UpstreamState,
    ) -> Option<(BlockHash, Stamp)> {
        let now = self.view.clock().now();
        if let Lookup::Final(hash) = self.view.tracker().lookup(number, now) {
            return Some((hash, now));
        }
        if upstreams == UpstreamState::Unreachable {
            if !self.view.has_chain() {
                self.assume_finality(chain).await?;
            }
            return self.hash_in_tiers(chain, number).await;
        }
        self.head.establish_finality(now).await.ok()?;
        if let Some(told) = self.hash_in_tiers(chain, number).await {
            return Some(told);
        }
        if !self.view.tracker().is_final(number) {
            return None;
        }
        // Confirm the other tiers only now, so that confirmed ones need not wait for them.
        self.sync.confirm().await;
        self.hash_in_tiers(chain, number).await
    }

    /// Returns the hash at a finalized number from the index of tiers, and when it was looked up. Unconfirmed tiers
    /// answer only while no upstream has answered since the start.
    async fn hash_in_tiers(&self, chain: ChainKey, number: BlockNumber) -> Option<(BlockHash, Stamp)> {
        let asked = self.view.clock().now();
        {
            let tracker = self.view.tracker();
            if tracker.is_suspended() || !tracker.is_final(number) {
                return None;
            }
        }
        let accept = if self.view.has_chain() { Accept::Confirmed } else { Accept::Any };
        self.tiers.hash_at(chain, number, accept).await.map(|hash| (hash, asked))
    }

    /// Assumes the finalized block of the last run while no upstream has answered since the start. The first upstream
    /// that answers ends the assumption.
    async fn assume_finality(&self, chain: ChainKey) -> Option<()> {
        if self.view.tracker().finalized().is_none() {
            let now = self.view.clock().now();
            let (number, hash) = self.tiers.finalized(chain).await?;
            // Skipped if an upstream has answered meanwhile.
            self.view.change(|tracker| {
                if tracker.counts(now) {
                    tracker.restore_finality(number, hash, now);
                }
            });
        }
        Some(())
    }

    /// Returns the chain whose entries to load: the adopted chain or, until an upstream has shown its chain, the one
    /// of the last run.
    async fn chain(&self, upstreams: UpstreamState) -> Option<ChainKey> {
        if let Some(chain) = self.sync.chain() {
            return Some(chain);
        }
        let (tiers, chain_id) = (&self.tiers, &self.chain_id);
        if upstreams == UpstreamState::Reachable || self.view.has_chain() {
            return None;
        }
        let chain = tiers.last_chain().await?;
        let is_it = chain_id.is_none_or(|id| id == chain.id) && !is_development(chain.id);
        (is_it && self.sync.assume_chain(chain)).then_some(chain)
    }

    /// Removes the entries of a block from tiers. Returns the tiers that may still have them.
    pub(crate) async fn remove_from_tiers(&self, block: BlockHash) -> Vec<TierKind> {
        match self.chain(UpstreamState::Unreachable).await {
            Some(chain) => self.tiers.remove(chain, block).await,
            None => Vec::new(),
        }
    }

    /// Returns the blocks where tiers would look for this transaction, and the tiers that could not answer.
    pub(crate) async fn homes_in_tiers(&self, transaction: TxHash) -> (Vec<BlockHash>, Vec<TierKind>) {
        let Some(chain) = self.chain(UpstreamState::Unreachable).await else { return Default::default() };
        let tiers = &self.tiers;
        let (numbers, unsure) = tiers.places_of(chain, transaction).await;
        let mut homes = Vec::new();
        for number in numbers {
            let known = self.view.tracker().lookup(number, self.view.clock().now());
            homes.extend(match known {
                Lookup::Final(hash) => Some(hash),
                _ => tiers.hash_at(chain, number, Accept::Any).await,
            });
        }
        (homes, unsure)
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
