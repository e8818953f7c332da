//! Finds the hash at a final number in a tier, by parent hashes.
//!
//! A tier has headers by hash, and hints: a hash for each number. Holdfast reads the headers of a run of hints, and proves
//! that each is the parent of the next. Then one block that the view knows or that the node shows, the *anchor*, proves
//! all below. For numbers that clients read upwards, the anchor is further and further above, so that a walk through
//! 10,000 stored blocks asks the node for a dozen.
//!
//! A node that has pruned its history cannot show an anchor there. Then the hints of the disk hold, and only then, if the
//! node has shown another block of the disk: the disk wrote them when they were final and proved.

use std::{
    cmp::Reverse,
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Mutex as AsyncMutex, time::Instant};
use tracing::{info, warn};

use crate::{
    cache::{
        Tiers,
        tier::{ChainKey, Part, TierKind},
    },
    chain::{Gap, Link, Lookup, Stamp},
    eth::{BlockHash, BlockNumber, Home},
    log_throttle::LogThrottle,
    proxy::{
        call::single_flight::Coalesce,
        head::{Canon, SharedView, source::NotShown},
    },
    timeout::timeout,
    verify::prove::raw,
};

/// Distances from a number to its anchor: for the first number that a client reads, for the next one that has no anchor
/// yet, and so on.
const STEPS: [u64; 4] = [0, 8, 64, REACH];

/// Greatest distance from a number to its anchor.
const REACH: u64 = 1024;

/// Greatest number of blocks to fetch between a run and the finalized block.
const MOST_GAP: u64 = 64;

/// Number of headers that are read and proved at a time.
const AT_ONCE: usize = 128;

/// Number of walks to remember.
const WALKS: usize = 64;

/// Number of tops of pruned runs to remember.
const TOPS: usize = 64;

/// Longest wait for an anchor. The call goes on without it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time without requests for anchors after the node did not answer one.
const PAUSE: Duration = Duration::from_secs(1);

/// When to ask the node for an anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asks {
    Never,
    /// Only for an anchor of several blocks.
    Sparingly,
    Always,
}

/// Finds hashes at final numbers. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Links(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    tiers: Tiers,
    view: Arc<SharedView>,
    canon: Canon,
    /// The running requests for an anchor, by its number.
    flights: Coalesce<(ChainKey, u64), Option<BlockHash>>,
    walks: Mutex<VecDeque<Walk>>,
    /// The finalized block to which a run was last linked through blocks that had to be fetched.
    closed: AsyncMutex<Option<(BlockNumber, Stamp)>>,
    /// The runs of which the node was asked for the top, because it has pruned the rest.
    tops: AsyncMutex<VecDeque<Top>>,
    /// When the node was asked for a block that it then showed as the disk has it.
    confirmed: Mutex<Option<Stamp>>,
    failed: Mutex<Option<Instant>>,
    log: LogThrottle,
}

/// Numbers that a client reads upwards.
#[derive(Clone, Copy, Debug)]
struct Walk {
    from: u64,
    /// The number of the anchor.
    to: u64,
    step: usize,
}

#[derive(Clone, Copy, Debug)]
struct Top {
    from: BlockNumber,
    top: BlockNumber,
    asked: Stamp,
}

/// The node's answer for a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Shown(BlockHash),
    /// The node has no such block, has pruned it, or refuses to show it.
    Lacking,
    Failed,
}

// === impl Links ===

impl Links {
    pub(crate) fn new(tiers: Tiers, canon: Canon) -> Self {
        Self(Arc::new(Inner {
            tiers,
            view: canon.view().clone(),
            canon,
            flights: Coalesce::default(),
            walks: Mutex::default(),
            closed: AsyncMutex::default(),
            tops: AsyncMutex::default(),
            confirmed: Mutex::default(),
            failed: Mutex::default(),
            log: LogThrottle::default(),
        }))
    }

    /// Returns the hash at this number, if the number is final and a tier has the block.
    pub(crate) async fn hash_at(
        &self,
        chain: ChainKey,
        number: BlockNumber,
        asks: Asks,
    ) -> Option<BlockHash> {
        let this = &self.0;
        if let Some(hash) = this.known(number) {
            return Some(hash);
        }
        if asks != Asks::Never {
            this.canon.head().establish_finality(this.view.clock().now()).await.ok()?;
        }
        if let Some(hash) = this.known(number) {
            return Some(hash);
        }
        let above = {
            let tracker = this.view.tracker();
            if tracker.is_suspended() || !tracker.is_final(number) {
                return None;
            }
            tracker.final_above(number).filter(|above| above.0 - number.0 <= REACH)
        };
        // All of a run comes from one tier, so that a wrong tier cannot speak for another.
        let (tier, stored) = this.tiers.hint(chain, number).await?;
        if let Some(above) = above {
            let run = this.read_run(chain, tier, number, above.0 - number.0).await;
            this.take_in(above, &run);
            if let Some(hash) = this.known(number) {
                return Some(hash);
            }
        }
        let has_failed = this.failed.lock().is_some_and(|failed| failed.elapsed() < PAUSE);
        if asks == Asks::Never || has_failed {
            return None;
        }
        let to = walk_to(&mut this.walks.lock(), number.0, usize::from(asks == Asks::Sparingly));
        let (inner, now) = (this.clone(), this.view.clock().now());
        let fetch = move || async move { inner.by_anchor(chain, tier, number, stored, to, asks).await };
        let landed = this.flights.run((chain, to), now, |_| true, fetch).await.ok()?;
        if landed.joined { this.view.tracker().canonical_at(number, now) } else { landed.value }
    }
}

// === impl Inner ===

impl Inner {
    fn known(&self, number: BlockNumber) -> Option<BlockHash> {
        match self.view.tracker().lookup(number, self.view.clock().now()) {
            Lookup::Final(hash) => Some(hash),
            _ => None,
        }
    }

    /// Reads at most `count` headers from `from` upwards, each proved to be the parent of the next.
    async fn read_run(&self, chain: ChainKey, tier: TierKind, from: BlockNumber, count: u64) -> Vec<Link> {
        let hashes = self.tiers.hints(chain, tier, from, count as usize).await;
        let mut run: Vec<Link> = Vec::new();
        for hashes in hashes.chunks(AT_ONCE) {
            let headers = self.tiers.headers(chain, tier, hashes).await;
            for (hash, header) in hashes.iter().zip(headers) {
                // Headers that cannot be proved are empty.
                let Some(header) = header.filter(|header| !header.is_empty()) else { return run };
                let Some(header) = raw::read_header(&header, hash.0) else {
                    self.tiers.reject(chain, Part::Header, *hash, tier);
                    return run;
                };
                let link = Link {
                    number: BlockNumber(header.number),
                    hash: *hash,
                    parent: BlockHash(header.parent_hash),
                    timestamp: Some(header.timestamp),
                };
                let is_next = run.last().is_none_or(|below| below.hash == link.parent);
                if !is_next || link.number.0 != from.0 + run.len() as u64 {
                    return run;
                }
                run.push(link);
            }
        }
        run
    }

    /// Tells the view the ancestors of the final block at `anchor`, as far as they are in the run.
    fn take_in(&self, anchor: BlockNumber, run: &[Link]) {
        let links: HashMap<_, _> = run.iter().map(|link| (link.hash, *link)).collect();
        self.view.learn(|tracker, _| tracker.observe_ancestors(anchor, &|hash| links.get(&hash).copied()));
    }

    /// Asks the node for an anchor: a block at this number or above, up to `to`, whose answer is enough to make it final.
    async fn by_anchor(
        &self,
        chain: ChainKey,
        tier: TierKind,
        number: BlockNumber,
        stored: BlockHash,
        to: u64,
        asks: Asks,
    ) -> Option<BlockHash> {
        let asked = self.view.clock().now();
        let run = self.read_run(chain, tier, number, to - number.0 + 1).await;
        let anchor = {
            let tracker = self.view.tracker();
            let is_settled =
                |link: &&Link| tracker.is_final(link.number) && tracker.is_settled(**link, asked);
            run.iter().rev().find(is_settled).copied()
        };
        if anchor.is_none() && !run.is_empty() && self.close_gap(chain, tier, number).await {
            return self.known(number);
        }
        if asks == Asks::Sparingly && (anchor.is_none() || run.len() < 2) {
            return None;
        }
        // Without an anchor, ask for the number itself. The view relies on that answer for `max_staleness` only.
        let (at, stored) = anchor.map_or((number, stored), |anchor| (anchor.number, anchor.hash));
        match self.ask(at).await {
            Asked::Shown(hash) if hash == stored => {
                if tier == TierKind::Disk {
                    *self.confirmed.lock() = Some(asked);
                }
                self.take_in(at, &run);
                let now = self.view.clock().now();
                self.view.tracker().canonical_at(number, now)
            }
            Asked::Shown(hash) => {
                self.contradicted(chain, tier, (at, hash), Home { number: at, block: stored }, &run);
                None
            }
            Asked::Lacking if tier == TierKind::Disk => self.pruned(chain, number, &run, asked).await,
            Asked::Lacking => None,
            Asked::Failed => {
                *self.failed.lock() = Some(Instant::now());
                None
            }
        }
    }

    /// Asks the node for the block at this number, and tells the view.
    async fn ask(&self, number: BlockNumber) -> Asked {
        match timeout(PATIENCE, self.canon.ask(number)).await {
            Ok(Ok(Ok(link))) => Asked::Shown(link.hash),
            Ok(Ok(Err(NotShown::Absent(_) | NotShown::Refused(_)))) => Asked::Lacking,
            _ => Asked::Failed,
        }
    }

    /// Drops the hints of a run of which the node has another final block.
    fn contradicted(
        &self,
        chain: ChainKey,
        tier: TierKind,
        (number, found): (BlockNumber, BlockHash),
        stored: Home,
        run: &[Link],
    ) {
        if self.known(number) != Some(found) {
            return;
        }
        if self.log.is_due("contradicted") {
            warn!(
                number = number.0,
                %found,
                stored = %stored.block,
                tier = tier.as_str(),
                "the upstream has another final block than a cache tier; dropping the tier's numbers of that range"
            );
        }
        let run = run.iter().map(|link| Home { number: link.number, block: link.hash });
        self.tiers.drop_hints(chain, Some(tier), &run.chain([stored]).collect::<Vec<_>>());
    }

    /// Links a run near the finalized block to it. Fetches the blocks between them, if there are few. Returns whether the
    /// number is known then. Fetches once for each finalized block.
    async fn close_gap(&self, chain: ChainKey, tier: TierKind, number: BlockNumber) -> bool {
        let Some((finalized, _)) = self.view.tracker().finalized() else { return false };
        let reach = finalized.0.saturating_sub(number.0);
        if reach > REACH + MOST_GAP {
            return false;
        }
        let run = self.read_run(chain, tier, number, reach).await;
        let missing = reach - run.len() as u64;
        if missing > MOST_GAP {
            return false;
        }
        let mut closed = self.closed.lock().await;
        let is_closed = |(at, asked)| at == finalized && !self.view.tracker().has_forgotten(asked);
        if missing > 0 && !closed.is_some_and(is_closed) {
            let now = self.view.clock().now();
            *closed = Some((finalized, now));
            let gap =
                Gap { from: BlockNumber(number.0 + run.len() as u64), to: BlockNumber(finalized.0 - 1) };
            let mut links = self.canon.head().source().fetch_gap(gap, now).await;
            links.sort_unstable_by_key(|link| Reverse(link.number));
            for link in links {
                self.view.learn(|tracker, find| tracker.observe_block(link, find));
            }
        }
        drop(closed);
        let above = self.view.tracker().final_above(number);
        if let Some(above) = above {
            self.take_in(above, &run);
        }
        self.known(number).is_some()
    }

    /// Takes the disk's word for a run that the node has pruned, if the node does not have another block at the top of the
    /// run, and has shown some block of the disk.
    async fn pruned(
        &self,
        chain: ChainKey,
        number: BlockNumber,
        run: &[Link],
        asked: Stamp,
    ) -> Option<BlockHash> {
        if run.is_empty() || !self.may_hold(chain, number, run).await {
            return None;
        }
        let is_confirmed = {
            let (tracker, confirmed) = (self.view.tracker(), *self.confirmed.lock());
            confirmed.is_some_and(|confirmed| !tracker.has_forgotten(confirmed)) && !tracker.is_doubted()
        };
        if !is_confirmed {
            return None;
        }
        if self.log.is_due("pruned") {
            info!(number = number.0, "the upstream does not show this history; serving it from the disk");
        }
        self.view.change(|tracker| tracker.restore_run(run, asked));
        self.known(number)
    }

    /// Asks the node for the top of the disk's run, once for each run. Returns whether the run may hold.
    async fn may_hold(&self, chain: ChainKey, number: BlockNumber, run: &[Link]) -> bool {
        let Some((finalized, _)) = self.view.tracker().finalized() else { return false };
        let mut tops = self.tops.lock().await;
        let is_asked =
            |it: &Top| (it.from..=it.top).contains(&number) && !self.view.tracker().has_forgotten(it.asked);
        if tops.iter().any(is_asked) {
            return true;
        }
        let (mut above, mut stored) = (number, None);
        while above <= finalized {
            let hints = self.tiers.hints(chain, TierKind::Disk, above, REACH as usize).await;
            above = BlockNumber(above.0 + hints.len() as u64);
            stored = hints.last().copied().or(stored);
            if hints.len() < REACH as usize {
                break;
            }
        }
        let Some(stored) = stored else { return false };
        let (top, asked) = (BlockNumber(above.0 - 1), self.view.clock().now());
        match self.ask(top).await {
            Asked::Shown(hash) if hash == stored => *self.confirmed.lock() = Some(asked),
            Asked::Shown(hash) => {
                let stored = Home { number: top, block: stored };
                self.contradicted(chain, TierKind::Disk, (top, hash), stored, run);
                return false;
            }
            Asked::Lacking => {}
            Asked::Failed => return false,
        }
        tops.push_front(Top { from: number, top, asked });
        tops.truncate(TOPS);
        true
    }
}

/// Returns the number to which a walk that reads this number should ask for an anchor. A new walk begins with the step
/// `first`.
fn walk_to(walks: &mut VecDeque<Walk>, number: u64, first: usize) -> u64 {
    let at = walks.iter().position(|walk| (walk.from..=walk.to + 1).contains(&number));
    let walk = match at.and_then(|at| walks.remove(at)) {
        Some(walk) if number <= walk.to => walk,
        walk => {
            let step = walk.map_or(first, |walk| (walk.step + 1).min(STEPS.len() - 1));
            Walk { from: number, to: number + STEPS[step], step }
        }
    };
    walks.push_front(walk);
    walks.truncate(WALKS);
    walk.to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_numbers_read_upwards_need_a_dozen_anchors() {
        let (mut walks, mut anchors) = (VecDeque::new(), Vec::new());
        let mut number = 100;
        while number < 10_100 {
            let to = walk_to(&mut walks, number, 0);
            // Others read other numbers meanwhile.
            for other in 1..60 {
                let other = 1_000_000 * other + to;
                assert_eq!(walk_to(&mut walks, other, 0), other);
            }
            assert_eq!(walk_to(&mut walks, to, 0), to, "a number on the way needs no anchor of its own");
            anchors.push(to);
            number = to + 1;
        }
        assert_eq!(anchors[..4], [100, 109, 174, 1199]);
        assert_eq!(anchors.len(), 13);
    }
}
