//! Fetches or forwards the blocks of a range that are not cached.

use std::sync::Arc;

use bytes::Bytes;
use tower::Service;

use super::{
    found::FoundLogs,
    search::{Search, Searched},
    tools::LogTools,
};
use crate::{
    chain::{Link, Stamp},
    eth::{At, Block, BlockHash, BlockNumber, Home, Log, LogBlocks, LogsCall, Part, Query, Receipts},
    jsonrpc::Answer,
    proxy::{
        call::{
            outcome::{Answered, LogProof, LogSource, Outcome},
            request::Request,
            slice::EMPTY_LIST,
        },
        error::CallError,
        miss::fetcher::FoundByNode,
    },
    verify::{Demand, Kind, Verified},
};

/// The cold blocks of one call.
#[derive(Debug)]
pub(super) struct Cold<'a, C> {
    pub(super) content: &'a C,
    pub(super) tools: &'a LogTools,
    pub(super) request: &'a Request,
    pub(super) call: &'a LogsCall,
    pub(super) search: &'a Arc<Search>,
}

/// Result of fetching a block and its receipts.
#[derive(Debug)]
pub(super) enum Walked {
    /// The logs that match.
    Found { link: Option<Link>, home: BlockHash, found: FoundLogs },
    /// The upstream does not have the block.
    Gone,
    /// The upstream has no receipts of the block, or nodes differ about its logs: the upstream must search.
    Unavailable,
}

/// Logs that the upstream found, in order.
#[derive(Debug)]
pub(super) struct SearchedLogs {
    /// The logs, with the block that each names.
    pub(super) logs: Vec<(Home, Bytes)>,
    /// Time at which they had arrived.
    pub(super) at: Stamp,
}

/// Answer of the upstream for some blocks.
#[derive(Debug)]
pub(super) enum UpstreamSearch {
    Found(SearchedLogs),
    /// An error of the node, or an answer that failed a check and that `verify.on_mismatch` lets pass.
    Other(Answer),
}

// === impl SearchedLogs ===

impl SearchedLogs {
    /// Returns the logs of the block with this number.
    pub(super) fn of(&self, number: BlockNumber) -> &[(Home, Bytes)] {
        let from = self.logs.partition_point(|(home, _)| home.number < number);
        let to = self.logs.partition_point(|(home, _)| home.number <= number);
        &self.logs[from..to]
    }
}

// === impl Cold ===

impl<C> Cold<'_, C>
where
    C: Service<Request, Response = Answered, Error = CallError, Future: Send> + Clone + Send + Sync + 'static,
{
    /// Fetches a block and its receipts, which enter the cache, and searches them. The block proves the receipts, and
    /// its bloom often makes them unnecessary. If nothing can be proved, a known block is not fetched.
    pub(super) async fn walk(&self, at: At) -> Result<Walked, CallError> {
        let is_provable = self.tools.verifier().demands(Kind::Header) != Demand::Structural;
        let mut block = None;
        if is_provable || !matches!(at, At::Hash(_)) {
            // Only the full block proves its receipts.
            match self.ask(Query::new(Part::Block, at)).await? {
                Some(Answered { answer, .. }) if answer.is_null() => return Ok(Walked::Gone),
                Some(Answered { answer: Answer::Result(bytes), .. }) => match Block::read(bytes) {
                    Ok((read, _)) => block = Some(read),
                    Err(_) => return Ok(Walked::Unavailable),
                },
                Some(_) | None => return Ok(Walked::Unavailable),
            }
        }
        let link = block.as_ref().map(|block| Link::from(block.header()));
        let hash = match (at, link) {
            (At::Hash(hash), None) => hash,
            (At::Hash(hash), Some(link)) if link.hash == hash => hash,
            (At::Number(number), Some(link)) if link.number == number => link.hash,
            // A block that failed a check, and that `verify.on_mismatch` lets pass.
            _ => return Ok(Walked::Unavailable),
        };
        let walked = |found: FoundLogs| {
            // Receipts that failed a check keep the source of an answer that nothing proves.
            let source = found.source.max(LogSource::Fetched);
            Walked::Found { link, home: hash, found: FoundLogs { source, ..found } }
        };
        match self.searched(hash).await {
            Searched::Found(found) => return Ok(walked(found)),
            Searched::Disputed => return Ok(Walked::Unavailable),
            Searched::Unindexed(_) | Searched::Cold => {}
        }
        if !self.tools.state().node.has_block_receipts() {
            return Ok(Walked::Unavailable);
        }
        let answered = self.ask(Query::new(Part::Receipts, hash)).await?;
        let Some(Answered { answer: Answer::Result(receipts), outcome, .. }) = answered else {
            return Ok(Walked::Unavailable);
        };
        let count = block.map(|block| block.len());
        let found = match self.searched(hash).await {
            Searched::Found(found) => Some(found),
            Searched::Disputed => None,
            // The receipts did not enter the cache. An empty list may be a lost one.
            Searched::Unindexed(_) | Searched::Cold if receipts == EMPTY_LIST && count != Some(0) => None,
            Searched::Unindexed(_) | Searched::Cold => self.search_uncached(receipts, hash, count, outcome),
        };
        Ok(found.map_or(Walked::Unavailable, walked))
    }

    /// Searches the cached content of a block, and indexes its logs before if necessary.
    pub(super) async fn searched(&self, hash: BlockHash) -> Searched {
        match self.search.block(hash) {
            Searched::Unindexed(receipts) => self.index(vec![receipts]).await,
            searched => return searched,
        }
        self.search.block(hash)
    }

    /// Indexes the logs of receipts, with a permit of the client.
    pub(super) async fn index(&self, receipts: Vec<Arc<Verified<Receipts>>>) {
        let client = self.request.packet().caller().client;
        self.tools.concurrency.within(client, Box::pin(self.tools.index(receipts))).await;
    }

    /// Searches receipts that are not in the cache any more, or never entered it. The latter may have failed a check.
    fn search_uncached(
        &self,
        bytes: Bytes,
        hash: BlockHash,
        count: Option<usize>,
        outcome: Outcome,
    ) -> Option<FoundLogs> {
        let (receipts, _) = Receipts::read(bytes).ok()?;
        let is_other = receipts.named_home().is_some_and(|home| home.block != hash);
        if is_other || count.is_some_and(|count| count != receipts.len()) {
            return None;
        }
        let logs = self.search.receipts(&receipts)?;
        let source = LogSource::Fetched;
        Some(match outcome {
            // Where clients get proved content only, the content has been proved.
            _ if self.tools.must_prove() => FoundLogs { logs, source, proof: LogProof::Proved },
            Outcome::Miss | Outcome::Joined | Outcome::Bypass | Outcome::Logs(..) => {
                FoundLogs::forwarded(logs)
            }
            _ => FoundLogs { logs, source, proof: LogProof::Structural },
        })
    }

    /// Has an endpoint search these blocks, one that has reached `last`, the number of the last of them, if known.
    pub(super) async fn forward(
        &self,
        blocks: LogBlocks,
        last: Option<BlockNumber>,
    ) -> Result<UpstreamSearch, CallError> {
        let packet = self.request.packet();
        let (client, arrival) = (packet.caller().client, packet.arrival(self.tools.view().clock()));
        let answering = self.tools.fetcher.share_logs(self.call.with_blocks(blocks), last, arrival);
        let answered = self.tools.concurrency.within(client, Box::pin(answering)).await;
        let FoundByNode { answer, is_checked, at } = answered.map_err(CallError::Upstream)?;
        if let Answer::Result(bytes) = &answer
            && is_checked
            && let Ok(logs) = Log::read_all(bytes)
            // A check that did not end in time shows nothing.
            && logs.is_sorted_by_key(|log| log.home.number)
        {
            let logs = logs.into_iter().map(|log| (log.home, bytes.slice(log.place))).collect();
            return Ok(UpstreamSearch::Found(SearchedLogs { logs, at }));
        }
        Ok(UpstreamSearch::Other(answer))
    }

    /// Asks for content, from the cache or the upstream. Returns `None` if that fails, but the upstream may still find
    /// logs.
    async fn ask(&self, query: Query) -> Result<Option<Answered>, CallError> {
        let request = self.request.on_behalf((query.method(), query.params()));
        match self.content.clone().call(request).await {
            Err(CallError::Lacking { .. }) => Ok(None),
            Err(CallError::Upstream(_)) if !self.tools.must_prove() => Ok(None),
            answered => answered.map(Some),
        }
    }

    /// Charges further upstream calls of this call to the client, as if they were calls of their own in a batch.
    ///
    /// # Errors
    /// If the client cannot pay for all.
    pub(super) fn charge(&self, calls: usize) -> Result<(), CallError> {
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        let caller = self.request.packet().caller();
        if calls == 0 { Ok(()) } else { caller.charge(calls).map_err(|wait| CallError::RateLimited { wait }) }
    }
}

/// Returns the blocks from `first` to `last` as the blocks of a call.
pub(super) fn range(first: BlockNumber, last: BlockNumber) -> LogBlocks {
    LogBlocks::Range(At::Number(first), At::Number(last))
}
