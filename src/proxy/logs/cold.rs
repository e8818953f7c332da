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
    chain::Link,
    eth::{At, Block, BlockHash, BlockNumber, Home, Log, LogBlocks, LogsCall, Part, Query, Receipts},
    jsonrpc::Answer,
    proxy::{
        call::{
            outcome::{Answered, LogProof, LogSource, Outcome},
            request::Request,
            slice::EMPTY_LIST,
        },
        error::CallError,
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
    pub(super) search: &'a Search<'a>,
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

/// Answer of the upstream for a run of blocks.
#[derive(Debug)]
pub(super) enum UpstreamSearch {
    /// The logs that the upstream found, with the block that each names.
    Found(Vec<(Home, Bytes)>),
    /// An error of the node, or an answer that failed a check and that `verify.on_mismatch` lets pass.
    Other(Answer),
}

// === impl Cold ===

impl<C> Cold<'_, C>
where
    C: Service<Request, Response = Answered, Error = CallError, Future: Send> + Clone + Send + Sync + 'static,
{
    /// Fetches a block and its receipts, which enter the cache, and searches them. The block proves the receipts, and
    /// its bloom often makes them unnecessary. If nothing can be proved, a known block is not fetched.
    pub(super) async fn walk(&self, at: At) -> Result<Walked, CallError> {
        let is_provable = self.tools.verifier.demands(Kind::Header) != Demand::Structural;
        let mut block = None;
        if is_provable || !matches!(at, At::Hash(_)) {
            // Only the full block proves its receipts.
            match self.ask(Query::new(Part::Block, at)).await?.answer {
                answer if answer.is_null() => return Ok(Walked::Gone),
                Answer::Result(bytes) => match Block::read(bytes) {
                    Ok((read, _)) => block = Some(read),
                    Err(_) => return Ok(Walked::Unavailable),
                },
                Answer::Error(_) => return Ok(Walked::Unavailable),
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
        if !self.tools.state.node.has_block_receipts() {
            return Ok(Walked::Unavailable);
        }
        let (receipts, outcome) = match self.ask(Query::new(Part::Receipts, hash)).await {
            Ok(Answered { answer: Answer::Result(receipts), outcome, .. }) => (receipts, outcome),
            // The upstream may still find logs, although it does not have all receipts.
            Ok(_) | Err(CallError::Lacking { .. }) => return Ok(Walked::Unavailable),
            Err(error) => return Err(error),
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
        let run = self.call.with_blocks(blocks);
        let client = self.request.packet().caller().client;
        let answering = Box::pin(self.tools.fetcher.find_logs(&run, last));
        let answered = self.tools.concurrency.within(client, answering).await;
        let (answer, is_true) = answered.map_err(CallError::Upstream)?;
        let Answer::Result(bytes) = &answer else { return Ok(UpstreamSearch::Other(answer)) };
        if !is_true {
            return Ok(UpstreamSearch::Other(answer));
        }
        let Ok(logs) = Log::read_all(bytes) else { return Ok(UpstreamSearch::Other(answer)) };
        Ok(UpstreamSearch::Found(logs.into_iter().map(|log| (log.home, bytes.slice(log.place))).collect()))
    }

    /// Asks for content, from the cache or the upstream.
    async fn ask(&self, query: Query) -> Result<Answered, CallError> {
        let request = self.request.on_behalf((query.method(), query.params()));
        self.content.clone().call(request).await
    }

    /// Charges a further upstream call of this call to the client, as if it were a call of its own in a batch.
    ///
    /// # Errors
    /// If the client exceeds its rate limit.
    pub(super) fn charge(&self) -> Result<(), CallError> {
        self.request.packet().caller().charge(1).map_err(|wait| CallError::RateLimited { wait })
    }
}

/// Returns the blocks from `first` to `last` as the blocks of a call.
pub(super) fn run(first: BlockNumber, last: BlockNumber) -> LogBlocks {
    LogBlocks::Range(At::Number(first), At::Number(last))
}
