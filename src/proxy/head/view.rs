//! The canonical view: the blocks that are canonical, as far as the proxy knows.
//!
//! The view makes no upstream calls; [`HeadTracker`](super::HeadTracker) keeps it fresh.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwapOption;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tracing::{info, warn};

use super::events::CanonicityListener;
use crate::{
    cache::Cache,
    chain::{Clock, Find, Link, Rules, Stamp, Tracker},
    eth::{BlockHash, BlockNumber, Home, Tag},
    proxy::{config::ChainConfig, parts::ProxyParts},
    upstream::{ChainIdentity, is_development},
    verify::{Anchor, Verifier},
};

/// Number of observations of a lower head after which the lower head is a rollback. Two are not enough, because a load
/// balancer may show a lagging replica twice.
const ROLLBACK_AFTER: u32 = 3;

/// Largest normal difference between the wall clock and the monotonic clock. A larger one shows that the machine slept,
/// or that its clock was set.
const CLOCK_JUMP: Duration = Duration::from_secs(1);

/// The canonical view, which all calls share.
#[derive(Debug)]
pub(crate) struct SharedView {
    tracker: RwLock<Tracker>,
    clock: Clock,
    wall: fn() -> SystemTime,
    config: Mutex<ChainConfig>,
    consistent: AtomicBool,
    cache: Cache,
    verifier: Verifier,
    /// Locked while the view adopts a chain.
    adopting: Mutex<()>,
    times: Mutex<ViewTimes>,
    /// Monotonic clock and wall clock at the last refresh. This is not part of `times`, because every packet reads it
    /// and must not wait for a lock.
    clocks: ArcSwapOption<(Stamp, SystemTime)>,
    /// Number of times that the view emptied the cache because the chain changed.
    generation: AtomicU64,
    listener: OnceLock<Weak<dyn CanonicityListener>>,
}

/// Time of a request for the finalized block, and the number of the head at that time.
pub(crate) type FinalizedRequest = (Stamp, BlockNumber);

#[derive(Debug, Default)]
struct ViewTimes {
    /// Last request for the finalized block, except requests whose answers the tracker ignored.
    finalized: Option<FinalizedRequest>,
    /// Time of the last call that can have changed the chain.
    written: Option<Stamp>,
    /// Time of the last change of the head.
    moved: Option<Stamp>,
    /// Times at which the node last had no block for a tag.
    no_block: HashMap<Tag, Stamp>,
    /// Chain that the upstream serves.
    chain: Option<Arc<ChainIdentity>>,
    /// The same chain as `chain`, but set only after all data of the previous chain is gone.
    adopted: Option<Arc<ChainIdentity>>,
}

// === impl SharedView ===

impl SharedView {
    pub(crate) fn new(config: ChainConfig, parts: &ProxyParts) -> Self {
        let ProxyParts { cache, verifier, consistent, wall, .. } = parts.clone();
        let tracker = RwLock::new(Tracker::new(rules(&config, consistent, None)));
        Self {
            tracker,
            clock: Clock::default(),
            wall,
            config: Mutex::new(config),
            consistent: AtomicBool::new(consistent),
            cache,
            verifier,
            adopting: Mutex::default(),
            times: Mutex::default(),
            clocks: ArcSwapOption::empty(),
            generation: AtomicU64::new(0),
            listener: OnceLock::new(),
        }
    }

    /// Registers the listener for changes; there is at most one.
    pub(crate) fn set_listener(&self, listener: Weak<dyn CanonicityListener>) {
        let _ = self.listener.set(listener);
    }

    /// Returns the listener for changes.
    pub(super) fn listener(&self) -> Option<Arc<dyn CanonicityListener>> {
        self.listener.get().and_then(Weak::upgrade)
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the time of the wall clock.
    pub(super) fn wall(&self) -> SystemTime {
        (self.wall)()
    }

    /// Returns the tracker, locked for reading. Callers must not hold the lock across an `.await`.
    pub(crate) fn tracker(&self) -> RwLockReadGuard<'_, Tracker> {
        self.tracker.read()
    }

    /// Changes the tracker.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Tracker) -> T) -> T {
        let (changed, dropped) = {
            let mut tracker = self.tracker.write();
            let changed = change(&mut tracker);
            self.cache.set_head(tracker.head().map(|head| head.number));
            (changed, tracker.take_dropped())
        };
        // Call the listener after releasing the lock, because it reads the tracker. Call it only if there are entries
        // to report: some callers hold the lock of `config`, which the listener takes, but their changes drop no
        // entries.
        if !dropped.is_empty()
            && let Some(listener) = self.listener()
        {
            listener.entries_dropped(&dropped);
        }
        changed
    }

    /// Changes the tracker with an answer that can make blocks final.
    pub(crate) fn learn<T>(&self, learn: impl FnOnce(&mut Tracker, Find<'_>) -> T) -> T {
        let find = |hash| self.cached_link(hash);
        let (learned, entered) = self.change(|tracker| {
            let learned = learn(tracker, &find);
            (learned, tracker.take_entered())
        });
        if !entered.is_empty()
            && let Some(listener) = self.listener()
        {
            listener.blocks_finalized(&entered);
        }
        learned
    }

    /// Returns number, hash and parent of the block with this hash, if the block is cached.
    pub(crate) fn cached_link(&self, hash: BlockHash) -> Option<Link> {
        let block = self.cache.peek_block(hash).map(|block| Link::from(block.header()));
        block.or_else(|| {
            self.cache.peek_block_with_hashes(hash).map(|with_hashes| Link::from(with_hashes.header()))
        })
    }

    /// Records the block that an answer to a client names. An answer by block hash does not count: it may name an orphan.
    pub(crate) fn tell(&self, Home { block, number }: Home) {
        // The pending block of some nodes has a number, but no hash.
        if !block.0.is_zero() && self.tracker().is_above_head(number) {
            let now = self.clock.now();
            self.change(|tracker| tracker.tell(number, block, now));
        }
    }

    /// Returns whether a call with this arrival time may join a fetch that was sent at `sent`.
    pub(crate) fn may_join(&self, sent: Stamp, arrival: Stamp) -> bool {
        let tracker = self.tracker();
        // A fetch that was sent before a reorg may answer from the orphaned branch.
        tracker.counts(sent)
            && tracker.serves(sent, arrival)
            && !self.is_before_write(sent)
            // A fetch that was sent before the last head change may answer from the old head, while other clients have
            // seen the new head.
            && !self.times.lock().moved.is_some_and(|moved| sent.is_before(moved))
    }

    /// Returns whether `sent` is before the last call that can have changed the chain.
    pub(crate) fn is_before_write(&self, sent: Stamp) -> bool {
        self.times.lock().written.is_some_and(|written| sent.is_before(written))
    }

    /// Records a change of the head.
    pub(super) fn note_move(&self, now: Stamp) {
        self.times.lock().moved = Some(now);
    }

    /// Records that the node has no block for a tag.
    pub(super) fn note_no_block(&self, tag: Tag, sent: Stamp) {
        self.times.lock().no_block.insert(tag, sent);
    }

    /// Returns whether the node had no block for `tag`, by an answer that is recent enough for a call that arrived at
    /// `arrival`.
    pub(crate) fn has_no_block(&self, tag: Tag, arrival: Stamp) -> bool {
        let none = self.times.lock().no_block.get(&tag).copied();
        none.is_some_and(|sent| self.may_join(sent, arrival))
    }

    /// Records a refresh of the head, with the time on both clocks when the refresh was sent.
    pub(super) fn note_refresh(&self, sent: Stamp, wall: SystemTime) {
        self.clocks.store(Some(Arc::new((sent, wall))));
    }

    // ## The chain

    /// Adopts the chain that the upstream serves. Empties the cache if this chain differs from the previous one, which
    /// happens only with development chains, or if entries of another chain were loaded from tiers.
    pub(crate) fn adopt(&self, chain: &Arc<ChainIdentity>) {
        let is_adopted = || self.times.lock().adopted.as_ref().is_some_and(|known| Arc::ptr_eq(known, chain));
        if is_adopted() {
            return;
        }
        // Let concurrent callers wait here. Otherwise they could add data to the view that this switch then forgets.
        let _one = self.adopting.lock();
        if !is_adopted() {
            self.switch_to(chain);
            self.times.lock().adopted = Some(chain.clone());
        }
    }

    fn switch_to(&self, chain: &Arc<ChainIdentity>) {
        let mut times = self.times.lock();
        let before = times.chain.replace(chain.clone());
        // A development chain has no anchor, because it can restart at any time, or continue the history of another
        // chain. Neither has a chain without an id.
        let anchor = Anchor { chain_id: chain.chain_id, genesis: chain.genesis };
        let is_anchored = !is_development(chain.chain_id) && !chain.is_unknown();
        self.verifier.follow(chain.chain_id, is_anchored.then_some(anchor));
        let is_same = before.as_ref().is_some_and(|before| before.is_same_chain(chain));
        // The genesis block of the same chain may have become known since.
        let has_same_genesis = before.as_ref().is_some_and(|before| before.genesis == chain.genesis);
        if is_same && (has_same_genesis || is_development(chain.chain_id)) {
            return;
        }
        times.finalized = times.finalized.take().filter(|_| is_same);
        drop(times);
        let has_loaded_other = self.listener().is_some_and(|listener| listener.chain_adopted(chain));
        if is_same {
            return;
        }
        let now = self.clock.now();
        {
            let config = self.config.lock();
            let rules = rules(&config, self.consistent.load(Relaxed), Some(chain.chain_id));
            self.change(|tracker| {
                *tracker = Tracker::new(rules);
                tracker.forget(now);
            });
        }
        if let Some(before) = &before {
            let (chain_id, was) = (chain.chain_id, (!before.is_unknown()).then_some(before.chain_id));
            warn!(chain_id, was, "the upstream serves another chain now; clearing the cache");
        }
        if before.is_some() || has_loaded_other {
            // Advance the generation before clearing the cache, so that a running fetch does not store its answer
            // afterwards.
            self.generation.fetch_add(1, Relaxed);
            self.cache.clear();
        }
    }

    /// Returns the chain that the upstream serves; `None` if the upstream has not shown its chain yet.
    pub(crate) fn chain(&self) -> Option<Arc<ChainIdentity>> {
        self.times.lock().chain.clone()
    }

    /// Returns whether the upstream has shown which chain it serves.
    pub(crate) fn has_chain(&self) -> bool {
        self.times.lock().chain.is_some()
    }

    /// Returns the current generation. An answer to a fetch from an earlier generation may be of another chain, and
    /// must not enter the cache.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// Empties the cache, because it holds content that passed without a proof, and the chain can be proved after all.
    pub(crate) fn drop_unproved(&self) {
        self.generation.fetch_add(1, Relaxed);
        self.cache.clear();
    }

    /// Empties the cache if the generation has changed since `generation`: content of that generation may have entered the
    /// cache after it was emptied.
    pub(crate) fn clear_since(&self, generation: u64) {
        if self.generation() != generation {
            self.cache.clear();
        }
    }

    // ## Forgetting

    /// Makes the view ignore answers to requests from before now. Called when a write is sent, and again when it is
    /// answered. `resets` says whether the write can reset the chain. If it can, the view forgets all canonicity.
    pub(crate) fn invalidate_after_write(&self, resets: bool) -> Stamp {
        let now = self.clock.now();
        {
            let mut times = self.times.lock();
            times.written = Some(now);
            if resets {
                times.finalized = None;
            }
        }
        self.change(|tracker| if resets { tracker.forget(now) } else { tracker.invalidate_after_write(now) });
        now
    }

    /// Forgets all canonicity. Called when an endpoint turns out to serve another chain, because part of the view may
    /// be of that chain. Cached entries stay, and still answer calls by hash.
    pub(crate) fn invalidate(&self) {
        let now = self.clock.now();
        self.change(|tracker| tracker.forget(now));
        self.forget_finalized();
    }

    /// Makes the next refresh request the finalized block again, because the tracker forgot all canonicity.
    pub(super) fn forget_finalized(&self) {
        self.times.lock().finalized = None;
    }

    // ## Requests for the finalized block

    /// Returns the last request for the finalized block, except requests whose answers the tracker ignored.
    pub(super) fn finalized_request(&self) -> Option<FinalizedRequest> {
        self.times.lock().finalized
    }

    /// Records a request for the finalized block; returns the previous one.
    pub(super) fn request_finalized(&self, request: FinalizedRequest) -> Option<FinalizedRequest> {
        self.times.lock().finalized.replace(request)
    }

    /// Restores the previous request for the finalized block, because the last one has no effect on finality. Restores
    /// nothing if an alarm has dropped all requests meanwhile.
    pub(super) fn restore_finalized_request(&self, before: Option<FinalizedRequest>) {
        let mut times = self.times.lock();
        times.finalized = times.finalized.and(before);
    }

    /// Drops the last request, so that the next refresh requests the finalized block again.
    pub(super) fn drop_finalized_request(&self) {
        self.times.lock().finalized = None;
    }

    // ## Clocks and settings

    /// Marks the view as stale after a jump of the wall clock. If the machine slept, its monotonic clock stood still,
    /// and the view is older than it seems.
    pub(crate) fn notice_clock_jumps(&self, now: Stamp) {
        let jumped =
            self.clocks.load().as_deref().is_some_and(|(then, wall)| {
                has_jumped(now.time.duration_since(then.time), *wall, (self.wall)())
            });
        if jumped {
            info!("wall clock jumped; the next call refreshes the view of the chain");
            self.clocks.store(None);
            self.change(|tracker| tracker.invalidate_after_write(now));
        }
    }

    /// Returns whether the operator configured a finality depth.
    pub(crate) fn has_finality_depth(&self) -> bool {
        self.config.lock().finality_depth.is_some()
    }

    /// Sets how long the view stays fresh. For development chains, this time is always zero.
    pub(crate) fn set_max_staleness(&self, max_staleness: Duration) {
        // Hold this lock to the end, so that a chain that the view adopts meanwhile does not get the old rules.
        let mut config = self.config.lock();
        config.max_staleness = max_staleness;
        let chain_id = self.times.lock().chain.as_ref().map(|chain| chain.chain_id);
        let rules = rules(&config, self.consistent.load(Relaxed), chain_id);
        self.change(|tracker| tracker.set_max_staleness(rules.max_staleness));
    }

    /// Sets whether the upstream is a single node, whose answers do not contradict each other.
    pub(crate) fn set_consistent(&self, consistent: bool) {
        self.consistent.store(consistent, Relaxed);
        self.change(|tracker| tracker.set_consistent(consistent));
    }
}

/// Returns whether the wall clock ran ahead of the monotonic clock since `then`, or ran backwards, by more than
/// [`CLOCK_JUMP`]. The monotonic clock stands still while the machine sleeps.
fn has_jumped(passed: Duration, then: SystemTime, now: SystemTime) -> bool {
    match now.duration_since(then) {
        Ok(on_the_wall) => on_the_wall > passed + CLOCK_JUMP,
        Err(backwards) => backwards.duration() > CLOCK_JUMP,
    }
}

/// Returns the rules for a chain; before the chain is known, returns the strictest rules.
fn rules(config: &ChainConfig, consistent: bool, chain_id: Option<u64>) -> Rules {
    let development = chain_id.is_none_or(is_development);
    Rules {
        max_staleness: if development { Duration::ZERO } else { config.max_staleness },
        window: config.window,
        rollback_after: if development { 1 } else { ROLLBACK_AFTER },
        lag_patience: if development { Duration::ZERO } else { config.lag_patience },
        consistent,
        finality: !development,
        development: chain_id.is_some_and(is_development),
        final_margin: config.final_margin,
        finality_depth: config.finality_depth,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspend_and_clock_change_are_noticed() {
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let after = |seconds: u64| then + Duration::from_secs(seconds);
        assert!(!has_jumped(Duration::from_secs(5), then, after(5)));
        assert!(!has_jumped(Duration::from_secs(5), then, after(6)));
        // The machine slept for an hour, and the monotonic clock stood still.
        assert!(has_jumped(Duration::from_millis(300), then, after(3600)));
        // The wall clock was set back.
        assert!(has_jumped(Duration::from_secs(5), after(60), then));
        // A paused test clock advances without the wall clock; that is no jump.
        assert!(!has_jumped(Duration::from_secs(3600), then, after(0)));
    }
}
