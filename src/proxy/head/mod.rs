//! The view of the chain: the pure tracker, and the asking around it.
//!
//! Nothing here polls; that is for [a follower](super::Follower), where one is wanted. A call that needs a fresh view starts a refresh or joins one; `safe` and
//! `finalized` have times of their own and are asked when a call needs them, `finalized` besides
//! now and then, so that what is old becomes final.

mod background;
mod confirm;
pub(super) mod known;
mod refresh;
pub(super) mod reorgs;
mod stall;
mod write_back;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwapOption;
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::{sync::Notify, time::Instant};
use tracing::{info, warn};

use self::{background::Single, confirm::Attempt, stall::Pace, write_back::key_of};
use crate::{
    cache::{
        Cache, Tiers,
        tier::{ChainKey, TierKind},
    },
    chain::{Clock, Find, Link, Rules, Stamp, Tracker},
    client::Client,
    eth::{BlockHash, BlockNumber, Tag},
    proxy::{
        config::ChainConfig, head::reorgs::Reorgs, metrics::Metrics, miss::single_flight::Coalesce,
        stack::ProxyParts,
    },
    timeout::timeout,
    upstream::{ChainIdentity, Identity, Upstream, UpstreamError, is_development},
    verify::{Anchor, Verifier},
};

/// A lower head is a rollback after so many observations: a load balancer may show a lagging replica twice.
const ROLLBACK_AFTER: u32 = 3;

/// So long it is waited for what is final: without it, the node can be asked.
const FINALITY_PATIENCE: Duration = Duration::from_secs(2);
/// If the node says that nothing is, it is not waited for again before this. If it says nothing at all, neither: after twice
/// as long each time, up to this.
const FINALITY_AGAIN: Duration = Duration::from_secs(60);

/// More than clocks drift apart in the time that a view is believed: the machine slept, or was set.
const CLOCK_JUMP: Duration = Duration::from_secs(1);

/// What is known of the chain, shared by all calls.
#[derive(Debug)]
pub(super) struct View {
    tracker: RwLock<Tracker>,
    clock: Clock,
    wall: fn() -> SystemTime,
    config: Mutex<ChainConfig>,
    consistent: AtomicBool,
    cache: Cache,
    tiers: Tiers,
    /// Tiers are being confirmed.
    confirming: Single,
    /// What is final is taken in.
    taking_in: Single,
    following: Mutex<()>,
    upstream: Upstream,
    identity: Identity,
    verifier: Verifier,
    metrics: Metrics,
    refreshes: Coalesce<Tag, Result<(), UpstreamError>>,
    times: Mutex<Times>,
    /// Both clocks at the last refresh. Not among the times: each packet looks at it, and must not wait for a lock.
    clocks: ArcSwapOption<(Stamp, SystemTime)>,
    /// The head is another. A permit is kept for the one who waits.
    moved: Notify,
    /// Something is being done that nobody waits for.
    working: AtomicBool,
    /// How many chains there have been.
    generation: AtomicU64,
    reorgs: Reorgs,
}

/// When things were last asked for or changed.
#[derive(Debug, Default)]
struct Times {
    /// The head under which `finalized` was last asked for.
    finalized: Option<(Stamp, BlockNumber)>,
    /// The last call that can have changed what reads see.
    written: Option<Stamp>,
    /// When the head last became another.
    moved: Option<Stamp>,
    /// When the node last had no block for the tag.
    no_safe: Option<Stamp>,
    no_finalized: Option<Stamp>,
    /// When it was last waited for what is final, and nothing came; and how long it is not waited for again.
    no_finality: Option<(Instant, Duration)>,
    /// When what is final was last held back, since it could not be told whether what was before still is; and how often in a
    /// row.
    held_back: Option<(Instant, u32)>,
    /// When an answer last contradicted a final block, and the finalized one was asked for.
    rechecked: Option<Instant>,
    /// How fast the chain goes.
    pace: Pace,
    /// Whose chain the tracker follows …
    who: Option<Arc<ChainIdentity>>,
    /// … when all that was known of another is forgotten.
    followed: Option<Arc<ChainIdentity>>,
    /// The last attempt to confirm tiers.
    confirm_attempt: Option<Attempt>,
    /// The chain that tiers were asked for before any upstream had said what it is.
    believed: Option<ChainKey>,
}

// === impl View ===

impl View {
    pub(super) fn new(config: ChainConfig, parts: &ProxyParts) -> Self {
        let ProxyParts { upstream, cache, tiers, verifier, consistent, wall, metrics } = parts.clone();
        let tracker = RwLock::new(Tracker::new(rules(&config, consistent, None)));
        Self {
            tracker,
            clock: Clock::default(),
            wall,
            config: Mutex::new(config),
            consistent: AtomicBool::new(consistent),
            cache,
            tiers,
            confirming: Single::default(),
            taking_in: Single::default(),
            following: Mutex::default(),
            identity: upstream.identity(),
            upstream,
            verifier,
            metrics,
            refreshes: Coalesce::default(),
            times: Mutex::default(),
            clocks: ArcSwapOption::empty(),
            moved: Notify::new(),
            working: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            reorgs: Reorgs::default(),
        }
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The tracker, as it is now. Not to be held while waiting.
    pub(super) fn tracker(&self) -> RwLockReadGuard<'_, Tracker> {
        self.tracker.read()
    }

    /// Changes the tracker, and has tiers drop final entries that were contradicted by it.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Tracker) -> T) -> T {
        let (changed, dropped) = {
            let mut tracker = self.tracker.write();
            let changed = change(&mut tracker);
            self.cache.set_head(tracker.head().map(|head| head.number));
            (changed, tracker.take_dropped())
        };
        // Not before there is a need: some who change it hold the configuration's lock.
        if !dropped.is_empty()
            && let Some(chain) = self.stored_as()
        {
            for (number, hash) in dropped {
                self.tiers.drop_final(chain, number, hash);
            }
        }
        changed
    }

    /// Changes the tracker by what an answer showed, and writes blocks that became final by it back to tiers.
    pub(super) fn learn<T>(self: &Arc<Self>, learn: impl FnOnce(&mut Tracker, Find<'_>) -> T) -> T {
        let find = |hash| self.cached_link(hash);
        let (learned, entered) = self.change(|tracker| {
            let learned = learn(tracker, &find);
            (learned, tracker.take_entered())
        });
        self.spill_all(&entered);
        learned
    }

    /// The block with this hash and its parent, as far as the cache has it.
    pub(super) fn cached_link(&self, hash: BlockHash) -> Option<Link> {
        let block = self.cache.peek_block(hash).map(|block| Link::from(block.header()));
        block.or_else(|| self.cache.peek_thin(hash).map(|thin| Link::from(thin.header())))
    }

    /// Resolves when the head has become another since the last time; for one who waits, not for more.
    pub(super) async fn moved(&self) {
        self.moved.notified().await;
    }

    /// May a call that arrived then join what was sent at `sent`?
    pub(super) fn may_join(&self, sent: Stamp, arrival: Stamp) -> bool {
        let tracker = self.tracker();
        // What was sent before a reorg was seen may be an answer from the branch that was left.
        tracker.counts(sent)
            && sent.serves(arrival, tracker.rules().max_staleness)
            && !self.is_outwritten(sent)
            // Nor may what was sent before the head that everybody has been shown, whether it left a branch or not.
            && !self.times.lock().moved.is_some_and(|moved| sent.is_before(moved))
    }

    /// Was this sent before the last call that can have changed what reads see?
    pub(super) fn is_outwritten(&self, sent: Stamp) -> bool {
        self.times.lock().written.is_some_and(|written| sent.is_before(written))
    }

    /// Takes the rules of the chain that the upstream serves. Another chain than before, which only
    /// development chains may become, empties everything.
    pub(super) fn follow(&self, who: &Arc<ChainIdentity>) {
        let is_followed = || self.times.lock().followed.as_ref().is_some_and(|known| Arc::ptr_eq(known, who));
        if is_followed() {
            return;
        }
        // One at a time: whoever comes meanwhile must not learn what is about to be forgotten.
        let _one = self.following.lock();
        if !is_followed() {
            self.turn_to(who);
            self.times.lock().followed = Some(who.clone());
        }
    }

    fn turn_to(&self, who: &Arc<ChainIdentity>) {
        let mut times = self.times.lock();
        let before = times.who.replace(who.clone());
        // A development chain is started anew at will, or goes on from another chain's history.
        let anchor = Anchor { chain_id: who.chain_id, genesis: who.genesis };
        self.verifier.follow(who.chain_id, (!is_development(who.chain_id)).then_some(anchor));
        let is_same = before.as_ref().is_some_and(|before| before.is_same_chain(who));
        if is_same && before.as_deref().and_then(key_of) == key_of(who) {
            return;
        }
        times.finalized = times.finalized.take().filter(|_| is_same);
        let believed = times.believed.take();
        drop(times);
        // Also where no more than its block 0 has become known.
        self.tiers.follow(self.stored_as());
        if who.genesis.is_none() && !self.tiers.is_empty() {
            warn!(
                chain_id = who.chain_id,
                "the upstream does not show its block 0, which tiers tell chains apart by: nothing is kept in them, and nothing \
                 is answered from them"
            );
        }
        if is_same {
            return;
        }
        let now = self.clock.now();
        {
            let config = self.config.lock();
            let rules = rules(&config, self.consistent.load(Relaxed), Some(who.chain_id));
            self.change(|tracker| {
                *tracker = Tracker::new(rules);
                tracker.forget(now);
            });
        }
        if before.is_some() {
            warn!(chain_id = who.chain_id, "the development chain was started anew: everything is forgotten");
        }
        // Before the upstream said who it is, tiers may have answered of another.
        if before.is_some() || believed.is_some_and(|believed| Some(believed) != self.stored_as()) {
            // First: what is under way must not come in after it was emptied.
            self.generation.fetch_add(1, Relaxed);
            self.cache.clear();
        }
    }

    /// Whose blocks tiers may be asked for as long as no upstream has said what chain it is: this one's, which was followed
    /// last. `None` if one has.
    pub(super) fn believe(&self, chain: ChainKey) -> Option<ChainKey> {
        let mut times = self.times.lock();
        if times.who.is_some() {
            return None;
        }
        times.believed = Some(chain);
        Some(chain)
    }

    /// Is it known whose chain this is?
    pub(super) fn is_followed(&self) -> bool {
        self.times.lock().who.is_some()
    }

    /// A write was sent or answered: nothing sent before this moment tells what is.
    pub(super) fn unsettle(&self, resets: bool) -> Stamp {
        let now = self.clock.now();
        {
            let mut times = self.times.lock();
            times.written = Some(now);
            if resets {
                times.finalized = None;
            }
        }
        if resets {
            // What they say must not come in after it was forgotten …
            self.tiers.doubt();
        }
        self.change(|tracker| if resets { tracker.forget(now) } else { tracker.invalidate_after_write(now) });
        if resets {
            // … and what was final before must not pass for known since.
            self.tiers.doubt();
        }
        now
    }

    /// Forgets all canonicity, in tiers, too: an endpoint turned out to serve another chain, and some of it may be of that
    /// chain. Content by hash stays.
    pub(super) fn invalidate(&self) {
        let now = self.clock.now();
        // First: an entry that is being loaded from a tier must not come in after the tracker forgot it.
        self.tiers.doubt();
        self.change(|tracker| tracker.forget(now));
        self.forget_finalized();
    }

    /// Has the finalized block asked for anew, and tiers forget all canonicity.
    fn forget_finalized(&self) {
        self.times.lock().finalized = None;
        if let Some(chain) = self.stored_as() {
            self.tiers.forget(chain, &TierKind::ALL);
        }
    }

    /// Did the node say, recently enough for this arrival, that it has no block for this tag?
    pub(super) fn has_none(&self, tag: Tag, arrival: Stamp) -> bool {
        let times = self.times.lock();
        let none = match tag {
            Tag::Safe => times.no_safe,
            Tag::Finalized => times.no_finalized,
            Tag::Latest | Tag::Earliest | Tag::Pending => None,
        };
        drop(times);
        none.is_some_and(|sent| self.may_join(sent, arrival))
    }

    /// Makes sure that there is a head, and that what is final was asked for.
    pub(super) async fn establish(self: &Arc<Self>, arrival: Stamp) -> Result<(), UpstreamError> {
        if self.tracker().head().is_some() {
            return Ok(());
        }
        // The head first: `finalized` counts only at or below it.
        self.refresh(Tag::Latest, arrival).await?;
        if self.times.lock().finalized.is_none() && self.tracker().rules().finality {
            // A node that knows no finality says so with an error, and that is an answer.
            let _ = self.refresh(Tag::Finalized, arrival).await;
        }
        Ok(())
    }

    /// The same, and waits for what is final too, if that is to be known.
    pub(super) async fn establish_finality(self: &Arc<Self>, arrival: Stamp) -> Result<(), UpstreamError> {
        self.establish(arrival).await?;
        let is_wanted = {
            let tracker = self.tracker();
            tracker.rules().finality && tracker.finalized().is_none()
        };
        let vain = self.times.lock().no_finality;
        if is_wanted && vain.is_none_or(|(since, pause)| since.elapsed() >= pause) {
            let refreshed = timeout(FINALITY_PATIENCE, self.refresh(Tag::Finalized, arrival)).await;
            let is_known = self.tracker().finalized().is_some();
            let says_so = matches!(refreshed, Ok(Err(UpstreamError::Empty)));
            let twice = vain.map_or(FINALITY_PATIENCE, |(_, pause)| pause * 2);
            let pause = if says_so { FINALITY_AGAIN } else { twice.min(FINALITY_AGAIN) };
            self.times.lock().no_finality = (!is_known).then(|| (Instant::now(), pause));
        }
        Ok(())
    }

    /// Asks what `tag` means, or joins somebody who has asked recently enough for this arrival.
    ///
    /// Boxed, because what one tag shows can make it necessary to ask for another.
    pub(super) fn refresh(
        self: &Arc<Self>,
        tag: Tag,
        arrival: Stamp,
    ) -> BoxFuture<'static, Result<(), UpstreamError>> {
        let this = self.clone();
        Box::pin(async move {
            let now = this.clock.now();
            let asking = this.clone();
            let refreshed = this.refreshes.run(
                tag,
                now,
                |sent| this.may_join(sent, arrival),
                move || {
                    // For everybody, whoever began it.
                    Client::serve(None, async move {
                        let metrics = asking.metrics.clone();
                        let refreshed = match tag {
                            Tag::Latest => asking.refresh_head(now).await,
                            Tag::Safe => asking.refresh_safe(now).await,
                            Tag::Finalized => asking.refresh_finalized(now).await,
                            Tag::Earliest | Tag::Pending => return Ok(()),
                        };
                        if !matches!(refreshed, Err(UpstreamError::Cancelled)) {
                            metrics.refreshed(tag, refreshed.is_ok());
                        }
                        refreshed
                    })
                },
            );
            refreshed.await.map_or(Err(UpstreamError::Abandoned), |landed| landed.value)
        })
    }

    /// Makes sure of a head, and waits for nothing.
    pub(super) fn establish_meanwhile(self: &Arc<Self>, arrival: Stamp) {
        let this = self.clone();
        self.meanwhile(async move { this.establish(arrival).await });
    }

    /// Does something that nobody waits for, unless something of the kind is being done already:
    /// calls can come faster than an upstream that hangs lets go.
    fn meanwhile(self: &Arc<Self>, work: impl Future<Output = Result<(), UpstreamError>> + Send + 'static) {
        if !self.working.swap(true, Relaxed) {
            let this = self.clone();
            tokio::spawn(async move {
                // However it ends: what died must not keep everything else from being done.
                let _working = Working(this);
                let _ = work.await;
            });
        }
    }

    /// How long ago the head became what it is.
    pub(super) fn head_age(&self) -> Option<Duration> {
        self.times.lock().pace.age(self.clock.now().time)
    }

    /// When blocks last left the chain.
    pub(super) fn reorgs(&self) -> &Reorgs {
        &self.reorgs
    }

    /// Which chain this is, counted: what was asked of the one before is nothing to this one.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// After a jump of the wall clock nothing is fresh: the machine slept, and its own clock with it.
    pub(super) fn notice_clock_jumps(&self, now: Stamp) {
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

    /// Believes what is known for so long from now on, if this is a chain where it is believed at all.
    pub(super) fn set_max_staleness(&self, max_staleness: Duration) {
        // Held throughout: whoever takes the rules of a chain meanwhile must not come in with the old ones.
        let mut config = self.config.lock();
        config.max_staleness = max_staleness;
        let chain_id = self.times.lock().who.as_ref().map(|who| who.chain_id);
        let rules = rules(&config, self.consistent.load(Relaxed), chain_id);
        self.change(|tracker| tracker.set_max_staleness(rules.max_staleness));
    }

    /// Whether the upstream is one node that does not contradict itself, from now on.
    pub(super) fn set_consistent(&self, consistent: bool) {
        self.consistent.store(consistent, Relaxed);
        self.change(|tracker| tracker.set_consistent(consistent));
    }
}

/// Something that nobody waits for is being done, until this is dropped.
struct Working(Arc<View>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.working.store(false, Relaxed);
    }
}

/// Has the wall clock gone another way than our own since `then`? Ours stands still while a machine sleeps.
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
