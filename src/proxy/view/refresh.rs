//! Asks what the tags mean, and has the tracker take it in.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::View;
use crate::{
    chain::{Finalized, Gap, HeadChange, Link, Lookup, Stamp},
    eth::{BlockNumber, Tag, ThinBlock},
    jsonrpc::{Answer, Params},
    proxy::known::KnownAt,
    upstream::{AnsweredBy, Call, EndpointId, IdentityError, Need, UpstreamError, is_absence},
    verify::{Asked, AskedBlock, Check, Checked, Kind, Verdict, Verified},
};

/// Without a call that needs it, `finalized` is asked for after so many blocks …
const FINALIZED_BLOCKS: u64 = 32;
/// … and this much time, whichever is longer.
const FINALIZED_TIME: Duration = Duration::from_secs(60);
/// Where it could not be taken in, it is asked for again after this.
const HELD_BACK: Duration = Duration::from_secs(10);

/// When that has happened so often in a row it is said, once.
const WORTH_SAYING: u32 = 3;
/// What becomes of it is waited for no longer than this.
const TAKING_IN: Duration = Duration::from_secs(2);

/// Gaps that are closed to judge one head: the second, if the window moved while the first was.
const MOST_GAPS: usize = 2;

const GET_BLOCK: &str = "eth_getBlockByNumber";

/// A block that a node named.
pub(super) struct Named {
    pub(super) thin: Verified<ThinBlock>,
    /// Whether its checks let it be kept.
    keeps: bool,
    /// Who named it.
    pub(super) by: Option<EndpointId>,
}

/// Why a node named no block.
pub(super) enum Unnamed {
    /// It has none there, or none any more; who says so.
    Absent(Option<EndpointId>),
    /// It said nothing that counts.
    Other,
}

// === impl View ===

impl View {
    pub(super) async fn refresh_head(self: Arc<Self>, sent: Stamp) -> Result<(), UpstreamError> {
        let wall = (self.wall)();
        let shown = match self.ask_head(sent).await {
            // From here on it is not asked any more: another is.
            Err(UpstreamError::Stranger(_)) => self.ask_head(sent).await,
            shown => shown,
        };
        let (named, between) = shown?;
        let link = named.link();
        let now = self.clock.now();
        let (change, links, alarmed) = self.change(|tracker| {
            let final_before = tracker.finalized();
            let links = !tracker.is_detached(link, &between);
            let change = tracker.observe_head(link, &between, sent, now);
            (change, links, final_before.filter(|_| tracker.finalized().is_none()))
        });
        if let Some((number, hash)) = alarmed {
            self.alarm(number, &format!("{hash} left the chain"));
        }
        self.clocks.store(Some(Arc::new((sent, wall))));
        self.metrics.head_observed(change);
        if let Some(reorg) = self.reorgs.note(change, link, links, SystemTime::now()) {
            self.metrics.reorganised(&reorg);
        }
        let named_by = named.by;
        self.heed(change, link, named_by);
        if let (HeadChange::Same | HeadChange::Extended(_), Some(by)) = (change, named_by) {
            // Only a node of this chain has a head that links to it.
            self.identity.vouch(by, sent.time);
        }
        self.keep(named);
        if !matches!(change, HeadChange::Outdated | HeadChange::Same | HeadChange::Lag) {
            let mut times = self.times();
            times.moved = Some(now);
            times.pace.moves(link.number, now.time);
            drop(times);
            self.moved.notify_one();
        }
        if let (HeadChange::Same | HeadChange::Extended(_), Some(by)) = (change, named_by) {
            self.look_elsewhere(by, link.number, now);
        }
        if self.finalized_is_due(link.number, now) {
            let this = self.clone();
            tokio::spawn(async move { this.refresh(Tag::Finalized, now).await });
        }
        Ok(())
    }

    /// A head that stands still for too long may be one node's only, and one that goes on may be far behind: now and then
    /// another is asked for its own, without anybody waiting for it, and followed if that is further.
    fn look_elsewhere(self: &Arc<Self>, by: EndpointId, head: BlockNumber, now: Stamp) {
        if self.upstream.is_single() {
            return;
        }
        let Some(margin) = self.times().pace.looks_elsewhere(now.time) else { return };
        let this = self.clone();
        tokio::spawn(async move {
            let (call, _) = this.call(Tag::Latest.as_str(), AskedBlock::ByTag, now);
            this.metrics.upkeep(1);
            let Some((other, verdict)) = this.upstream.ask_another(by, call).await else { return };
            let further = this.named(verdict, false).map(|named| named.link().number);
            let Some(now) = this.tracker().head() else { return };
            // One that has moved does not stand still.
            let is_due = margin > 1 || now.number == head;
            if is_due && further >= Some(BlockNumber(now.number.0.saturating_add(margin))) {
                this.upstream.follow_instead(by, other);
                let _ = this.refresh(Tag::Latest, this.clock.now()).await;
            }
        });
    }

    /// Calls about the head are shared only with those that are known to be as far. Where so many are not that it is worth
    /// a call, one is asked for its head, without anybody waiting for it.
    pub(in crate::proxy) fn look_around(self: &Arc<Self>) {
        let Some(id) = self.upstream.height_wanted() else { return };
        let (call, _) = self.call(Tag::Latest.as_str(), AskedBlock::ByTag, self.clock.now());
        self.metrics.upkeep(1);
        let upstream = self.upstream.clone();
        tokio::spawn(async move { upstream.ask_this(id, call).await });
    }

    /// A head, and what is between it and what is known, as far as that comes.
    async fn ask_head(self: &Arc<Self>, sent: Stamp) -> Result<(Named, Vec<Link>), UpstreamError> {
        let Some(named) = self.ask(Tag::Latest.as_str(), AskedBlock::ByTag, sent).await? else {
            return Err(UpstreamError::Empty);
        };
        let link = named.link();
        let mut between = Vec::new();
        let mut closed = None;
        // Looked for again after the wait: another refresh may have moved the window meanwhile.
        for _ in 0..MOST_GAPS {
            let gap = self.tracker().gap(link);
            match gap.filter(|gap| closed != Some(*gap)) {
                Some(gap) => between.extend(self.ask_gap(gap, sent).await),
                None => break,
            }
            closed = gap;
        }
        if self.tracker().is_detached(link, &between) {
            self.recognise(named.by).await?;
        }
        Ok((named, between))
    }

    fn heed(&self, change: HeadChange, head: Link, by: Option<EndpointId>) {
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
            HeadChange::Lag => {
                debug!(head = %head.number.0, "the upstream is behind the head it showed");
                // Another one may not be.
                if let Some(by) = by {
                    self.upstream.unfollow(by);
                }
            }
            HeadChange::First | HeadChange::Same | HeadChange::Extended(_) | HeadChange::Outdated => {}
        }
    }

    /// What does not link may be another chain altogether: who is it that answered? That another one is who it should
    /// be says nothing of it, and nothing that a stranger says moves anything.
    pub(super) async fn recognise(&self, by: Option<EndpointId>) -> Result<(), UpstreamError> {
        self.identity.doubt();
        let by = by.ok_or(UpstreamError::Empty)?;
        let who = self.identity.confirm_one(by).await.map_err(|error| match error {
            IdentityError::Stranger(stranger) => UpstreamError::Stranger(stranger),
            // Whoever waits for this asks for the identity too, and is told what is wrong with it.
            IdentityError::Upstream(_) => UpstreamError::Empty,
        })?;
        self.follow(&who);
        Ok(())
    }

    pub(super) async fn refresh_safe(self: Arc<Self>, sent: Stamp) -> Result<(), UpstreamError> {
        let Some(named) = self.ask(Tag::Safe.as_str(), AskedBlock::ByTag, sent).await? else {
            self.times().no_safe = Some(sent);
            return Err(UpstreamError::Empty);
        };
        let link = named.link();
        self.change(|tracker| tracker.observe_safe(link, sent));
        self.keep(named);
        Ok(())
    }

    pub(super) async fn refresh_finalized(self: Arc<Self>, sent: Stamp) -> Result<(), UpstreamError> {
        let head = self.tracker().head().map_or(BlockNumber(0), |head| head.number);
        let before = self.times().finalized.replace((sent, head));
        let mut sent = sent;
        let shown = match self.ask_finalized(sent).await {
            // From here on it is not asked any more: another is, and what it says is of now.
            Err(UpstreamError::Stranger(_)) => {
                sent = self.clock.now();
                self.ask_finalized(sent).await
            }
            shown => shown,
        };
        let Some(named) = shown? else {
            self.times().no_finalized = Some(sent);
            return Err(UpstreamError::Empty);
        };
        let link = named.link();
        self.change(|tracker| tracker.observe_finalized_tag(link, sent));
        self.keep(named);
        // What the tag means is known, whatever becomes of it; nobody waits for that for long.
        let taking_in = self.taking_in.begin(|| {
            let this = self.clone();
            async move {
                match this.take_in_finality(link, sent, before).await {
                    Ok(()) => this.times().held_back = None,
                    Err(error) => this.hold_back(&error),
                }
            }
        });
        if !taking_in.is_ours {
            // What came before is still being taken in, and this was not.
            self.unask_finalized(before);
        }
        taking_in.wait(TAKING_IN).await;
        Ok(())
    }

    /// Draws the consequences of what is final now. Fails if they cannot be drawn yet.
    async fn take_in_finality(
        self: &Arc<Self>,
        mut link: Link,
        mut sent: Stamp,
        before: Option<(Stamp, BlockNumber)>,
    ) -> Result<(), UpstreamError> {
        let is_above = self.tracker().head().is_none_or(|head| head.number < link.number);
        if is_above || !self.tracker().hears_of_finality(sent) {
            // It does not count, and so it was not asked for yet.
            self.unask_finalized(before);
        }
        if let Some(chain) = self.stored_as() {
            if self.tracker().finalized().is_none() {
                // Nothing that is known to be final vouches for what tiers were told before: that stood when it was last
                // asked for is not enough.
                self.tiers.doubt();
            }
            let era = self.tiers.era();
            // Before anything is final, and handed on. One that cannot be held against anything now is not written to.
            let counts = !is_above && {
                let tracker = self.tracker();
                tracker.hears_of_finality(sent) && !tracker.excludes(link.number, link.hash)
            };
            if counts {
                self.confirm_tiers_by(chain, (link.number, link.hash), era).await;
            } else {
                self.confirm_tiers(chain).await;
            }
            if self.tiers.era() != era {
                // An alarm, or another doubt: what was asked for before it may be what is not so any more.
                sent = self.clock.now();
                let again = self.ask_finalized(sent).await?.ok_or(UpstreamError::Empty)?;
                link = again.link();
                self.keep(again);
            }
        }
        // Where that is not known, nothing is noted over it.
        if self.leaves_what_was_final(link.number).await? {
            return Ok(());
        }
        let (now, era) = (self.clock.now(), self.tiers.era());
        match self.change(|tracker| tracker.observe_finalized(Some(link), sent, now)) {
            Finalized::Advanced { previous } => {
                self.spill(previous.map(|(number, _)| number), (link.number, link.hash), era);
            }
            Finalized::Alarm => self.alarm(link.number, &format!("it is {} now", link.hash)),
            Finalized::Contrary => {
                let _ = self.refresh(Tag::Latest, now).await;
            }
            Finalized::Unchanged => {}
        }
        Ok(())
    }

    /// What was final must still be there when something higher is; asked anew, not remembered, and before tiers note the
    /// higher one over it: after a kill they could not be held to it any more. Gives the alarm if it is not.
    async fn leaves_what_was_final(self: &Arc<Self>, higher: BlockNumber) -> Result<bool, UpstreamError> {
        let before = self.tracker().finalized().filter(|(number, _)| *number < higher);
        let Some((number, hash)) = before else { return Ok(false) };
        let Some(found) = self.replaced_by(number, hash, higher).await? else { return Ok(false) };
        let now = self.clock.now();
        let is_alarm = self.change(|tracker| tracker.confirm_final(number, found, now)) == Finalized::Alarm;
        if is_alarm {
            self.alarm(number, &format!("{hash} became {found}"));
        }
        Ok(is_alarm)
    }

    /// It is as if `finalized` had last been asked for then; after an alarm, not at all.
    fn unask_finalized(&self, before: Option<(Stamp, BlockNumber)>) {
        let mut times = self.times();
        times.finalized = times.finalized.and(before);
    }

    /// What is final now was not taken in: it is asked for again, but not with every head.
    fn hold_back(&self, error: &UpstreamError) {
        let mut times = self.times();
        times.finalized = None;
        let times_before = times.held_back.map_or(0, |(_, often)| often);
        times.held_back = Some((Instant::now(), times_before + 1));
        drop(times);
        if times_before + 1 == WORTH_SAYING {
            warn!(%error, "it cannot be told whether what was final still is: nothing more is taken as final until it can be");
        }
    }

    async fn ask_finalized(self: &Arc<Self>, sent: Stamp) -> Result<Option<Named>, UpstreamError> {
        let named = self.ask(Tag::Finalized.as_str(), AskedBlock::ByTag, sent).await?;
        if let Some(named) = &named {
            let link = named.link();
            let known = self.tracker().lookup(link.number, sent);
            if matches!(known, Lookup::Final(hash) if hash != link.hash) {
                self.recognise(named.by).await?;
            }
        }
        Ok(named)
    }

    pub(super) fn alarm(&self, number: BlockNumber, what: &str) {
        error!(
            number = number.0,
            "ALARM: a finalized block changed: {what}; all that was known of canonicity is forgotten"
        );
        self.metrics.alarm();
        self.times().finalized = None;
        if let Some(chain) = self.stored_as() {
            self.tiers.forget_canonicity(chain);
        }
    }

    fn finalized_is_due(&self, head: BlockNumber, now: Stamp) -> bool {
        if !self.tracker().rules().finality {
            return false;
        }
        if self.taking_in.is_under_way() {
            return false;
        }
        let times = self.times();
        if times.held_back.is_some_and(|(since, _)| since.elapsed() < HELD_BACK) {
            return false;
        }
        times.finalized.is_none_or(|(asked, under)| {
            now.time.duration_since(asked.time) >= FINALIZED_TIME
                && head.0 >= under.0.saturating_add(FINALIZED_BLOCKS)
        })
    }

    /// A block by number or tag, its transactions by hash; `None` if there is none, or an error instead.
    pub(super) async fn ask(
        self: &Arc<Self>,
        block: &str,
        asked: AskedBlock,
        sent: Stamp,
    ) -> Result<Option<Named>, UpstreamError> {
        Ok(self.hear(block, asked, sent).await?.ok())
    }

    /// The same, and why there is none.
    pub(super) async fn hear(
        self: &Arc<Self>,
        block: &str,
        asked: AskedBlock,
        sent: Stamp,
    ) -> Result<Result<Named, Unnamed>, UpstreamError> {
        let (call, check) = self.call(block, asked, sent);
        let by = AnsweredBy::default();
        let (is_finalized, is_tag) = (block == Tag::Finalized.as_str(), matches!(asked, AskedBlock::ByTag));
        self.metrics.upkeep(1);
        let answer = match self.upstream.call(call.with_answered_by(&by)).await {
            // Some say so with an HTTP error.
            Err(UpstreamError::Refused { error, .. }) if is_absence(&error) && !is_tag => {
                Answer::Error(error)
            }
            answer => answer?,
        };
        Ok(match (answer, check.verdict()) {
            (Answer::Result(_), Some(Verdict::Overdue)) => return Err(UpstreamError::Busy),
            (Answer::Result(result), _) if result == "null" => Err(Unnamed::Absent(by.get())),
            (Answer::Result(_), verdict) => {
                let named = self.named(verdict, is_finalized).ok_or(Unnamed::Other);
                named.map(|named| Named { by: by.get(), ..named })
            }
            (Answer::Error(error), _) if is_absence(&error) => Err(Unnamed::Absent(by.get())),
            (Answer::Error(_), _) => Err(Unnamed::Other),
        })
    }

    /// The blocks of a gap, as far as they come, by one batch.
    async fn ask_gap(self: &Arc<Self>, gap: Gap, sent: Stamp) -> Vec<Link> {
        let (calls, checks): (Vec<_>, Vec<_>) = (gap.from.0..=gap.to.0)
            .map(BlockNumber)
            .map(|number| self.call(&number.to_string(), AskedBlock::ByNumber(number), sent))
            .unzip();
        self.metrics.upkeep(calls.len() as u64);
        let answers = self.upstream.call_all(calls).await;
        let Ok(answers) = answers else { return Vec::new() };
        let accepted = answers.into_iter().zip(checks).filter(|(answer, _)| answer.is_ok());
        accepted.filter_map(|(_, check)| Some(self.named(check.verdict(), false)?.link())).collect()
    }

    fn call(self: &Arc<Self>, named: &str, asked: AskedBlock, sent: Stamp) -> (Call, Check) {
        let known = KnownAt::new(self.cache.clone(), self.clone(), sent);
        let check = self.verifier.check_for(Asked::Thin(asked), Arc::new(known));
        let call = Call::new(GET_BLOCK, Params::from_own(format!(r#"["{named}",false]"#)));
        let block = match asked {
            AskedBlock::ByNumber(number) => Some(number),
            AskedBlock::ByHash(_) | AskedBlock::ByTag => None,
        };
        let is_head = named == Tag::Latest.as_str();
        let need = Need { block, followed: true, is_head, ..Need::default() };
        (call.with_check(check.clone()).with_need(need), check)
    }

    /// What can be neither proved nor found wrong is believed, and not kept: a chain must be followed also when
    /// its newest blocks have something in them that is newer than this program. But where heads can be proved,
    /// finality waits for proof; and so does everything, where nothing less will do.
    fn named(&self, verdict: Option<Verdict>, is_finalized: bool) -> Option<Named> {
        match verdict? {
            Verdict::Passed(Checked::Thin(thin)) => Some(Named { thin, keeps: true, by: None }),
            Verdict::Unproved(_, Some(Checked::Thin(thin))) => {
                let waits = is_finalized || self.verifier.demands_proof(Kind::Blocks);
                (!waits || !self.verifier.is_sure()).then_some(Named { thin, keeps: false, by: None })
            }
            _ => None,
        }
    }

    /// Keeps a head, unless nothing less than proof will do.
    fn keep(&self, named: Named) {
        if named.keeps && (named.thin.is_proved() || !self.verifier.demands_proof(Kind::Blocks)) {
            self.cache.insert_thin(named.thin);
        }
    }
}

// === impl Named ===

impl Named {
    fn link(&self) -> Link {
        let header = self.thin.header();
        Link { number: header.number, hash: header.hash, parent: header.parent }
    }
}
