//! The view of the chain: the pure tracker, and the asking around it.
//!
//! Nothing here polls; that is for [a follower](super::Follower), where one is wanted. A call that needs a fresh view starts a refresh or joins one; `safe` and
//! `finalized` have times of their own and are asked when a call needs them, `finalized` besides
//! now and then, so that what is old becomes final.

use std::{
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tracing::{debug, error, info, warn};

use super::{Identity, Metrics, WhoIs, coalesce::Coalesce, config::ChainConfig};
use crate::{
    cache::Cache,
    chain::{Clock, Finalized, Gap, HeadChange, Link, Lookup, Rules, Stamp, Tracker},
    eth::{BlockNumber, Tag, ThinBlock},
    jsonrpc::{Answer, Params},
    upstream::{Call, Upstream, UpstreamError},
    verify::{self, AskedBlock, Verified},
};

/// Without a call that needs it, `finalized` is asked for after so many blocks …
const FINALIZED_BLOCKS: u64 = 32;
/// … and this much time, whichever is longer.
const FINALIZED_TIME: Duration = Duration::from_secs(60);

/// Gaps that are closed to judge one head: the second, if the window moved while the first was.
const MOST_GAPS: usize = 2;

/// More than clocks drift apart in the time that a view is believed: the machine slept, or was set.
const CLOCK_JUMP: Duration = Duration::from_secs(1);

const GET_BLOCK: &str = "eth_getBlockByNumber";

/// What is known of the chain, shared by all calls.
#[derive(Debug)]
pub(super) struct View {
    tracker: RwLock<Tracker>,
    clock: Clock,
    config: ChainConfig,
    consistent: bool,
    cache: Cache,
    upstream: Upstream,
    identity: Identity,
    metrics: Metrics,
    refreshes: Coalesce<Tag, Result<(), UpstreamError>>,
    asked: Mutex<Asked>,
    /// The head is another. A permit is kept for the one who waits.
    moved: Notify,
    /// Something is being done that nobody waits for.
    working: AtomicBool,
    /// How many chains there have been.
    generation: AtomicU64,
}

/// When things were last asked for or changed.
#[derive(Debug, Default)]
struct Asked {
    /// The head under which `finalized` was last asked for.
    finalized: Option<(Stamp, BlockNumber)>,
    /// The last call that can have changed what reads see.
    written: Option<Stamp>,
    /// When the node last had no block for the tag.
    no_safe: Option<Stamp>,
    no_finalized: Option<Stamp>,
    /// Both clocks at the last refresh.
    clocks: Option<(Stamp, SystemTime)>,
    /// Whose chain the tracker follows.
    who: Option<Arc<WhoIs>>,
}

// === impl View ===

impl View {
    pub(super) fn new(
        config: ChainConfig,
        consistent: bool,
        cache: Cache,
        upstream: Upstream,
        identity: Identity,
        metrics: Metrics,
    ) -> Self {
        let tracker = RwLock::new(Tracker::new(rules(&config, consistent, None)));
        Self {
            tracker,
            clock: Clock::default(),
            config,
            consistent,
            cache,
            upstream,
            identity,
            metrics,
            refreshes: Coalesce::default(),
            asked: Mutex::default(),
            moved: Notify::new(),
            working: AtomicBool::new(false),
            generation: AtomicU64::new(0),
        }
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The tracker, as it is now. Not to be held while waiting.
    pub(super) fn tracker(&self) -> RwLockReadGuard<'_, Tracker> {
        self.tracker.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the tracker.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Tracker) -> T) -> T {
        change(&mut self.tracker.write().unwrap_or_else(PoisonError::into_inner))
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
    }

    /// Was this sent before the last call that can have changed what reads see?
    pub(super) fn is_outwritten(&self, sent: Stamp) -> bool {
        self.asked().written.is_some_and(|written| sent.is_before(written))
    }

    /// Takes the rules of the chain that the upstream serves. Another chain than before, which only
    /// development chains may become, empties everything.
    pub(super) fn follow(&self, who: &Arc<WhoIs>) {
        let mut asked = self.asked();
        if asked.who.as_ref().is_some_and(|known| Arc::ptr_eq(known, who)) {
            return;
        }
        let before = asked.who.replace(who.clone());
        if before.as_ref().is_some_and(|before| before.is_same_chain(who)) {
            return;
        }
        asked.finalized = None;
        drop(asked);
        let now = self.clock.now();
        let rules = rules(&self.config, self.consistent, Some(who.chain_id));
        self.change(|tracker| {
            *tracker = Tracker::new(rules);
            tracker.forget(now);
        });
        if before.is_some() {
            warn!(chain_id = who.chain_id, "the development chain was started anew: everything is forgotten");
            // First: what is under way must not come in after it was emptied.
            self.generation.fetch_add(1, Relaxed);
            self.cache.clear();
        }
    }

    /// A write was sent or answered: nothing sent before this moment tells what is.
    pub(super) fn unsettle(&self, resets: bool) -> Stamp {
        let now = self.clock.now();
        {
            let mut asked = self.asked();
            asked.written = Some(now);
            if resets {
                asked.finalized = None;
            }
        }
        self.change(|tracker| if resets { tracker.forget(now) } else { tracker.unsettle(now) });
        now
    }

    /// Did the node say, recently enough for this arrival, that it has no block for this tag?
    pub(super) fn has_none(&self, tag: Tag, arrival: Stamp) -> bool {
        let asked = self.asked();
        let none = match tag {
            Tag::Safe => asked.no_safe,
            Tag::Finalized => asked.no_finalized,
            Tag::Latest | Tag::Earliest | Tag::Pending => None,
        };
        drop(asked);
        none.is_some_and(|sent| self.may_join(sent, arrival))
    }

    /// Makes sure that there is a head, and that what is final was asked for.
    pub(super) async fn establish(self: &Arc<Self>, arrival: Stamp) -> Result<(), UpstreamError> {
        if self.tracker().head().is_some() {
            return Ok(());
        }
        // The head first: `finalized` counts only at or below it.
        self.refresh(Tag::Latest, arrival).await?;
        if self.asked().finalized.is_none() && self.tracker().rules().finality {
            // A node that knows no finality says so with an error, and that is an answer.
            let _ = self.refresh(Tag::Finalized, arrival).await;
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
                move || async move {
                    match tag {
                        Tag::Latest => asking.refresh_head(now).await,
                        Tag::Safe => asking.refresh_safe(now).await,
                        Tag::Finalized => asking.refresh_finalized(now).await,
                        Tag::Earliest | Tag::Pending => Ok(()),
                    }
                },
            );
            refreshed.await.map_or(Err(UpstreamError::Abandoned), |landed| landed.value)
        })
    }

    /// Starts a refresh if the view will soon not be fresh any more, and waits for nothing.
    pub(super) fn refresh_ahead(self: &Arc<Self>, arrival: Stamp) {
        let half = self.tracker().rules().max_staleness / 2;
        let ages = |sent: Stamp| sent.serves(arrival, half * 2) && !sent.serves(arrival, half);
        let aging = self.tracker().refreshed().is_some_and(ages);
        if aging && !half.is_zero() {
            let this = self.clone();
            self.meanwhile(async move { this.refresh(Tag::Latest, this.clock.now()).await });
        }
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
                let _ = work.await;
                this.working.store(false, Relaxed);
            });
        }
    }

    /// Which chain this is, counted: what was asked of the one before is nothing to this one.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// After a jump of the wall clock nothing is fresh: the machine slept, and its own clock with it.
    pub(super) fn notice_clock_jumps(&self, now: Stamp) {
        let Some((then, wall)) = self.asked().clocks else { return };
        let jumped = has_jumped(now.time.duration_since(then.time), wall, SystemTime::now());
        if jumped {
            info!("the wall clock jumped: the view of the chain is taken as stale");
            self.asked().clocks = None;
            self.change(|tracker| tracker.unsettle(now));
        }
    }

    async fn refresh_head(self: Arc<Self>, sent: Stamp) -> Result<(), UpstreamError> {
        let wall = SystemTime::now();
        let Some(thin) = self.ask(Tag::Latest.as_str(), AskedBlock::ByTag).await? else {
            return Err(UpstreamError::Empty);
        };
        let link = link(&thin);
        let mut between = Vec::new();
        let mut closed = None;
        // Looked for again after the wait: another refresh may have moved the window meanwhile.
        for _ in 0..MOST_GAPS {
            let gap = self.tracker().gap(link);
            match gap.filter(|gap| closed != Some(*gap)) {
                Some(gap) => between.extend(self.ask_gap(gap).await),
                None => break,
            }
            closed = gap;
        }
        if self.tracker().is_detached(link, &between) {
            self.recognise().await?;
        }
        let now = self.clock.now();
        let (change, alarmed) = self.change(|tracker| {
            let final_before = tracker.finalized();
            let change = tracker.observe_head(link, &between, sent, now);
            (change, final_before.filter(|_| tracker.finalized().is_none()))
        });
        if let Some((number, hash)) = alarmed {
            self.alarm(number, &format!("{hash} left the chain"));
        }
        self.asked().clocks = Some((sent, wall));
        self.metrics.head_observed(change);
        self.heed(change, link);
        self.cache.insert_thin(thin);
        if !matches!(change, HeadChange::Outdated | HeadChange::Same | HeadChange::Lag) {
            self.moved.notify_one();
        }
        if self.finalized_is_due(link.number, now) {
            let this = self.clone();
            tokio::spawn(async move { this.refresh(Tag::Finalized, now).await });
        }
        Ok(())
    }

    fn heed(&self, change: HeadChange, head: Link) {
        match change {
            HeadChange::Reorg(depth) => {
                info!(head = %head.number.0, hash = %head.hash, depth, "the chain was reorganised");
            }
            HeadChange::Rollback(depth) => {
                info!(head = %head.number.0, hash = %head.hash, depth, "the chain went back");
            }
            HeadChange::Restarted => {
                debug!(head = %head.number.0, "the head is too far ahead to link to what was known");
            }
            HeadChange::Lag => debug!(head = %head.number.0, "the upstream is behind the head it showed"),
            HeadChange::First | HeadChange::Same | HeadChange::Extended(_) | HeadChange::Outdated => {}
        }
    }

    /// What does not link may be another chain altogether: who is it that answers? Nothing that a
    /// stranger says moves anything.
    async fn recognise(&self) -> Result<(), UpstreamError> {
        self.identity.doubt();
        // Whoever waits for this asks for the identity too, and is told what is wrong with it.
        let who = self.identity.confirm().await.map_err(|_| UpstreamError::Empty)?;
        self.follow(&who);
        Ok(())
    }

    async fn refresh_safe(self: Arc<Self>, sent: Stamp) -> Result<(), UpstreamError> {
        let Some(thin) = self.ask(Tag::Safe.as_str(), AskedBlock::ByTag).await? else {
            self.asked().no_safe = Some(sent);
            return Err(UpstreamError::Empty);
        };
        let link = link(&thin);
        self.change(|tracker| tracker.observe_safe(link, sent));
        self.cache.insert_thin(thin);
        Ok(())
    }

    async fn refresh_finalized(self: Arc<Self>, sent: Stamp) -> Result<(), UpstreamError> {
        let head = self.tracker().head().map_or(BlockNumber(0), |head| head.number);
        let before = self.asked().finalized.replace((sent, head));
        let Some(thin) = self.ask(Tag::Finalized.as_str(), AskedBlock::ByTag).await? else {
            self.asked().no_finalized = Some(sent);
            return Err(UpstreamError::Empty);
        };
        let link = link(&thin);
        let known = self.tracker().lookup(link.number, sent);
        if matches!(known, Lookup::Final(hash) if hash != link.hash) {
            self.recognise().await?;
        }
        if self.tracker().head().is_none_or(|head| head.number < link.number) {
            // Above the head it does not count yet, and so it was not asked for yet.
            self.asked().finalized = before;
        }
        let now = self.clock.now();
        let change = self.change(|tracker| tracker.observe_finalized(Some(link), sent, now));
        self.cache.insert_thin(thin);
        match change {
            Finalized::Advanced { previous: Some((number, hash)) } => {
                // What was final before must still be there; asked anew, not remembered.
                if let Ok(Some(again)) = self.ask(&number.to_string(), AskedBlock::ByNumber(number)).await
                    && self.change(|tracker| tracker.confirm_final(number, again.hash(), now))
                        == Finalized::Alarm
                {
                    self.alarm(number, &format!("{} became {}", hash, again.hash()));
                }
            }
            Finalized::Alarm => self.alarm(link.number, &format!("it is {} now", link.hash)),
            Finalized::Contrary => {
                let _ = self.refresh(Tag::Latest, now).await;
            }
            Finalized::Unchanged | Finalized::Advanced { previous: None } => {}
        }
        Ok(())
    }

    fn alarm(&self, number: BlockNumber, what: &str) {
        error!(
            number = number.0,
            "ALARM: a finalized block changed: {what}; all that was known of canonicity is forgotten"
        );
        self.metrics.alarm();
        self.asked().finalized = None;
    }

    fn finalized_is_due(&self, head: BlockNumber, now: Stamp) -> bool {
        if !self.tracker().rules().finality {
            return false;
        }
        self.asked().finalized.is_none_or(|(asked, under)| {
            now.time.duration_since(asked.time) >= FINALIZED_TIME
                && head.0 >= under.0.saturating_add(FINALIZED_BLOCKS)
        })
    }

    /// A block by number or tag, its transactions by hash; `None` if there is none, or an error instead.
    async fn ask(
        &self,
        block: &str,
        asked: AskedBlock,
    ) -> Result<Option<Verified<ThinBlock>>, UpstreamError> {
        let call = Call::new(GET_BLOCK, Params::from_own(format!(r#"["{block}",false]"#)));
        self.metrics.upkeep(1);
        Ok(self.read(self.upstream.call(call).await.inspect_err(|error| self.heed_loss(error))?, asked))
    }

    /// The blocks of a gap, as far as they come, by one batch.
    async fn ask_gap(&self, gap: Gap) -> Vec<Link> {
        let numbers: Vec<_> = (gap.from.0..=gap.to.0).map(BlockNumber).collect();
        let calls = numbers
            .iter()
            .map(|number| Call::new(GET_BLOCK, Params::from_own(format!(r#"["{number}",false]"#))))
            .collect();
        self.metrics.upkeep(numbers.len() as u64);
        let answers = self.upstream.call_all(calls).await.inspect_err(|error| self.heed_loss(error));
        let Ok(answers) = answers else { return Vec::new() };
        let blocks = answers
            .into_iter()
            .zip(numbers)
            .filter_map(|(answer, number)| self.read(answer.ok()?, AskedBlock::ByNumber(number)));
        blocks.map(|thin| link(&thin)).collect()
    }

    fn read(&self, answer: Answer, asked: AskedBlock) -> Option<Verified<ThinBlock>> {
        match answer {
            Answer::Result(result) if result == "null" => None,
            Answer::Result(result) => verify::thin_block(&result, asked)
                .inspect_err(|failure| {
                    warn!(%failure, "a head cannot be right; it is not believed");
                    self.metrics.mismatch(failure.as_str());
                })
                .ok(),
            Answer::Error(_) => None,
        }
    }

    /// Whoever answers after contact was lost must say who it is.
    fn heed_loss(&self, error: &UpstreamError) {
        if error.lost_contact() {
            self.identity.doubt();
        }
    }

    fn asked(&self) -> std::sync::MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn link(thin: &ThinBlock) -> Link {
    let header = thin.header();
    Link { number: header.number, hash: header.hash, parent: header.parent }
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
    let development = chain_id.is_none_or(super::identity::is_development);
    Rules {
        max_staleness: if development { Duration::ZERO } else { config.max_staleness },
        window: config.window,
        rollback_after: if development { 1 } else { config.rollback_after },
        lag_patience: if development { Duration::ZERO } else { config.lag_patience },
        consistent,
        finality: !development,
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
