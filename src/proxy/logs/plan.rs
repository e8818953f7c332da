//! Finds the logs of a range, block by block.

use std::{collections::HashMap, ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::{task, time::Instant};
use tower::Service;

use super::{
    cold::{Cold, UpstreamSearch, Walked, run},
    found::{FoundLogs, Joined},
    range::{CanonicalRange, RangeBlock},
    search::Searched,
};
use crate::{
    chain::Stamp,
    eth::{At, BlockHash, BlockNumber, Home, LogBlocks, Part, Query, Receipts},
    jsonrpc::Answer,
    proxy::{
        call::{
            outcome::{Answered, LogProof, LogSource, Outcome},
            request::Request,
        },
        error::{CallError, LogLimit},
        miss::{fetch_answer::denies, load::UpstreamState},
    },
    verify::Verified,
};

/// Longest run of cold blocks whose receipts are fetched. A block and its receipts cost 40 compute units at a large
/// provider, a search 60; but receipts serve all later filters, and a search serves one. So two blocks are worth it.
const MAX_WALK: usize = 2;

/// Number of cold runs that are fetched or searched one by one. If the cold blocks are more scattered, one search of the
/// whole span costs less.
const MAX_RUNS: usize = 8;

/// Number of cold blocks that are fetched for a proof. They cost up to 400 upstream calls.
const MAX_PROVED: usize = 200;

/// Number of cold blocks that are loaded from cache tiers. Loading and proving a block takes milliseconds, so that more
/// of them take longer than a search by the upstream.
const MAX_LOADED: usize = 1000;

/// Number of fetches and searches of one call at a time.
const AT_A_TIME: usize = 8;

/// Time after which other tasks of the same thread get a turn. Most blocks take a microsecond; a filter whose values end
/// like those of many logs takes a hundred times as long.
const STRETCH: Duration = Duration::from_micros(200);

/// Number of cached blocks that are searched between two looks at the clock.
const AT_A_STRETCH: usize = 8;

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
    /// Parent of a block that was fetched for this call.
    parent: Option<BlockHash>,
    found: Option<FoundLogs>,
    /// Whether only an answer for its number places the block.
    is_asked: bool,
    /// Whether nodes differ about a log of this block, so that the node must search it.
    is_disputed: bool,
}

/// A range while its logs are found.
pub(super) struct RangePlan<'a, C> {
    cold: Cold<'a, C>,
    blocks: Vec<Planned>,
    /// Runs that the upstream searched.
    forwarded: Vec<ForwardedRun>,
}

/// A run that the upstream searched. It may contain blocks whose logs were found otherwise.
struct ForwardedRun {
    positions: Range<usize>,
    /// The logs that the upstream found, with the block that each names.
    found: Vec<(Home, Bytes)>,
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
        let block = |(number, RangeBlock { hash, is_asked })| Planned {
            number,
            hash,
            parent: None,
            found: None,
            is_asked,
            is_disputed: false,
        };
        Self { cold, blocks: numbers.zip(range.blocks).map(block).collect(), forwarded: Vec::new() }
    }

    /// Finds the logs of all blocks. Returns an attempt if the plan fails.
    ///
    /// # Errors
    /// If the upstream fails, a limit is exceeded, or no proof is possible where one is demanded.
    pub(super) async fn find(&mut self, since: Stamp) -> Result<Option<Attempt>, CallError> {
        self.search().await?;
        self.load(since).await;
        let tools = self.cold.tools;
        let runs = self.cold_runs();
        let count: usize = runs.iter().map(Range::len).sum();
        if count == 0 {
            return Ok(None);
        }
        let can_walk = tools.state.node.has_block_receipts();
        let walks_all = can_walk && tools.demands_proof() && count <= MAX_PROVED;
        if tools.must_prove() && !walks_all {
            return Err(CallError::Unproved);
        }
        let is_short = |run: &Range<usize>| run.len() <= MAX_WALK && runs.len() <= MAX_RUNS;
        let is_disputed = |run: &Range<usize>| self.blocks[run.clone()].iter().any(|block| block.is_disputed);
        let walks = |run: &&Range<usize>| can_walk && !is_disputed(run) && (walks_all || is_short(run));
        let walked: Vec<usize> = runs.iter().filter(walks).cloned().flatten().collect();
        let mut searched: Vec<Range<usize>> = runs.iter().filter(|run| !walks(run)).cloned().collect();
        if let Some(attempt) = self.walk(walked, &mut searched, since).await? {
            return Ok(Some(attempt));
        }
        self.forward(searched, since).await
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
        let (cold, limits) = (&self.cold, self.cold.tools.limits);
        let first = self.blocks.first().map_or(BlockNumber(0), |block| block.number);
        let (mut unindexed, mut results) = (Vec::new(), 0);
        let mut begun = Instant::now();
        for (at, block) in self.blocks.iter_mut().enumerate() {
            match block.hash.filter(|_| block.found.is_none()).map(|hash| cold.search.block(hash)) {
                Some(Searched::Found(found)) => block.found = Some(found),
                Some(Searched::Unindexed(receipts)) => unindexed.push(receipts),
                Some(Searched::Disputed) => block.is_disputed = true,
                Some(Searched::Cold) | None => {}
            }
            results += block.found.as_ref().map_or(0, |found| found.logs.len());
            if results > limits.max_results && at > 0 {
                let (over, last) = (LogLimit::Results(limits.max_results), BlockNumber(block.number.0 - 1));
                return Err(CallError::TooManyLogs { over, first, last });
            }
            if at % AT_A_STRETCH == AT_A_STRETCH - 1 && begun.elapsed() >= STRETCH {
                task::yield_now().await;
                begun = Instant::now();
            }
        }
        Ok(unindexed)
    }

    /// Returns the runs of blocks whose logs are not known.
    fn cold_runs(&self) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (at, _) in self.blocks.iter().enumerate().filter(|(_, block)| block.found.is_none()) {
            match runs.last_mut() {
                Some(run) if run.end == at => run.end += 1,
                _ => runs.push(at..at + 1),
            }
        }
        runs
    }

    /// Loads the first blocks of long cold runs from the cache tiers, up to the first block that no tier has.
    async fn load(&mut self, since: Stamp) {
        let tools = self.cold.tools;
        let mut loaded = 0;
        for run in self.cold_runs().into_iter().filter(|run| run.len() > MAX_WALK).take(MAX_RUNS) {
            for position in run {
                let Planned { number, hash, .. } = self.blocks[position];
                let receipts = Query::new(Part::Receipts, hash.map_or(At::Number(number), At::Hash));
                if loaded == MAX_LOADED
                    || tools.loader.load(receipts, since, UpstreamState::Reachable).await.is_none()
                {
                    break;
                }
                loaded += 1;
                let Some(hash) = hash.or_else(|| tools.view.tracker().known_at(number)) else { break };
                let Searched::Found(found) = self.cold.searched(hash).await else { break };
                let block = &mut self.blocks[position];
                (block.hash, block.found) = (Some(hash), Some(found));
            }
        }
    }

    /// Fetches blocks and their receipts. Adds the blocks that the upstream must search to `searched`.
    async fn walk(
        &mut self,
        walked: Vec<usize>,
        searched: &mut Vec<Range<usize>>,
        since: Stamp,
    ) -> Result<Option<Attempt>, CallError> {
        // The call itself has paid for the first block. If the client cannot pay for all others, those that it has paid
        // for enter the cache, so that a later call has fewer to pay for.
        let unpaid = (1..walked.len()).find_map(|paid| Some((paid, self.cold.charge().err()?)));
        let paid = unpaid.as_ref().map_or(walked.len(), |(paid, _)| *paid);
        let (cold, blocks) = (&self.cold, &self.blocks);
        let walks = walked.into_iter().take(paid).map(|position| async move {
            let Planned { number, hash, .. } = blocks[position];
            let walked = cold.walk(hash.map_or(At::Number(number), At::Hash)).await?;
            Ok::<_, CallError>((position, walked))
        });
        let walked: Vec<_> = stream::iter(walks).buffer_unordered(AT_A_TIME).try_collect().await?;
        if let Some((_, refusal)) = unpaid {
            return Err(refusal);
        }
        for (position, walked) in walked {
            let block = &mut self.blocks[position];
            match walked {
                Walked::Found { link, home, found } => {
                    if link.is_some_and(|link| link.number != block.number) {
                        return Ok(Some(Attempt::Changed));
                    }
                    (block.hash, block.parent) = (Some(home), link.map(|link| link.parent));
                    block.found = Some(found);
                }
                Walked::Gone => {
                    let hash = block.hash;
                    return self.denied(hash, since).await.map(Some);
                }
                Walked::Unavailable if self.cold.tools.must_prove() => return Err(CallError::Unproved),
                Walked::Unavailable => searched.push(position..position + 1),
            }
        }
        Ok(None)
    }

    /// Plans anew after the upstream denied a block of the range, if blocks left the chain. Otherwise the node has pruned
    /// the block, or is on another branch.
    ///
    /// # Errors
    /// If the upstream lags behind the range.
    async fn denied(&self, block: Option<BlockHash>, since: Stamp) -> Result<Attempt, CallError> {
        let tools = self.cold.tools;
        tools.renew().await?;
        if tools.view.tracker().has_left(since) {
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
        let tracker = self.cold.tools.view.tracker();
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
        self.forwarded.iter().try_for_each(|run| match self.blocks[run.positions.clone()].last() {
            Some(last) if run.found.last().is_none_or(|(home, _)| home.number != last.number) => {
                self.has_reached(last.number)
            }
            Some(_) | None => Ok(()),
        })
    }

    /// Adds the neighbours of a run that only answers for their numbers place: the search may be of another branch.
    fn widen(&mut self, run: &mut Range<usize>) {
        let blocks = &mut self.blocks;
        while run.start > 0 && blocks[run.start - 1].is_asked {
            run.start -= 1;
        }
        while blocks.get(run.end).is_some_and(|block| block.is_asked) {
            run.end += 1;
        }
        if run.len() > 1 {
            for block in blocks[run.clone()].iter_mut().filter(|block| block.is_asked) {
                (block.hash, block.found) = (None, None);
            }
        }
    }

    /// Has the upstream search these runs, together with the blocks beside them whose branch nothing shows.
    async fn forward(
        &mut self,
        mut runs: Vec<Range<usize>>,
        since: Stamp,
    ) -> Result<Option<Attempt>, CallError> {
        runs.sort_unstable_by_key(|run| run.start);
        runs.iter_mut().for_each(|run| self.widen(run));
        runs.dedup_by(|next, run| {
            let touches = next.start <= run.end;
            run.end = if touches { run.end.max(next.end) } else { run.end };
            touches
        });
        let Some(whole) = runs.first().zip(runs.last()).map(|(first, last)| first.start..last.end) else {
            return Ok(None);
        };
        // The call itself has paid for the first run. If the client cannot pay for the others, one search must do.
        if runs.len() > MAX_RUNS || (1..runs.len()).any(|_| self.cold.charge().is_err()) {
            runs.clear();
            runs.push(whole);
        }
        self.cold.tools.forwarder.confirm_chain().await?;
        if self.has_reached_the_end().is_err() {
            self.cold.tools.renew().await?;
            match self.has_reached_the_end() {
                Err(CallError::Changed) => return Ok(Some(Attempt::Changed)),
                reached => reached?,
            }
        }
        let (cold, blocks) = (&self.cold, &self.blocks);
        let searches = runs.into_iter().map(|positions| async move {
            let searched = match &blocks[positions.clone()] {
                // By its hash, the upstream searches the block of the plan, and no other.
                [Planned { hash: Some(hash), .. }] => LogBlocks::Hash(*hash),
                blocks => run(blocks[0].number, blocks[blocks.len() - 1].number),
            };
            let last = blocks[positions.end - 1].number;
            Ok::<_, CallError>((positions, searched, cold.forward(searched, Some(last)).await?))
        });
        let forwarded: Vec<_> = stream::iter(searches).buffer_unordered(AT_A_TIME).try_collect().await?;
        for (positions, searched, forwarded) in forwarded {
            match forwarded {
                UpstreamSearch::Found(found) => self.forwarded.push(ForwardedRun { positions, found }),
                UpstreamSearch::Other(answer) => {
                    return match searched {
                        // The client did not ask for this hash.
                        LogBlocks::Hash(hash) => {
                            let lacks_it = Some(hash).filter(|_| denies(&answer));
                            self.denied(lacks_it, since).await.map(Some)
                        }
                        // The client asked for all blocks, so the answer concerns its own question.
                        LogBlocks::Range(..) if positions.len() == self.blocks.len() => {
                            Ok(Some(Attempt::unproved(answer)))
                        }
                        LogBlocks::Range(..) => Ok(Some(Attempt::Forward)),
                    };
                }
            }
        }
        Ok(None)
    }

    /// Returns whether each block that was fetched, or that only an answer for its number places, is the parent of the next
    /// block of the range, as far as their headers are known. Otherwise the upstream showed blocks of two branches.
    pub(super) fn is_linked(&self) -> bool {
        let view = &self.cold.tools.view;
        self.blocks.windows(2).all(|pair| {
            let [below, above] = pair else { return true };
            let is_tracked = |block: &Planned| block.parent.is_none() && !block.is_asked;
            if is_tracked(below) && is_tracked(above) {
                return true;
            }
            let link = || above.hash.and_then(|hash| view.cached_link(hash)).map(|link| link.parent);
            let (Some(parent), Some(below)) = (above.parent.or_else(link), below.hash) else { return true };
            parent == below
        })
    }

    /// If the upstream searched a part of the range that is not final, or up to a block that a tag stands for, refreshes
    /// the head afterwards: it shows whether that part and the rest are on one branch, and whether the upstream lags.
    pub(super) async fn confirm_branch(&self, is_tagged: bool) -> Result<(), CallError> {
        let tools = self.cold.tools;
        let has_others = || self.forwarded.len() > 1 || self.blocks.iter().any(|block| block.found.is_some());
        let finalized = tools.view.tracker().finalized().map(|(number, _)| number);
        if self.is_forwarded()
            && (is_tagged || has_others())
            && self.blocks.last().is_some_and(|last| Some(last.number) > finalized)
        {
            tools.renew().await?;
        }
        Ok(())
    }

    /// Returns whether the upstream searched a part of the range.
    pub(super) fn is_forwarded(&self) -> bool {
        !self.forwarded.is_empty()
    }

    /// Returns the blocks on which the answer depends.
    pub(super) fn named(&self) -> impl Iterator<Item = (BlockNumber, BlockHash)> {
        let of_range = self.blocks.iter().filter_map(|block| Some((block.number, block.hash?)));
        // The logs of a block are neighbours.
        let blocks = self.forwarded.iter().flat_map(|run| run.found.chunk_by(|one, other| one.0 == other.0));
        let of_logs = blocks.filter_map(|logs| logs.first()).map(|(home, _)| (home.number, home.block));
        of_range.chain(of_logs)
    }

    /// Joins the logs of all blocks.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn join(self) -> Result<Answered, CallError> {
        let first = self.blocks.first().map_or(BlockNumber(0), |block| block.number);
        let mut joined = Joined::new(self.cold.tools.limits, first);
        let mut searched: HashMap<BlockNumber, Vec<Bytes>> = HashMap::new();
        for (home, log) in self.forwarded.iter().flat_map(|run| &run.found) {
            searched.entry(home.number).or_default().push(log.clone());
        }
        let is_searched = |at: usize| self.forwarded.iter().any(|run| run.positions.contains(&at));
        for (at, Planned { number, found, .. }) in self.blocks.into_iter().enumerate() {
            let found = match found {
                Some(found) => found,
                None if is_searched(at) => FoundLogs::forwarded(searched.remove(&number).unwrap_or_default()),
                // Every block is found or searched; nothing else may be answered.
                None => return Err(CallError::Changed),
            };
            joined.add(number, found)?;
        }
        Ok(joined.answer())
    }
}
