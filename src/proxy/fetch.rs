//! Fetches content, checks it, keeps it, and tells the view what it showed.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use bytes::Bytes;
use tracing::warn;

use super::{
    Metrics,
    absence::Absences,
    coalesce::{Coalesce, Landed},
    view::View,
};
use crate::{
    cache::Cache,
    chain::{Link, Lookup, Stamp},
    eth::{
        Block, BlockHash, BlockNumber, Header, LoneReceipt, LoneTransaction, Receipts, Tag, ThinBlock,
        TxHash, TxPosition,
    },
    jsonrpc::{Answer, MethodName, Params},
    proxy::Identity,
    upstream::{Call, Upstream, UpstreamError},
    verify::{self, AskedBlock, Failure, Verified},
};

/// What a node says of a method it does not have.
const METHOD_NOT_FOUND: i64 = -32601;

/// What can be fetched. Equal ones share a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fetch {
    Block(BlockHash),
    BlockAt(BlockNumber),
    Thin(BlockHash),
    ThinAt(BlockNumber),
    Receipts(BlockHash),
    ReceiptsAt(BlockNumber),
    Transaction(TxHash),
    TransactionIn(BlockHash, TxPosition),
    TransactionAt(BlockNumber, TxPosition),
    Receipt(TxHash),
}

/// What a fetch brought.
#[derive(Clone, Debug)]
pub(super) enum Fetched {
    Block(Arc<Verified<Block>>),
    Thin(Arc<Verified<ThinBlock>>),
    Receipts(Arc<Verified<Receipts>>),
    Transaction(Arc<Verified<LoneTransaction>>),
    Receipt(Arc<Verified<LoneReceipt>>),
    /// `null`, an error of the node's, or what may not be kept: handed on as it is.
    Other(Answer),
}

/// The fetching side of the proxy.
#[derive(Debug)]
pub(super) struct Fetcher {
    pub(super) view: Arc<View>,
    pub(super) cache: Cache,
    pub(super) upstream: Upstream,
    pub(super) identity: Identity,
    pub(super) metrics: Metrics,
    flights: Coalesce<Fetch, Result<Fetched, UpstreamError>>,
    /// The node does not know `eth_getBlockReceipts`.
    lacks_block_receipts: AtomicBool,
    pub(super) absences: Absences,
}

// === impl Fetch ===

impl Fetch {
    fn call(self) -> Call {
        let (method, params): (&'static str, String) = match self {
            Self::Block(hash) => ("eth_getBlockByHash", format!(r#"["{hash}",true]"#)),
            Self::BlockAt(number) => ("eth_getBlockByNumber", format!(r#"["{number}",true]"#)),
            Self::Thin(hash) => ("eth_getBlockByHash", format!(r#"["{hash}",false]"#)),
            Self::ThinAt(number) => ("eth_getBlockByNumber", format!(r#"["{number}",false]"#)),
            Self::Receipts(hash) => ("eth_getBlockReceipts", format!(r#"["{hash}"]"#)),
            Self::ReceiptsAt(number) => ("eth_getBlockReceipts", format!(r#"["{number}"]"#)),
            Self::Transaction(hash) => ("eth_getTransactionByHash", format!(r#"["{hash}"]"#)),
            Self::TransactionIn(block, index) => {
                ("eth_getTransactionByBlockHashAndIndex", format!(r#"["{block}","{index}"]"#))
            }
            Self::TransactionAt(number, index) => {
                ("eth_getTransactionByBlockNumberAndIndex", format!(r#"["{number}","{index}"]"#))
            }
            Self::Receipt(hash) => ("eth_getTransactionReceipt", format!(r#"["{hash}"]"#)),
        };
        Call::new(MethodName::from(method), Params::from_own(params))
    }

    /// Does the answer depend on nothing but the content? Then it does not matter when it was sent.
    fn is_timeless(self) -> bool {
        matches!(self, Self::Block(_) | Self::Thin(_) | Self::Receipts(_) | Self::TransactionIn(..))
    }
}

// === impl Fetched ===

impl Fetched {
    /// Nothing speaks against it, and nothing for it: it is handed on.
    fn unprovable(result: &Bytes) -> Self {
        Self::Other(Answer::Result(result.clone()))
    }
}

/// A block without transactions has no receipts either; and neither has a node that lost them.
fn is_empty_list(result: &[u8]) -> bool {
    result.first() == Some(&b'[') && result[1..].trim_ascii_start().first() == Some(&b']')
}

// === impl Fetcher ===

impl Fetcher {
    pub(super) fn new(
        view: Arc<View>,
        cache: Cache,
        upstream: Upstream,
        identity: Identity,
        metrics: Metrics,
    ) -> Self {
        let (flights, lacks_block_receipts) = (Coalesce::default(), AtomicBool::new(false));
        let absences = Absences::new();
        Self { view, cache, upstream, identity, metrics, flights, lacks_block_receipts, absences }
    }

    /// Fetches, or joins somebody who does and has begun recently enough for this arrival.
    pub(super) async fn fetch(
        self: &Arc<Self>,
        fetch: Fetch,
        arrival: Stamp,
    ) -> Result<Landed<Fetched>, UpstreamError> {
        let landed = self.fly(fetch, arrival, fetch.is_timeless()).await?;
        // Content does not depend on when it was sent; that there is none does.
        let staleness = self.view.tracker().rules().max_staleness;
        let aged = fetch.is_timeless() && landed.joined && !landed.sent.serves(arrival, staleness);
        if aged && matches!(landed.value, Fetched::Other(_)) {
            return self.fly(fetch, arrival, false).await;
        }
        Ok(landed)
    }

    async fn fly(
        self: &Arc<Self>,
        fetch: Fetch,
        arrival: Stamp,
        whenever_sent: bool,
    ) -> Result<Landed<Fetched>, UpstreamError> {
        let now = self.view.clock().now();
        let this = self.clone();
        let may_join = |sent| {
            if whenever_sent { !self.view.is_outwritten(sent) } else { self.view.may_join(sent, arrival) }
        };
        let landed = self.flights.run(fetch, now, may_join, move || this.carry_out(fetch, now)).await;
        let Landed { value, joined, sent } = landed.map_err(|_| UpstreamError::Abandoned)?;
        Ok(Landed { value: value?, joined, sent })
    }

    /// Is what was fetched in memory now?
    pub(super) fn is_kept(&self, fetched: &Fetched) -> bool {
        match fetched {
            Fetched::Block(block) => self.cache.block(block.hash()).is_some(),
            Fetched::Thin(thin) => {
                self.cache.thin(thin.hash()).is_some() || self.cache.block(thin.hash()).is_some()
            }
            Fetched::Receipts(receipts) => {
                receipts.block().is_some_and(|block| self.cache.receipts(block).is_some())
            }
            Fetched::Transaction(lone) => lone
                .place()
                .is_some_and(|place| self.cache.lone_transaction(place.block, place.index).is_some()),
            Fetched::Receipt(lone) => {
                let place = lone.place();
                self.cache.lone_receipt(place.block, place.index).is_some()
            }
            Fetched::Other(_) => false,
        }
    }

    /// Can a block's receipts be had at once?
    pub(super) fn has_block_receipts(&self) -> bool {
        !self.lacks_block_receipts.load(Relaxed)
    }

    async fn carry_out(self: Arc<Self>, fetch: Fetch, sent: Stamp) -> Result<Fetched, UpstreamError> {
        let (head, generation) = (self.view.tracker().head(), self.view.generation());
        let answer = self.upstream.call(fetch.call()).await.inspect_err(|error| {
            if error.lost_contact() {
                self.identity.doubt();
            }
        })?;
        let result = match &answer {
            Answer::Result(result) if result != "null" => result,
            Answer::Error(error) if matches!(fetch, Fetch::Receipts(_) | Fetch::ReceiptsAt(_)) => {
                self.note_lack(error);
                return Ok(Fetched::Other(answer));
            }
            Answer::Result(_) => {
                if let (Fetch::Receipt(transaction), Some(head)) = (fetch, head) {
                    self.absences.note(transaction, head.hash, sent, &self.view.tracker());
                }
                return Ok(Fetched::Other(answer));
            }
            Answer::Error(_) => return Ok(Fetched::Other(answer)),
        };
        if self.view.generation() != generation {
            // Of a chain that is no more: whoever asked is told, and nobody else.
            return Ok(Fetched::Other(answer));
        }
        match self.keep(fetch, result, sent).await {
            Ok(fetched) => Ok(fetched),
            Err(failure) => {
                // The one line that an operator needs: what, and what is wrong with it.
                warn!(asked = ?fetch, %failure, "an answer cannot be right; it is handed on and not kept");
                self.metrics.mismatch(failure.as_str());
                Ok(Fetched::Other(answer))
            }
        }
    }

    async fn keep(&self, fetch: Fetch, result: &Bytes, sent: Stamp) -> Result<Fetched, Failure> {
        match fetch {
            Fetch::Block(hash) => {
                let block = verify::block(result, AskedBlock::ByHash(hash))?;
                let block = self.cache.insert_block(block);
                let link = link(block.header());
                self.view.change(|tracker| tracker.observe_block(link));
                Ok(Fetched::Block(block))
            }
            Fetch::BlockAt(number) => {
                let block = verify::block(result, AskedBlock::ByNumber(number))?;
                let link = link(block.header());
                let believed = self.observe(link.number, link.hash, Some(link.parent), sent).await;
                Ok(Fetched::Block(if believed { self.cache.insert_block(block) } else { Arc::new(block) }))
            }
            Fetch::Thin(hash) => {
                let thin = verify::thin_block(result, AskedBlock::ByHash(hash))?;
                let link = link(thin.header());
                self.view.change(|tracker| tracker.observe_block(link));
                Ok(Fetched::Thin(self.cache.insert_thin(thin)))
            }
            Fetch::ThinAt(number) => {
                let thin = verify::thin_block(result, AskedBlock::ByNumber(number))?;
                let link = link(thin.header());
                let believed = self.observe(link.number, link.hash, Some(link.parent), sent).await;
                Ok(Fetched::Thin(if believed { self.cache.insert_thin(thin) } else { Arc::new(thin) }))
            }
            Fetch::Receipts(hash) => {
                let held = self.cache.block(hash);
                let number = match &held {
                    Some(block) => block.header().number,
                    None if is_empty_list(result) => return Ok(Fetched::unprovable(result)),
                    None => verify::receipts_number(result)?,
                };
                let receipts = verify::receipts(result, hash, number, held.as_deref())?;
                Ok(Fetched::Receipts(self.cache.insert_receipts(hash, number, receipts)))
            }
            Fetch::ReceiptsAt(number) => {
                let hash = if is_empty_list(result) {
                    // Of which block they are, only the view can tell.
                    match self.view.tracker().lookup(number, sent) {
                        Lookup::Final(hash) | Lookup::Tracked { hash, .. } | Lookup::Asked(hash)
                            if self.cache.block(hash).is_some() =>
                        {
                            hash
                        }
                        _ => return Ok(Fetched::unprovable(result)),
                    }
                } else {
                    verify::receipts_block(result)?
                };
                let held = self.cache.block(hash);
                let receipts = verify::receipts(result, hash, number, held.as_deref())?;
                Ok(Fetched::Receipts(if self.observe(number, hash, None, sent).await {
                    self.cache.insert_receipts(hash, number, receipts)
                } else {
                    Arc::new(receipts)
                }))
            }
            Fetch::Transaction(hash) => {
                let transaction = verify::lone_transaction(result, hash)?;
                self.keep_transaction(transaction, Some(sent)).await
            }
            Fetch::TransactionIn(block, index) => {
                let transaction = verify::lone_transaction_at(result, AskedBlock::ByHash(block), index)?;
                self.keep_transaction(transaction, None).await
            }
            Fetch::TransactionAt(number, index) => {
                let transaction = verify::lone_transaction_at(result, AskedBlock::ByNumber(number), index)?;
                self.keep_transaction(transaction, Some(sent)).await
            }
            Fetch::Receipt(hash) => {
                let receipt = verify::lone_receipt(result, hash)?;
                let place = receipt.place();
                let answer = Arc::new(receipt.clone());
                if self.observe(place.number, place.block, None, sent).await {
                    self.cache.insert_receipt(receipt);
                }
                Ok(Fetched::Receipt(answer))
            }
        }
    }

    /// Keeps a transaction under its block, if it is in one. `sent` is given where the answer says
    /// what is canonical: asked for by block hash, it does not.
    async fn keep_transaction(
        &self,
        transaction: Verified<LoneTransaction>,
        sent: Option<Stamp>,
    ) -> Result<Fetched, Failure> {
        let answer = Arc::new(transaction.clone());
        if let Some(place) = transaction.place() {
            let believed = match sent {
                Some(sent) => self.observe(place.number, place.block, None, sent).await,
                None => true,
            };
            if believed {
                self.cache.insert_transaction(transaction);
            }
        }
        Ok(Fetched::Transaction(answer))
    }

    /// Tells the view which block stands at a number. If that contradicts what is tracked, the view
    /// is refreshed; tells whether it agrees in the end.
    async fn observe(
        &self,
        number: BlockNumber,
        hash: BlockHash,
        parent: Option<BlockHash>,
        sent: Stamp,
    ) -> bool {
        let observe =
            || self.view.change(|tracker| tracker.observe_number(number, hash, parent, sent)).is_ok();
        if observe() {
            return true;
        }
        let now = self.view.clock().now();
        if self.view.refresh(Tag::Latest, now).await.is_ok() && observe() {
            return true;
        }
        self.metrics.contrary();
        false
    }

    fn note_lack(&self, error: &[u8]) {
        #[derive(serde::Deserialize)]
        struct Coded {
            code: i64,
        }
        let lacks = serde_json::from_slice::<Coded>(error).is_ok_and(|error| error.code == METHOD_NOT_FOUND);
        if lacks && !self.lacks_block_receipts.swap(true, Relaxed) {
            warn!("the upstream has no eth_getBlockReceipts: receipts are fetched one by one");
        }
    }
}

fn link(header: &Header) -> Link {
    Link { number: header.number, hash: header.hash, parent: header.parent }
}
