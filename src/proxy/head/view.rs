//! The canonical view: which blocks are canonical, as far as the proxy knows.
//!
//! Synchronous: it asks no upstream. [`HeadTracker`](super::HeadTracker) keeps it fresh.

use std::{
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
    eth::{BlockHash, BlockNumber, Tag},
    proxy::{config::ChainConfig, parts::ProxyParts},
    upstream::{ChainIdentity, is_development},
    verify::{Anchor, Verifier},
};

/// Observations after which a lower head is a rollback: a load balancer may show a lagging replica twice.
const ROLLBACK_AFTER: u32 = 3;

/// More than clocks drift apart while a view is fresh: the machine slept, or its clock was set.
const CLOCK_JUMP: Duration = Duration::from_secs(1);

/// Which blocks are canonical. All calls share it.
#[derive(Debug)]
pub(crate) struct SharedView {
    tracker: RwLock<Tracker>,
    clock: Clock,
    wall: fn() -> SystemTime,
    config: Mutex<ChainConfig>,
    consistent: AtomicBool,
    cache: Cache,
    verifier: Verifier,
    /// One chain is adopted at a time.
    adopting: Mutex<()>,
    times: Mutex<ViewTimes>,
    /// Both clocks at the last refresh. Not among the times: each packet reads it, and must not wait for a lock.
    clocks: ArcSwapOption<(Stamp, SystemTime)>,
    /// Number of chains so far.
    generation: AtomicU64,
    listener: OnceLock<Weak<dyn CanonicityListener>>,
}

/// A request for the `finalized` block, and the head at that time.
pub(crate) type FinalizedRequest = (Stamp, BlockNumber);

#[derive(Debug, Default)]
struct ViewTimes {
    /// The last request for the finalized block that counts.
    finalized: Option<FinalizedRequest>,
    /// The last call that can have changed the chain.
    written: Option<Stamp>,
    /// The last change of the head.
    moved: Option<Stamp>,
    /// When the node last had no block for the tag.
    no_safe: Option<Stamp>,
    no_finalized: Option<Stamp>,
    /// The chain that the tracker follows …
    chain: Option<Arc<ChainIdentity>>,
    /// … once everything about another one is forgotten.
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

    /// Registers the component that hears of changes; there is one at most.
    pub(crate) fn set_listener(&self, listener: Weak<dyn CanonicityListener>) {
        let _ = self.listener.set(listener);
    }

    /// Returns the component that hears of changes.
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

    /// Returns the tracker as it is now. Not to be held across an await.
    pub(crate) fn tracker(&self) -> RwLockReadGuard<'_, Tracker> {
        self.tracker.read()
    }

    /// Changes the tracker.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Tracker) -> T) -> T {
        let (changed, contradicted) = {
            let mut tracker = self.tracker.write();
            let changed = change(&mut tracker);
            self.cache.set_head(tracker.head().map(|head| head.number));
            (changed, tracker.take_dropped())
        };
        // After the lock is free: the listener reads the tracker. Only if there is a need: some callers hold the lock of the
        // configuration, which the listener takes.
        if !contradicted.is_empty()
            && let Some(listener) = self.listener()
        {
            listener.entries_contradicted(&contradicted);
        }
        changed
    }

    /// Changes the tracker by an answer, through which blocks can become final.
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

    /// Returns the block with this hash and its parent, if it is cached.
    pub(crate) fn cached_link(&self, hash: BlockHash) -> Option<Link> {
        let block = self.cache.peek_block(hash).map(|block| Link::from(block.header()));
        block.or_else(|| {
            self.cache.peek_block_with_hashes(hash).map(|with_hashes| Link::from(with_hashes.header()))
        })
    }

    /// Returns whether a call that arrived then may join a fetch that was sent at `sent`.
    pub(crate) fn may_join(&self, sent: Stamp, arrival: Stamp) -> bool {
        let tracker = self.tracker();
        // A fetch from before a reorg may answer from the orphaned branch.
        tracker.counts(sent)
            && sent.serves(arrival, tracker.rules().max_staleness)
            && !self.is_before_write(sent)
            // So may one from before the head that other clients have seen, reorg or not.
            && !self.times.lock().moved.is_some_and(|moved| sent.is_before(moved))
    }

    /// Returns whether this was sent before the last call that can have changed the chain.
    pub(crate) fn is_before_write(&self, sent: Stamp) -> bool {
        self.times.lock().written.is_some_and(|written| sent.is_before(written))
    }

    /// Notes that the head changed.
    pub(super) fn note_move(&self, now: Stamp) {
        self.times.lock().moved = Some(now);
    }

    /// Notes that the node has no block for a tag.
    pub(super) fn note_no_block(&self, tag: Tag, sent: Stamp) {
        let mut times = self.times.lock();
        match tag {
            Tag::Safe => times.no_safe = Some(sent),
            Tag::Finalized => times.no_finalized = Some(sent),
            Tag::Latest | Tag::Earliest | Tag::Pending => {}
        }
    }

    /// Returns whether the node had no block for this tag, recently enough for this arrival.
    pub(crate) fn has_no_block(&self, tag: Tag, arrival: Stamp) -> bool {
        let times = self.times.lock();
        let none = match tag {
            Tag::Safe => times.no_safe,
            Tag::Finalized => times.no_finalized,
            Tag::Latest | Tag::Earliest | Tag::Pending => None,
        };
        drop(times);
        none.is_some_and(|sent| self.may_join(sent, arrival))
    }

    /// Notes a refresh of the head and both clocks at the time it was sent.
    pub(super) fn note_refresh(&self, sent: Stamp, wall: SystemTime) {
        self.clocks.store(Some(Arc::new((sent, wall))));
    }

    // ## The chain

    /// Adopts the rules of the chain that the upstream serves. Another chain than before, which only development chains can
    /// become, empties the cache.
    pub(crate) fn adopt(&self, chain: &Arc<ChainIdentity>) {
        let is_adopted = || self.times.lock().adopted.as_ref().is_some_and(|known| Arc::ptr_eq(known, chain));
        if is_adopted() {
            return;
        }
        // One at a time: a call that comes meanwhile must not learn what is about to be forgotten.
        let _one = self.adopting.lock();
        if !is_adopted() {
            self.switch_to(chain);
            self.times.lock().adopted = Some(chain.clone());
        }
    }

    fn switch_to(&self, chain: &Arc<ChainIdentity>) {
        let mut times = self.times.lock();
        let before = times.chain.replace(chain.clone());
        // A development chain restarts at will, or continues another chain's history.
        let anchor = Anchor { chain_id: chain.chain_id, genesis: chain.genesis };
        self.verifier.follow(chain.chain_id, (!is_development(chain.chain_id)).then_some(anchor));
        let is_same = before.as_ref().is_some_and(|before| before.is_same_chain(chain));
        // Block 0 may have become known since.
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
        if before.is_some() {
            warn!(
                chain_id = chain.chain_id,
                "the development chain was started anew: everything is forgotten"
            );
        }
        if before.is_some() || has_loaded_other {
            // First: a fetch under way must not store its answer after the cache was emptied.
            self.generation.fetch_add(1, Relaxed);
            self.cache.clear();
        }
    }

    /// Returns the chain that the upstream serves, if it has shown it.
    pub(crate) fn chain(&self) -> Option<Arc<ChainIdentity>> {
        self.times.lock().chain.clone()
    }

    /// Returns whether the upstream has shown which chain it serves.
    pub(crate) fn has_chain(&self) -> bool {
        self.times.lock().chain.is_some()
    }

    /// Returns the number of chains so far: an answer about the one before does not count for this one.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    // ## Forgetting

    /// A write was sent or answered: answers to earlier calls do not count any more.
    pub(crate) fn invalidate_after_write(&self, resets: bool) -> Stamp {
        let now = self.clock.now();
        {
            let mut times = self.times.lock();
            times.written = Some(now);
            if resets {
                times.finalized = None;
            }
        }
        let listener = self.listener().filter(|_| resets);
        if let Some(listener) = &listener {
            // An entry that is being loaded must not come in after it was forgotten …
            listener.canonicity_doubted();
        }
        self.change(|tracker| if resets { tracker.forget(now) } else { tracker.invalidate_after_write(now) });
        if let Some(listener) = &listener {
            // … and a block that was final before must not pass for known since.
            listener.canonicity_doubted();
        }
        now
    }

    /// Forgets all canonicity: an endpoint turned out to serve another chain, and some of it may be of that chain. Content by
    /// hash stays.
    pub(crate) fn invalidate(&self) {
        let now = self.clock.now();
        // First: an entry that is being loaded must not come in after the tracker forgot it.
        if let Some(listener) = self.listener() {
            listener.canonicity_doubted();
        }
        self.change(|tracker| tracker.forget(now));
        self.forget_finalized();
    }

    /// Has the finalized block requested anew, after the tracker forgot it.
    pub(super) fn forget_finalized(&self) {
        self.times.lock().finalized = None;
        if let Some(listener) = self.listener() {
            listener.canonicity_forgotten();
        }
    }

    // ## Requests for the finalized block

    /// Returns the last request for the finalized block that counts.
    pub(super) fn finalized_request(&self) -> Option<FinalizedRequest> {
        self.times.lock().finalized
    }

    /// Notes a request for the finalized block; returns the one before.
    pub(super) fn request_finalized(&self, request: FinalizedRequest) -> Option<FinalizedRequest> {
        self.times.lock().finalized.replace(request)
    }

    /// Takes a request back that did not count; after an alarm, the one before it, too.
    pub(super) fn restore_finalized_request(&self, before: Option<FinalizedRequest>) {
        let mut times = self.times.lock();
        times.finalized = times.finalized.and(before);
    }

    /// Has the finalized block requested again.
    pub(super) fn drop_finalized_request(&self) {
        self.times.lock().finalized = None;
    }

    // ## Clocks and settings

    /// Takes the view as stale after a jump of the wall clock: the machine slept, and its monotonic clock with it.
    pub(crate) fn notice_clock_jumps(&self, now: Stamp) {
        let jumped =
            self.clocks.load().as_deref().is_some_and(|(then, wall)| {
                has_jumped(now.time.duration_since(then.time), *wall, (self.wall)())
            });
        if jumped {
            info!("the wall clock jumped: the view of the chain is taken as stale");
            self.clocks.store(None);
            self.change(|tracker| tracker.invalidate_after_write(now));
        }
    }

    /// Returns whether the operator says how deep a final block is.
    pub(crate) fn has_finality_depth(&self) -> bool {
        self.config.lock().finality_depth.is_some()
    }

    /// Sets for how long the view is fresh, on a chain where it is at all.
    pub(crate) fn set_max_staleness(&self, max_staleness: Duration) {
        // Held throughout: a chain that is adopted meanwhile must not get the old rules.
        let mut config = self.config.lock();
        config.max_staleness = max_staleness;
        let chain_id = self.times.lock().chain.as_ref().map(|chain| chain.chain_id);
        let rules = rules(&config, self.consistent.load(Relaxed), chain_id);
        self.change(|tracker| tracker.set_max_staleness(rules.max_staleness));
    }

    /// Sets whether the upstream is one node that does not contradict itself.
    pub(crate) fn set_consistent(&self, consistent: bool) {
        self.consistent.store(consistent, Relaxed);
        self.change(|tracker| tracker.set_consistent(consistent));
    }
}

/// Returns whether the wall clock went another way than the monotonic one since `then`, which stands still while a machine
/// sleeps.
fn has_jumped(passed: Duration, then: SystemTime, now: SystemTime) -> bool {
    match now.duration_since(then) {
        Ok(on_the_wall) => on_the_wall > passed + CLOCK_JUMP,
        Err(backwards) => backwards.duration() > CLOCK_JUMP,
    }
}

/// The rules for a chain; before it is known, the strictest.
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
    fn a_machine_that_slept_or_was_set_is_noticed() {
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let after = |seconds: u64| then + Duration::from_secs(seconds);
        assert!(!has_jumped(Duration::from_secs(5), then, after(5)));
        assert!(!has_jumped(Duration::from_secs(5), then, after(6)));
        // Slept for an hour: our own clock stood still.
        assert!(has_jumped(Duration::from_millis(300), then, after(3600)));
        // Set back.
        assert!(has_jumped(Duration::from_secs(5), after(60), then));
        // Under a test's clock, which passes without the wall's.
        assert!(!has_jumped(Duration::from_secs(3600), then, after(0)));
    }
}
