//! Finds the logs of a range, block by block.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use tower::Service;

use super::{
    cold::{Cold, SearchedLogs, UpstreamSearch, Walked, range},
    found::{FoundLogs, Joined},
    range::{CanonicalRange, RangeBlock},
    search::Searched,
};
use crate::{
    chain::Stamp,
    eth::{At, BlockHash, BlockNumber, LogBlocks, Part, Query, Receipts},
    jsonrpc::Answer,
    proxy::{
        call::{
            outcome::{Answered, LogProof, LogSource, Outcome},
            request::Request,
        },
        error::{CallError, LogLimit},
        miss::content::denies,
        tiers::Asks,
    },
    upstream::is_about_size,
    verify::Verified,
};

/// Most cold blocks of a range that are fetched. A block and its receipts cost 40 compute units at a large provider, a
/// search 60; but receipts serve all later filters, and a search serves one. So two blocks are worth it.
const MAX_WALK: usize = 2;

/// Most cold blocks that are fetched among the newest blocks, which clients poll again and again with many filters; and
/// anywhere if the node refuses to search the range.
const MAX_NEW_WALK: usize = 16;

/// Most cold blocks that are fetched for a proof. They cost up to 400 upstream calls.
const MAX_PROVED_WALK: usize = 200;

/// Number of the newest blocks whose blooms are compared with the logs that the node found.
const NEWEST: u64 = 16;

/// Most cold blocks that are loaded from cache tiers. Loading and proving a block takes milliseconds, so that more of
/// them take longer than a search by the upstream.
const MAX_LOADED: usize = 1000;

/// Number of fetches of one call at a time.
const AT_A_TIME: usize = 8;

/// Number of cached blocks that are searched before another client gets its turn.
const BLOCKS_A_TURN: usize = 256;

/// Number of blocks of a range that cost a client as much as a call.
const BLOCKS_A_CALL: usize = 1000;

/// Result of one plan.
pub(super) enum Attempt {
    Answered(Answered),
    /// The chain changed.
    Changed,
    /// A tag no longer means the block that the plan took for it, because another call resolved it anew.
    Moved,
    /// The upstream does not have this block, although no block left the chain.
    Denied(BlockHash),
    /// The upstream lags behind a block that it searched. The error names this block.
    Lagging(CallError),
    /// The node must answer the call.
    Forward,
}

/// A block of a range.
#[derive(Debug)]
struct Planned {
    number: BlockNumber,
    hash: Option<BlockHash>,
    /// Parent of a block that was fetched for this call, or that only an answer for its number places.
    parent: Option<BlockHash>,
    found: Option<FoundLogs>,
    /// Whether only an answer for its number places the block.
    is_asked: bool,
    /// Whether nodes differ about a log of this block, so that the node must search the range.
    is_disputed: bool,
}

/// A range while its logs are found.
pub(super) struct RangePlan<'a, C> {
    cold: Cold<'a, C>,
    blocks: Vec<Planned>,
    /// The logs that the node found; `None` if it did not search the range.
    searched: Option<SearchedLogs>,
}

/// Result of a step of a plan.
enum Step {
    /// The logs of these blocks are found.
    Found,
    /// Not all blocks can be fetched, the client cannot pay for them, or nodes differ about a log.
    Incomplete,
    /// The node refuses to search so many blocks, or finds too many logs.
    Refused(Answer),
    /// The plan has ended.
    Ended(Attempt),
}

// === impl Step ===

impl Step {
    /// Returns the attempt if the plan has ended.
    fn end(self) -> Option<Attempt> {
        match self {
            Self::Ended(attempt) => Some(attempt),
            Self::Found | Self::Incomplete | Self::Refused(_) => None,
        }
    }
}

// === impl Attempt ===

impl Attempt {
    /// Answers with an answer of the upstream that nothing proves.
    pub(super) fn unproved(answer: Answer) -> Self {
        Self::Answered(Answered::new(answer, Outcome::Logs(LogSource::Forwarded, LogProof::None)))
    }
}

// === impl RangePlan ===

impl<'a, C> RangePlan<'a, C>
where
    C: Service<Request, Response = Answered, Error = CallError, Future: Send> + Clone + Send + Sync + 'static,
{
    /// Plans the search of these blocks.
    pub(super) fn new(cold: Cold<'a, C>, range: CanonicalRange) -> Self {
        let numbers = (range.first.0..).map(BlockNumber);
        let block = |(number, RangeBlock { hash, asked_parent })| Planned {
            number,
            hash,
            parent: asked_parent,
            found: None,
            is_asked: asked_parent.is_some(),
            is_disputed: false,
        };
        Self { cold, blocks: numbers.zip(range.blocks).map(block).collect(), searched: None }
    }

    /// Finds the logs of all blocks. Returns an attempt if the plan fails.
    ///
    /// # Errors
    /// If the upstream fails, a limit is exceeded, or no proof is possible where one is demanded.
    pub(super) async fn find(&mut self, since: Stamp) -> Result<Option<Attempt>, CallError> {
        self.cold.charge(self.blocks.len() / BLOCKS_A_CALL)?;
        self.search().await?;
        self.load(since).await;
        let cold = self.cold();
        if cold.is_empty() {
            return Ok(None);
        }
        let (tools, max) = (self.cold.tools, self.max_walk());
        if cold.len() <= max {
            match self.walk(&cold, since).await? {
                Step::Incomplete => {}
                step => return Ok(step.end()),
            }
        }
        if tools.must_prove() {
            return Err(CallError::Unproved);
        }
        let refusal = match self.forward(since).await? {
            Step::Refused(refusal) => refusal,
            step => return Ok(step.end()),
        };
        if cold.len() > max && cold.len() <= MAX_NEW_WALK {
            match self.walk(&cold, since).await? {
                Step::Incomplete => {}
                step => return Ok(step.end()),
            }
        }
        Ok(Some(Attempt::unproved(refusal)))
    }

    /// Searches the cached content of all blocks, and indexes their logs if necessary.
    ///
    /// # Errors
    /// If the cached blocks alone have too many logs.
    async fn search(&mut self) -> Result<(), CallError> {
        let unindexed = self.search_indexed().await?;
        if !unindexed.is_empty() {
            self.cold.index(unindexed).await;
            self.search_indexed().await?;
        }
        Ok(())
    }

    /// Searches the cached content of the blocks whose logs are not known, and returns the receipts without an index.
    ///
    /// # Errors
    /// If the cached blocks alone have too many logs.
    async fn search_indexed(&mut self) -> Result<Vec<Arc<Verified<Receipts>>>, CallError> {
        let max = self.cold.tools.limits.max_results;
        let first = self.blocks.first().map_or(BlockNumber(0), |block| block.number);
        let unknown = self.blocks.iter().enumerate().filter(|(_, block)| block.found.is_none());
        let unknown: Vec<_> = unknown.filter_map(|(at, block)| Some((at, block.hash?))).collect();
        let mut unindexed = Vec::new();
        for turn in unknown.chunks(BLOCKS_A_TURN) {
            let hashes = turn.iter().map(|(_, hash)| *hash).collect();
            for ((at, _), searched) in turn.iter().zip(self.cold.search.blocks(hashes).await?) {
                let block = &mut self.blocks[*at];
                match searched {
                    Searched::Found(found) => block.found = Some(found),
                    Searched::Unindexed(receipts) => unindexed.push(receipts),
                    Searched::Disputed => block.is_disputed = true,
                    Searched::Cold => {}
                }
            }
            let mut results = 0;
            for (at, Planned { number, found, .. }) in self.blocks.iter().enumerate() {
                results += found.as_ref().map_or(0, |found| found.logs.len());
                if results > max && at > 0 {
                    let (over, last) = (LogLimit::Results(max), BlockNumber(number.0 - 1));
                    return Err(CallError::TooManyLogs { over, first, last });
                }
            }
        }
        Ok(unindexed)
    }

    /// Returns the positions of the blocks whose logs are not known.
    fn cold(&self) -> Vec<usize> {
        let cold = self.blocks.iter().enumerate().filter(|(_, block)| block.found.is_none());
        cold.map(|(position, _)| position).collect()
    }

    /// Returns how many cold blocks of the range may be fetched before the node is asked to search it.
    fn max_walk(&self) -> usize {
        let tools = self.cold.tools;
        let is_new = || {
            let first = self.blocks.iter().find(|block| block.found.is_none());
            first.is_none_or(|first| tools.is_new(first.number))
        };
        match tools.demands_proof() {
            true => MAX_PROVED_WALK,
            false if is_new() => MAX_NEW_WALK,
            false => MAX_WALK,
        }
    }

    /// Loads cold blocks from the cache tiers, until more are missing there than can be fetched.
    async fn load(&mut self, since: Stamp) {
        let max = self.max_walk();
        let (mut loaded, mut missing) = (0, 0);
        for position in self.cold() {
            if loaded == MAX_LOADED || missing > max {
                return;
            }
            match self.loaded(position, since).await {
                Some((hash, found)) => {
                    let block = &mut self.blocks[position];
                    (block.hash, block.found) = (Some(hash), Some(found));
                    loaded += 1;
                }
                None => missing += 1,
            }
        }
    }

    /// Loads a block from the cache tiers, and searches it.
    async fn loaded(&self, position: usize, since: Stamp) -> Option<(BlockHash, FoundLogs)> {
        let tools = self.cold.tools;
        let Planned { number, hash, .. } = self.blocks[position];
        // Tiers have final blocks only.
        if tools.view().tracker().finalized().is_some_and(|(finalized, _)| finalized < number) {
            return None;
        }
        let receipts = Query::new(Part::Receipts, hash.map_or(At::Number(number), At::Hash));
        tools.loader.load(receipts, since, Asks::Sparingly).await?;
        let hash = hash.or_else(|| tools.view().tracker().known_at(number))?;
        match self.cold.searched(hash).await {
            Searched::Found(found) => Some((hash, found)),
            _ => None,
        }
    }

    /// Fetches blocks and their receipts, if the client can pay for them. Those that can be fetched are found, even if
    /// others cannot.
    async fn walk(&mut self, positions: &[usize], since: Stamp) -> Result<Step, CallError> {
        let (cold, blocks) = (&self.cold, &self.blocks);
        let is_disputed = positions.iter().any(|at| blocks[*at].is_disputed);
        if is_disputed || !cold.tools.state().node.has_block_receipts() {
            return Ok(Step::Incomplete);
        }
        // The call itself has paid for the first block.
        match cold.charge(positions.len().saturating_sub(1)) {
            Err(refusal) if cold.tools.must_prove() => return Err(refusal),
            Err(_) => return Ok(Step::Incomplete),
            Ok(()) => {}
        }
        let walks = positions.iter().copied().map(|position| async move {
            let Planned { number, hash, .. } = blocks[position];
            let walked = cold.walk(hash.map_or(At::Number(number), At::Hash)).await?;
            Ok::<_, CallError>((position, walked))
        });
        let walked: Vec<_> = stream::iter(walks).buffer_unordered(AT_A_TIME).try_collect().await?;
        let mut is_complete = true;
        for (position, walked) in walked {
            let block = &mut self.blocks[position];
            match walked {
                Walked::Found { link, .. } if link.is_some_and(|link| link.number != block.number) => {
                    return Ok(Step::Ended(Attempt::Changed));
                }
                Walked::Found { link, home, found } => {
                    block.is_asked |= block.hash.is_none();
                    (block.hash, block.parent) = (Some(home), link.map(|link| link.parent).or(block.parent));
                    block.found = Some(found);
                }
                Walked::Gone => {
                    let hash = block.hash;
                    return self.denied(hash, since).await.map(Step::Ended);
                }
                Walked::Unavailable => is_complete = false,
            }
        }
        Ok(if is_complete { Step::Found } else { Step::Incomplete })
    }

    /// Plans anew after the upstream denied a block of the range, if blocks left the chain. Otherwise the node has pruned
    /// the block, or is on another branch.
    ///
    /// # Errors
    /// If the upstream lags behind the range.
    async fn denied(&self, block: Option<BlockHash>, since: Stamp) -> Result<Attempt, CallError> {
        let tools = self.cold.tools;
        tools.renew().await?;
        if tools.view().tracker().has_left(since) {
            return Ok(Attempt::Changed);
        }
        self.has_reached_the_end().map(|()| block.map_or(Attempt::Forward, Attempt::Denied))
    }

    /// Checks that the upstream shows the last block of the range. A lagging node would leave out the logs of higher
    /// blocks without an error.
    fn has_reached_the_end(&self) -> Result<(), CallError> {
        self.blocks.last().map_or(Ok(()), |last| self.has_reached(last.number))
    }

    fn has_reached(&self, number: BlockNumber) -> Result<(), CallError> {
        let tracker = self.cold.tools.view().tracker();
        match tracker.is_above_shown(number) {
            // No block is known there any more.
            true if tracker.is_above_head(number) => Err(CallError::Changed),
            true => Err(CallError::Lacking { what: Query::new(Part::Block, number) }),
            false => Ok(()),
        }
    }

    /// Checks that the upstream shows the blocks that it searched. Otherwise it may have left out logs. A log of the last
    /// block shows that the node had all of them.
    ///
    /// # Errors
    /// If the upstream lags behind these blocks.
    pub(super) fn has_searched_all(&self) -> Result<(), CallError> {
        match (&self.searched, self.blocks.last()) {
            (Some(searched), Some(last)) if searched.of(last.number).is_empty() => {
                self.has_reached(last.number)
            }
            _ => Ok(()),
        }
    }

    /// Has the upstream search the whole range: parts of it could be of different branches.
    async fn forward(&mut self, since: Stamp) -> Result<Step, CallError> {
        let (searched, last) = match &self.blocks[..] {
            // By its hash, the upstream searches the block of the plan, and no other.
            [Planned { hash: Some(hash), number, .. }] => (LogBlocks::Hash(*hash), *number),
            [first, .., last] => (range(first.number, last.number), last.number),
            [Planned { number, .. }] => (range(*number, *number), *number),
            [] => return Ok(Step::Found),
        };
        self.cold.tools.forwarder.confirm_chain().await?;
        if self.has_reached_the_end().is_err() {
            self.cold.tools.renew().await?;
            match self.has_reached_the_end() {
                Err(CallError::Changed) => return Ok(Step::Ended(Attempt::Changed)),
                reached => reached?,
            }
        }
        match self.cold.forward(searched, Some(last)).await? {
            UpstreamSearch::Found(found) => {
                self.take_in(found);
                Ok(Step::Found)
            }
            UpstreamSearch::Other(answer) => match (searched, answer) {
                // The client did not ask for this hash.
                (LogBlocks::Hash(hash), answer) => {
                    let lacks_it = Some(hash).filter(|_| denies(&answer));
                    self.denied(lacks_it, since).await.map(Step::Ended)
                }
                (LogBlocks::Range(..), Answer::Error(error)) if is_about_size(&error) => {
                    Ok(Step::Refused(Answer::Error(error)))
                }
                // The answer concerns the client's own question.
                (LogBlocks::Range(..), answer) => Ok(Step::Ended(Attempt::unproved(answer))),
            },
        }
    }

    /// Takes in the logs that the upstream found in the range. Blocks in which it found none keep what their receipts show,
    /// unless only an answer for their number places them: the search may be of another branch.
    fn take_in(&mut self, searched: SearchedLogs) {
        let is_single = self.blocks.len() == 1;
        for block in &mut self.blocks {
            let is_unsure = block.is_asked && !is_single;
            block.found.take_if(|_| is_unsure || !searched.of(block.number).is_empty());
            block.hash.take_if(|_| is_unsure);
        }
        self.searched = Some(searched);
    }

    /// Returns whether each block that was fetched, or that only an answer for its number places, is the parent of the next
    /// block of the range, as far as their headers are known. Otherwise the upstream showed blocks of two branches.
    pub(super) fn is_linked(&self) -> bool {
        let view = self.cold.tools.view();
        self.blocks.windows(2).all(|pair| {
            let [below, above] = pair else { return true };
            if below.parent.or(above.parent).is_none() {
                return true;
            }
            let link = || above.hash.and_then(|hash| view.cached_link(hash)).map(|link| link.parent);
            let (Some(parent), Some(below)) = (above.parent.or_else(link), below.hash) else { return true };
            parent == below
        })
    }

    /// If the upstream searched the newest blocks, looks at the head: it shows whether these blocks are on one branch, and
    /// whether the upstream lags. If it does not lag, fetches the newest blocks that should have logs according to their
    /// blooms, but in which it found none: it may have searched before it had them.
    ///
    /// # Errors
    /// If the head cannot be fetched.
    pub(super) async fn confirm(&mut self, since: Stamp) -> Result<Option<Attempt>, CallError> {
        let tools = self.cold.tools;
        let (Some(searched), Some(last)) = (&self.searched, self.blocks.last()) else { return Ok(None) };
        if !tools.is_new(last.number) {
            return Ok(None);
        }
        tools.renew_after(searched.at).await?;
        let head = tools.view().tracker().head();
        let Some(head) = head.filter(|_| self.has_searched_all().is_ok()) else { return Ok(None) };
        let is_missing = |block: &Planned| {
            block.number.0 + NEWEST > head.number.0
                && block.found.is_none()
                && !block.is_disputed
                && searched.of(block.number).is_empty()
                && block.hash.is_some_and(|hash| self.cold.search.is_in_bloom(hash))
        };
        let missing = self.blocks.iter().enumerate().filter(|(_, block)| is_missing(block));
        let missing: Vec<usize> = missing.map(|(position, _)| position).collect();
        // Without the receipts of a block, the search counts.
        Ok(self.walk(&missing, since).await?.end())
    }

    /// Returns whether the upstream searched the range.
    pub(super) fn is_forwarded(&self) -> bool {
        self.searched.is_some()
    }

    /// Returns the blocks on which the answer depends.
    pub(super) fn named(&self) -> impl Iterator<Item = (BlockNumber, BlockHash)> {
        let of_range = self.blocks.iter().filter_map(|block| Some((block.number, block.hash?)));
        // The logs of a block are neighbours.
        let searched = self.searched.iter();
        let blocks = searched.flat_map(|found| found.logs.chunk_by(|one, other| one.0 == other.0));
        let of_logs = blocks.filter_map(|logs| logs.first()).map(|(home, _)| (home.number, home.block));
        of_range.chain(of_logs)
    }

    /// Joins the logs of all blocks.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) async fn join(self) -> Result<Answered, CallError> {
        let tools = self.cold.tools;
        let first = self.blocks.first().map_or(BlockNumber(0), |block| block.number);
        let mut joined = Joined::new(self.cold.tools.limits, first);
        for Planned { number, found, .. } in self.blocks {
            let found = match (found, &self.searched) {
                (Some(found), _) => found,
                (None, Some(searched)) => {
                    FoundLogs::forwarded(searched.of(number).iter().map(|(_, log)| log.clone()).collect())
                }
                // Every block is found or searched; nothing else may be answered.
                (None, None) => return Err(CallError::Changed),
            };
            joined.add(number, found)?;
        }
        tools.answer(joined).await
    }
}
