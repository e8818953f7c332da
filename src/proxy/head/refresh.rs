//! Asks what the tags mean, and has the tracker take it in.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::View;
use crate::{
    cache::Checkpoint,
    chain::{Denied, Finalized, Gap, HeadChange, Link, Lookup, Stamp},
    eth::{At, BlockHash, BlockNumber, Part, Query, Tag, ThinBlock},
    jsonrpc::Answer,
    proxy::head::known::KnownAt,
    upstream::{
        AnsweredBy, Audience, Call, EndpointId, IdentityError, Requirements, UpstreamError, is_absence,
        is_internal, is_rate_limit,
    },
    verify::{Check, Content, Kind, Level, Verdict, Verified},
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

/// Parents that are asked for by hash to judge one head. Deeper reorganisations are rare, and one call for the finalized
/// block tells as much of them.
const MOST_PARENTS: usize = 8;

/// At most so often the finalized block is asked for because an answer contradicts a final one.
const RECHECKED: Duration = Duration::from_secs(1);

/// A block that a node named.
pub(super) struct Named {
    pub(super) thin: Arc<Verified<ThinBlock>>,
    /// Whether its checks let it be kept.
    keeps: bool,
    /// Who named it.
    pub(super) by: Option<EndpointId>,
}

/// A head that was shown, and what is known of it beside.
struct ShownHead {
    named: Named,
    /// Blocks between it and the window, as far as they came.
    between: Vec<Link>,
    /// The finalized block, if the head does not link to it and whoever showed the head has shown that block, too.
    finalized: Option<(BlockNumber, BlockHash)>,
}

/// What an endpoint says of the finalized block.
enum FinalCheck {
    /// It has that block, or has pruned it.
    Stands,
    /// It denies the block: nothing that is known of canonicity counts for now.
    Suspended,
    /// It has another block there: everything was forgotten.
    Alarm,
}

/// Why a node named no block.
pub(super) enum Unnamed {
    /// It has none there, or none any more; who says so.
    Absent(Option<EndpointId>),
    /// It answered with an error of its own wording; who says so.
    Refused(Option<EndpointId>),
    /// It broke.
    Broken,
    /// It said nothing that counts.
    Other,
}

// === impl View ===

impl View {
    pub(super) async fn refresh_head(self: Arc<Self>, sent: Stamp) -> Result<(), UpstreamError> {
        if !self.tracker().may_refresh(sent) {
            // The finalized block was denied a moment ago.
            return Ok(());
        }
        self.change(|tracker| tracker.begin_refresh(sent));
        let (wall, mut sent) = ((self.wall)(), sent);
        let mut shown = self.ask_head(sent).await;
        match &shown {
            // The endpoint is not asked any more: another is. After this, and after an alarm, no answer to an earlier call
            // counts.
            Err(UpstreamError::WrongChain(_)) => {
                sent = self.clock.now();
                shown = self.ask_head(sent).await;
            }
            Ok(None) if !self.tracker().is_suspended() => {
                sent = self.clock.now();
                shown = self.ask_head(sent).await;
            }
            Ok(_) | Err(_) => {}
        }
        let Some(ShownHead { named, between, finalized }) = shown? else { return Ok(()) };
        let link = named.link();
        let now = self.clock.now();
        let (change, links, alarmed, was_suspended) = self.change(|tracker| {
            let (final_before, was_suspended) = (tracker.finalized(), tracker.is_suspended());
            let links = !tracker.is_detached(link, &between);
            let change = tracker.observe_head(link, &between, finalized, sent, now);
            let alarmed = final_before.filter(|_| tracker.finalized().is_none());
            (change, links, alarmed, was_suspended && !tracker.is_suspended())
        });
        if let Some((number, hash)) = alarmed {
            self.alarm(number, &format!("{hash} left the chain"));
        }
        if was_suspended {
            info!(head = link.number.0, "finalized block confirmed again; serving from the cache resumes");
        }
        if change == HeadChange::Unlinked {
            // What is final rose meanwhile: the next refresh asks for that block.
            self.metrics.head_observed(change);
            return Err(unshown());
        }
        self.clocks.store(Some(Arc::new((sent, wall))));
        self.metrics.head_observed(change);
        if let Some(reorg) = self.reorgs.note(change, link, links, SystemTime::now()) {
            self.metrics.reorganised(&reorg);
        }
        let named_by = named.by;
        self.heed(change, link, named_by);
        self.keep(named);
        if !matches!(change, HeadChange::Outdated | HeadChange::Same | HeadChange::Lag) {
            let mut times = self.times.lock();
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
        let Some(margin) = self.times.lock().pace.looks_elsewhere(now.time) else { return };
        let this = self.clone();
        tokio::spawn(async move {
            let (call, _) = this.call(Tag::Latest, now);
            this.metrics.upkeep(1);
            let Some((other, verdict)) = this.upstream.call_another(by, call).await else { return };
            let further = this.named(verdict, false).map(|named| named.link().number);
            let Some(now) = this.tracker().head() else { return };
            // One that has moved does not stand still.
            let is_due = margin > 1 || now.number == head;
            if is_due && further >= Some(BlockNumber(now.number.0.saturating_add(margin))) {
                this.upstream.switch_primary(by, other);
                let _ = this.refresh(Tag::Latest, this.clock.now()).await;
            }
        });
    }

    /// A head, what is between it and what is known, as far as that comes, and whether the finalized block stands beside
    /// it, where it does not link to that. `None` if the head cannot be accepted: the finalized block is denied, or was
    /// replaced.
    async fn ask_head(self: &Arc<Self>, sent: Stamp) -> Result<Option<ShownHead>, UpstreamError> {
        let Some(named) = self.ask(Tag::Latest, sent).await? else {
            return Err(UpstreamError::Empty);
        };
        let link = named.link();
        let mut between = Vec::new();
        let mut closed = None;
        // Looked for again after the wait: another refresh may have moved the window meanwhile.
        for _ in 0..MOST_GAPS {
            let gap = self.tracker().gap(link);
            match gap.filter(|gap| closed != Some(*gap)) {
                Some(gap) => between.extend(self.ask_gap(gap, sent).await?),
                None => break,
            }
            closed = gap;
        }
        for _ in 0..MOST_PARENTS {
            let Some(parent) = self.tracker().missing_parent(link, &between) else { break };
            match self.ask_parent(parent, sent).await {
                Ok(Some(parent)) => between.push(parent),
                // A replica behind the same URL may be further.
                Ok(None) => {}
                Err(UpstreamError::Cancelled) => return Err(UpstreamError::Cancelled),
                Err(_) => break,
            }
        }
        let (must_show, is_detached) = {
            let (tracker, now) = (self.tracker(), self.clock.now());
            (tracker.must_show(link, &between, now), tracker.is_detached(link, &between))
        };
        let Some(finalized) = must_show else {
            if is_detached {
                self.recognise(named.by).await?;
            }
            return Ok(Some(ShownHead { named, between, finalized: None }));
        };
        Ok(match self.check_finalized(finalized, link.number, named.by).await? {
            FinalCheck::Stands => Some(ShownHead { named, between, finalized: Some(finalized) }),
            FinalCheck::Suspended | FinalCheck::Alarm => None,
        })
    }

    /// Asks this endpoint, whose head is at `head`, for the block with the finalized one's number, and draws the
    /// consequences. Without an endpoint, the primary is asked.
    async fn check_finalized(
        self: &Arc<Self>,
        finalized @ (number, hash): (BlockNumber, BlockHash),
        head: BlockNumber,
        by: Option<EndpointId>,
    ) -> Result<FinalCheck, UpstreamError> {
        let shown = match self.hear_from(by, number).await {
            Err(error @ UpstreamError::Rejected(_)) => {
                // A block that cannot be right may be another chain's.
                self.recognise(by).await?;
                return Err(error);
            }
            Err(UpstreamError::Empty) => return Err(unshown()),
            shown => shown?,
        };
        match shown {
            Ok(named) if named.thin.hash() == hash => Ok(FinalCheck::Stands),
            Ok(named) => {
                self.recognise(named.by).await?;
                let now = self.clock.now();
                // Not if somebody else was faster, and something else is known by now.
                let is_news = self.change(|tracker| {
                    let is_news = tracker.finalized() == Some(finalized);
                    if is_news {
                        tracker.forget(now);
                    }
                    is_news
                });
                if is_news {
                    self.alarm(number, &format!("{hash} became {}", named.thin.hash()));
                }
                Ok(FinalCheck::Alarm)
            }
            Err(Unnamed::Absent(by)) => self.denied(finalized, head, by).await,
            // Nodes word it in many ways that they have pruned a block; an error denies nothing.
            Err(Unnamed::Refused(by)) => match self.ask_own_finalized(by).await? {
                Some(own) if own.number > number => {
                    self.recognise(by).await?;
                    Ok(FinalCheck::Stands)
                }
                _ => Err(unshown()),
            },
            Err(Unnamed::Broken | Unnamed::Other) => Err(unshown()),
        }
    }

    /// What this endpoint takes for finalized; `None` if it names no such block.
    async fn ask_own_finalized(
        self: &Arc<Self>,
        by: Option<EndpointId>,
    ) -> Result<Option<Link>, UpstreamError> {
        match self.hear_from(by, Tag::Finalized).await? {
            Ok(own) => Ok(Some(own.link())),
            // Some that have none say so with an error.
            Err(Unnamed::Absent(_) | Unnamed::Refused(_) | Unnamed::Broken) => Ok(None),
            Err(Unnamed::Other) => Err(unshown()),
        }
    }

    /// This endpoint, whose head is at `head`, has no block with the finalized one's number. If its own finalized block is
    /// higher, it has pruned that history; if that is the very block, a replica behind the same URL denied it.
    async fn denied(
        self: &Arc<Self>,
        finalized @ (number, hash): (BlockNumber, BlockHash),
        head: BlockNumber,
        by: Option<EndpointId>,
    ) -> Result<FinalCheck, UpstreamError> {
        let own = self.ask_own_finalized(by).await?;
        if own.is_some_and(|own| (own.number, own.hash) == finalized) {
            return Ok(FinalCheck::Stands);
        }
        let has_pruned = own.is_some_and(|own| own.number > number);
        let was_suspended = self.tracker().is_suspended();
        if has_pruned || !was_suspended {
            self.recognise(by).await?;
        }
        if has_pruned {
            return Ok(FinalCheck::Stands);
        }
        let now = self.clock.now();
        match self.change(|tracker| tracker.deny_finalized(finalized, head, now)) {
            Denied::Suspended => {
                // Another endpoint may have it.
                if let Some(by) = by {
                    self.upstream.demote(by);
                }
                if !was_suspended {
                    warn!(
                        finalized = number.0,
                        %hash,
                        head = head.0,
                        "the upstream denies the finalized block; forwarding all calls by number, tag and transaction \
                         until it shows that block again"
                    );
                }
                Ok(FinalCheck::Suspended)
            }
            Denied::Alarm => {
                self.alarm(number, &format!("{hash} is denied"));
                Ok(FinalCheck::Alarm)
            }
        }
    }

    /// An answer contradicts a block that is linked to the finalized one: asks whether that still stands, at most once a
    /// second.
    pub(in crate::proxy) async fn recheck_finalized(self: &Arc<Self>) {
        let Some(finalized) = self.tracker().finalized() else { return };
        let Some(head) = self.tracker().head() else { return };
        {
            let mut times = self.times.lock();
            if times.rechecked.is_some_and(|rechecked| rechecked.elapsed() < RECHECKED) {
                return;
            }
            times.rechecked = Some(Instant::now());
        }
        // Whoever contradicts is heard again with the next answer.
        let _ = self.check_finalized(finalized, head.number, None).await;
    }

    /// The block with this hash, out of the cache or from the primary; `None` if it does not come.
    async fn ask_parent(
        self: &Arc<Self>,
        hash: BlockHash,
        sent: Stamp,
    ) -> Result<Option<Link>, UpstreamError> {
        if let Some(cached) = self.cached_link(hash) {
            return Ok(Some(cached));
        }
        let named = self.ask(hash, sent).await?;
        Ok(named.map(|named| {
            let link = named.link();
            self.keep(named);
            link
        }))
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
                    self.upstream.demote(by);
                }
            }
            HeadChange::First
            | HeadChange::Same
            | HeadChange::Extended(_)
            | HeadChange::Outdated
            | HeadChange::Unlinked => {}
        }
    }

    /// What does not link may be another chain altogether: who is it that answered? That another one is who it should
    /// be says nothing of it, and nothing that a stranger says moves anything.
    pub(super) async fn recognise(&self, by: Option<EndpointId>) -> Result<(), UpstreamError> {
        if !Audience::is_there_now() {
            return Err(UpstreamError::Cancelled);
        }
        self.identity.require_recheck();
        let by = by.ok_or(UpstreamError::Empty)?;
        let who = self.identity.confirm_endpoint(by).await.map_err(|error| match error {
            IdentityError::WrongChain(stranger) => UpstreamError::WrongChain(stranger),
            // Whoever waits for this asks for the identity too, and is told what is wrong with it.
            IdentityError::Upstream(_) => UpstreamError::Empty,
        })?;
        self.follow(&who);
        Ok(())
    }

    pub(super) async fn refresh_safe(self: Arc<Self>, sent: Stamp) -> Result<(), UpstreamError> {
        let Some(named) = self.ask(Tag::Safe, sent).await? else {
            self.times.lock().no_safe = Some(sent);
            return Err(UpstreamError::Empty);
        };
        let link = named.link();
        let now = self.clock.now();
        self.change(|tracker| tracker.observe_safe(link, sent, now));
        self.keep(named);
        Ok(())
    }

    pub(super) async fn refresh_finalized(self: Arc<Self>, sent: Stamp) -> Result<(), UpstreamError> {
        let head = self.tracker().head().map_or(BlockNumber(0), |head| head.number);
        let before = self.times.lock().finalized.replace((sent, head));
        let mut sent = sent;
        let shown = match self.ask_finalized(sent).await {
            // From here on it is not asked any more: another is, and what it says is of now.
            Err(UpstreamError::WrongChain(_)) => {
                sent = self.clock.now();
                self.ask_finalized(sent).await
            }
            shown => shown,
        };
        if let Err(UpstreamError::Cancelled) = shown {
            self.unask_finalized(before);
        }
        let Some(named) = shown? else {
            self.times.lock().no_finalized = Some(sent);
            return Err(UpstreamError::Empty);
        };
        let link = named.link();
        let now = self.clock.now();
        self.change(|tracker| tracker.observe_finalized_tag(link, sent, now));
        self.keep(named);
        // What the tag means is known, whatever becomes of it; nobody waits for that for long.
        let taking_in = self.taking_in.begin(|| {
            let this = self.clone();
            async move {
                match this.take_in_finality(link, sent, before).await {
                    Ok(()) => this.times.lock().held_back = None,
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
        if self.tracker().is_suspended() {
            return Ok(());
        }
        let is_above = self.tracker().head().is_none_or(|head| head.number < link.number);
        if is_above || !self.tracker().hears_of_finality(sent) {
            // It does not count, and so it was not asked for yet.
            self.unask_finalized(before);
        }
        if let Some(chain) = self.stored_as() {
            let is_passed = |(number, _)| {
                self.tiers.highest_noted().is_some_and(|noted| number < noted && noted <= link.number)
            };
            if self.tracker().finalized().is_none_or(is_passed) {
                // A tier has noted a final block above the one that is known here, and the chain may have replaced it since
                // the tier was confirmed.
                self.tiers.doubt();
            }
            let generation = self.tiers.generation();
            // Before the block is final and written: an unconfirmed tier drops the write.
            let counts = !is_above && {
                let tracker = self.tracker();
                tracker.hears_of_finality(sent) && !tracker.excludes(link.number, link.hash)
            };
            if counts {
                let block = (link.number, link.hash);
                self.confirm_tiers_by(Checkpoint { chain, block, generation }).await;
            } else {
                self.confirm_tiers().await;
            }
            if self.tiers.generation() != generation {
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
        let (now, generation) = (self.clock.now(), self.tiers.generation());
        match self.learn(|tracker, find| tracker.observe_finalized(Some(link), sent, now, find)) {
            Finalized::Advanced { previous } => {
                self.spill(previous.map(|(number, _)| number), (link.number, link.hash), generation);
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
        let mut times = self.times.lock();
        times.finalized = times.finalized.and(before);
    }

    /// What is final now was not taken in: it is asked for again, but not with every head.
    fn hold_back(&self, error: &UpstreamError) {
        let mut times = self.times.lock();
        times.finalized = None;
        let times_before = times.held_back.map_or(0, |(_, often)| often);
        times.held_back = Some((Instant::now(), times_before + 1));
        drop(times);
        if times_before + 1 == WORTH_SAYING {
            warn!(%error, "it cannot be told whether what was final still is: nothing more is taken as final until it can be");
        }
    }

    async fn ask_finalized(self: &Arc<Self>, sent: Stamp) -> Result<Option<Named>, UpstreamError> {
        let named = self.ask(Tag::Finalized, sent).await?;
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
        self.forget_finalized();
    }

    fn finalized_is_due(&self, head: BlockNumber, now: Stamp) -> bool {
        if !self.tracker().rules().finality {
            return false;
        }
        if self.taking_in.is_under_way() {
            return false;
        }
        let times = self.times.lock();
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
        at: impl Into<At>,
        sent: Stamp,
    ) -> Result<Option<Named>, UpstreamError> {
        Ok(self.hear(at, sent).await?.ok())
    }

    /// The same, and why there is none.
    pub(super) async fn hear(
        self: &Arc<Self>,
        at: impl Into<At>,
        sent: Stamp,
    ) -> Result<Result<Named, Unnamed>, UpstreamError> {
        self.hear_by(None, at.into(), sent).await
    }

    /// The same, by this endpoint.
    async fn hear_from(
        self: &Arc<Self>,
        endpoint: Option<EndpointId>,
        at: impl Into<At>,
    ) -> Result<Result<Named, Unnamed>, UpstreamError> {
        self.hear_by(endpoint, at.into(), self.clock.now()).await
    }

    async fn hear_by(
        self: &Arc<Self>,
        endpoint: Option<EndpointId>,
        at: At,
        sent: Stamp,
    ) -> Result<Result<Named, Unnamed>, UpstreamError> {
        let (call, check) = self.call(at, sent);
        let by = AnsweredBy::default();
        let (is_finalized, is_tag) = (at == At::Tag(Tag::Finalized), matches!(at, At::Tag(_)));
        self.metrics.upkeep(1);
        let call = call.with_answered_by(&by);
        let asked_call = call.clone();
        let answering = match endpoint {
            Some(endpoint) => self.upstream.call_one(endpoint, call).await,
            None => self.upstream.call(call).await,
        };
        let answer = match answering {
            // Some say so with an HTTP error.
            Err(UpstreamError::Refused { error, .. }) if is_absence(&error) && !is_tag => {
                Answer::Error(error)
            }
            answer => answer?,
        };
        Ok(match (answer, check.verdict()) {
            (Answer::Result(_), Some(Verdict::Overdue(_))) => return Err(UpstreamError::Busy),
            (answer, _) if answer.is_null() => Err(Unnamed::Absent(by.get())),
            (Answer::Result(_), verdict) => {
                let named = self.named(verdict, is_finalized).ok_or(Unnamed::Other);
                named.map(|named| Named { by: by.get(), ..named })
            }
            (Answer::Error(error), _) if is_absence(&error) => Err(Unnamed::Absent(by.get())),
            (Answer::Error(error), _) if is_rate_limit(&asked_call, &error) => Err(Unnamed::Other),
            (Answer::Error(error), _) if is_internal(&error) => Err(Unnamed::Broken),
            (Answer::Error(_), _) => Err(Unnamed::Refused(by.get())),
        })
    }

    /// The blocks of a gap, as far as they come, by one batch. Fails only if nobody waits for them any more: that says
    /// nothing of the head.
    async fn ask_gap(self: &Arc<Self>, gap: Gap, sent: Stamp) -> Result<Vec<Link>, UpstreamError> {
        let (calls, checks): (Vec<_>, Vec<_>) =
            (gap.from.0..=gap.to.0).map(BlockNumber).map(|number| self.call(number, sent)).unzip();
        self.metrics.upkeep(calls.len() as u64);
        let answers = self.upstream.call_all(calls).await;
        let Ok(answers) = answers else { return Ok(Vec::new()) };
        if answers.iter().any(|answer| matches!(answer, Err(UpstreamError::Cancelled))) {
            return Err(UpstreamError::Cancelled);
        }
        let accepted = answers.into_iter().zip(checks).filter(|(answer, _)| answer.is_ok());
        let named = accepted.filter_map(|(_, check)| self.named(check.verdict(), false));
        let links = named.map(|named| {
            let link = named.link();
            self.keep(named);
            link
        });
        Ok(links.collect())
    }

    fn call(self: &Arc<Self>, at: impl Into<At>, sent: Stamp) -> (Call, Check) {
        let query = Query::new(Part::BlockWithHashes, at);
        let known = KnownAt::new(self.cache.clone(), self.clone(), sent);
        let check = self.verifier.check_for(query, Arc::new(known));
        let (block, is_head) = (query.number(), query.at == At::Tag(Tag::Latest));
        let need = Requirements { block, primary: true, for_view: true, is_head, ..Requirements::default() };
        (Call::of(query).with_check(check.clone()).with_requirements(need), check)
    }

    /// What can be neither proved nor found wrong is believed, and not kept: a chain must be followed also when
    /// its newest blocks have something in them that is newer than this program. But where heads can be proved,
    /// finality waits for proof; and so does everything, where nothing less will do.
    fn named(&self, verdict: Option<Verdict>, is_finalized: bool) -> Option<Named> {
        match verdict? {
            Verdict::Passed(Content::BlockWithHashes(thin)) => Some(Named { thin, keeps: true, by: None }),
            Verdict::Unproved(_, Some(Content::BlockWithHashes(thin))) => {
                let waits = is_finalized || self.verifier.demands_proof(Kind::Header);
                // The header is all that counts here: the lists beside it may follow other rules.
                let is_named = thin.level() >= Level::Partial || !waits || !self.verifier.is_sure();
                is_named.then_some(Named { thin, keeps: false, by: None })
            }
            _ => None,
        }
    }

    /// Keeps a head, unless nothing less than proof will do.
    fn keep(&self, named: Named) {
        if named.keeps && (named.thin.is_proved() || !self.verifier.demands_proof(Kind::Transactions)) {
            self.cache.insert_thin(&named.thin);
        }
    }
}

/// The finalized block was neither shown nor denied. It is as if the head had not been shown, either: past the view, the node
/// could show that head to a client.
fn unshown() -> UpstreamError {
    UpstreamError::Malformed {
        method: "eth_getBlockByNumber",
        expected: "the finalized block",
        got: "an error".to_owned(),
    }
}

// === impl Named ===

impl Named {
    fn link(&self) -> Link {
        Link::from(self.thin.header())
    }
}
