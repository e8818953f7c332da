//! A call that memory can answer, and how its answer is cut out of fetched content.

use bytes::Bytes;

use crate::{
    eth::{Block, BlockHash, BlockNumber, Part, Query, TxPosition},
    proxy::{
        call::request::{ReadCall, Request},
        lookup::{NULL, counted, hashes_only},
        miss::fetcher::Fetched,
    },
    upstream::Call,
    verify::{Content, Verified},
};

/// A call that memory can answer.
#[derive(Debug)]
pub(in crate::proxy) struct Cacheable {
    pub(in crate::proxy) query: Query,
    pub(in crate::proxy) request: Request,
}

// === impl Cacheable ===

impl Cacheable {
    /// The same call for the block with this hash, which its tag means.
    pub(in crate::proxy) fn of_block(&self, hash: BlockHash) -> Self {
        Self { query: self.query.pinned(hash), request: self.request.clone() }
    }

    /// The call, as it is forwarded: as the client wrote it, where its parameters are the node's to refuse.
    pub(in crate::proxy) fn call(&self) -> Call {
        let ReadCall { method, params, query, .. } = self.request.call();
        let is_pinned = *query != Some(Ok(self.query));
        if is_pinned || Query::METHODS.contains(&self.query.method()) {
            return Call::of(self.query);
        }
        Call::new(method.clone(), params.clone())
    }

    /// Returns whether the answer to `fetch` answers the call as it is, whole.
    pub(in crate::proxy) fn takes(&self, fetch: Query) -> bool {
        self.query.part == fetch.part
    }

    /// The number asked for and the block that came for it, if that one has another number.
    pub(in crate::proxy) fn misnumbered(&self, fetched: &Fetched) -> Option<(BlockNumber, BlockHash)> {
        let asked = self.query.number()?;
        let Fetched::Content(content) = fetched else { return None };
        let home = content.named_home().filter(|_| !content.is_single())?;
        (home.number != asked).then_some((asked, home.block))
    }
}

/// The part of content that answers the query; `None` if it does not tell.
pub(in crate::proxy) fn cut(query: Query, content: &Content) -> Option<Bytes> {
    match (content, query.part) {
        (Content::Block(block), Part::Block) => Some(block.full()),
        (Content::Block(block), Part::BlockWithHashes) => Some(hashes_only(block)),
        (Content::Block(block), Part::Transaction) => transaction(block, query.index?),
        (Content::Block(block), Part::TransactionCount) if block.is_proved() => Some(counted(block.len())),
        // How many there are is proved only where there are none.
        (Content::Block(block), Part::UncleCount) if block.is_proved() && block.header().uncles == 0 => {
            Some(counted(0))
        }
        (Content::BlockWithHashes(thin), Part::BlockWithHashes) => Some(thin.bytes()),
        (Content::Receipts(receipts), Part::Receipts) => Some(receipts.all()),
        (Content::Transaction(lone), _) => Some(lone.bytes()),
        (Content::Receipt(lone), _) => Some(lone.bytes()),
        _ => None,
    }
}

/// That there is none at a position is said only by a block that is proved.
fn transaction(block: &Verified<Block>, index: TxPosition) -> Option<Bytes> {
    block.transaction(index).or_else(|| block.is_proved().then_some(NULL))
}
