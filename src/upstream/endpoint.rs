//! One node among those that can be asked: how it does, what it has, and whether it may be asked now.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::join_all;
use tokio::time::Instant;
use tower::{
    Service,
    load::{CompleteOnResponse, Load, PeakEwma, peak_ewma},
};
use tracing::{Instrument, debug, debug_span, warn, warn_span};

use super::{
    Call, Calls, EndpointConfig, Leaf, Need, RateConfig, Reach, UpstreamError, again,
    breaker::{Blow, Breaker, Health},
    bucket::Bucket,
    identity::{IdentityError, IdentityState, Pin, Recognition},
    limited,
    metrics::EndpointMetrics,
    redact::Secrets,
    stack::Manner,
};
use crate::{
    eth::BlockNumber,
    jsonrpc::Answer,
    seldom::Seldom,
    verify::{Checked, Verdict},
};

/// What an endpoint that was never asked is taken to need. Less than a slow one, so that it gets a try.
const DEFAULT_RTT: Duration = Duration::from_millis(100);

/// How long a slow answer weighs.
const DECAY: Duration = Duration::from_secs(10);

/// Where a node limits its rate and does not say for how long; doubled each time it does so again at once.
const LIMITED: Duration = Duration::from_secs(1);

/// How long a head that an endpoint showed says that it is behind: it may have caught up since.
const BEHIND: Duration = Duration::from_secs(2);

/// What an answer that cannot be right costs in the choice, in answers that did not come.
const DISTRUST: u32 = 2;

/// How long a failure counts in the choice: what is never asked again never shows that it has recovered.
const GRUDGE: Duration = Duration::from_secs(5);

/// History is forgotten in one piece: with a block that is gone, so many above it are taken to be. Else who
/// reads upwards would ask in vain for every one.
const GONE_TOGETHER: u64 = 64;

/// So many refusals in a row of calls that run a client's code, without an answer to anybody in between, are not of that
/// code's making: the next ones speak against the endpoint.
const REFUSALS: u32 = 20;

/// What every node answers soon, it has answered by then if it answers at all. Shorter than what is left of a call's time
/// after an attempt elsewhere that came to nothing: of two that hang, the second must show it too.
const SILENCE: Duration = Duration::from_secs(3);

/// How long what an endpoint has forgotten is not asked of it: behind a balancer it may have been another node that had,
/// and a node may be given its history back.
const FORGOTTEN: Duration = Duration::from_secs(10 * 60);

/// Which endpoint it is, for as long as the program runs: names may be given to another, places may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndpointId(u64);

/// One node.
#[derive(Debug)]
pub(super) struct Endpoint {
    id: EndpointId,
    name: Arc<str>,
    /// What it is reached with. `None` where that cannot be told, and it is the same as no other.
    reach: Option<Reach>,
    priority: AtomicU32,
    weight: AtomicU32,
    /// How its leaf was made.
    manner: Mutex<Manner>,
    leaf: Mutex<PeakEwma<Leaf>>,
    state: Mutex<State>,
    /// Who it is. `None` where nobody cares.
    recognition: Option<Recognition>,
    metrics: EndpointMetrics,
    said: Seldom,
}

#[derive(Debug)]
struct State {
    breaker: Breaker,
    rate: Option<RateConfig>,
    bucket: Option<Bucket>,
    /// It asked for a pause until then.
    paused: Option<Instant>,
    /// Pauses in a row of which it did not say how long they are.
    limits: u32,
    /// When it last let a call wait for nothing, if it has answered nothing since.
    hung: Option<Instant>,
    /// When it last said anything to a call, be it wrong.
    spoke: Option<Instant>,
    /// Refusals in a row that may have been of a client's making.
    refused: u32,
    /// Answers in a row that could not be right.
    wrong: u32,
    /// When it last failed, or said what cannot be right.
    failed: Option<Instant>,
    last_error: Option<UpstreamError>,
    /// What was wrong with what it last said, if anything was.
    last_mismatch: Option<String>,
    /// The highest block that it has shown.
    head: Option<BlockNumber>,
    /// When it last said that this is its head: a block that was asked for says nothing of those above it.
    head_seen: Option<Instant>,
    /// What is below it has forgotten, as far as can be told, and when it last said so.
    floor: Option<(BlockNumber, Instant)>,
}

/// An answer that passed its check, and what that found.
#[derive(Clone, Debug)]
pub(super) struct Accepted {
    pub(super) answer: Answer,
    pub(super) verdict: Option<Verdict>,
    /// The endpoint that gave it.
    pub(super) by: EndpointId,
}

/// What an attempt came to, for each call.
pub(super) type Attempted = Vec<Result<Accepted, UpstreamError>>;

/// What asking an endpoint costs: first by what speaks against it, then by its load.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct Cost {
    /// It lacks what is asked for.
    lacks: bool,
    /// It is not known who it is.
    unsure: bool,
    failures: u32,
    load: peak_ewma::Cost,
}

/// May an endpoint be asked?
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Eligible {
    /// At this cost.
    Yes(Cost),
    /// Not before this has passed.
    After(Duration),
    /// No.
    No,
}

/// An attempt. Dropped before its end is heeded, it was cut off: by the time that its call has, or by a client that
/// has gone.
struct Begun<'a> {
    endpoint: &'a Endpoint,
    at: Instant,
    /// Is it for what every node answers soon?
    everyday: bool,
    heeded: bool,
}

/// How an endpoint does, for those who look.
#[derive(Clone, Debug)]
pub struct EndpointStatus {
    /// Which it is.
    pub id: EndpointId,
    /// Its name: its URL without what is secret in it.
    pub name: Arc<str>,
    /// Its place in the order.
    pub priority: u32,
    /// Who it is; `None` where nobody cares.
    pub identity: Option<IdentityState>,
    /// Whether it is asked.
    pub health: Health,
    /// The highest block that it has shown.
    pub head: Option<BlockNumber>,
    /// Why it last failed, if it has not answered since.
    pub last_error: Option<UpstreamError>,
    /// What was wrong with the last answer of its that could not be right.
    pub last_mismatch: Option<String>,
    /// How long it wants to be left alone for its rate.
    pub paused: Option<Duration>,
}

// === impl Endpoint ===

impl Endpoint {
    pub(super) fn new(
        name: Arc<str>,
        reach: Option<Reach>,
        leaf: Leaf,
        manner: Manner,
        config: &EndpointConfig,
        pin: Option<&Arc<Pin>>,
        metrics: EndpointMetrics,
    ) -> Self {
        let id = EndpointId::next();
        let secrets = reach.as_ref().map(Secrets::from).unwrap_or_default();
        Self {
            recognition: pin.map(|pin| Recognition::new(id, name.clone(), secrets, pin.clone())),
            id,
            name,
            reach,
            priority: config.priority.into(),
            weight: config.weight.max(1).into(),
            manner: Mutex::new(manner),
            leaf: Mutex::new(measured(leaf)),
            state: Mutex::new(State {
                breaker: Breaker::new(),
                rate: config.rate,
                bucket: config.rate.map(bucket),
                paused: None,
                limits: 0,
                hung: None,
                spoke: None,
                refused: 0,
                wrong: 0,
                failed: None,
                last_error: None,
                last_mismatch: None,
                head: None,
                head_seen: None,
                floor: None,
            }),
            metrics,
            said: Seldom::default(),
        }
    }

    /// Takes what is said of it anew. What is known of it stays: it is the same node.
    pub(super) fn adopt(&self, config: &EndpointConfig, leaf: Leaf, manner: Manner) {
        self.priority.store(config.priority, Relaxed);
        self.weight.store(config.weight.max(1), Relaxed);
        {
            let mut state = self.state();
            if state.rate != config.rate {
                (state.rate, state.bucket) = (config.rate, config.rate.map(bucket));
            }
        }
        let mut before = self.manner.lock().unwrap_or_else(PoisonError::into_inner);
        // Else it goes on with the connections it has.
        if *before != manner {
            *before = manner;
            *self.lock_leaf() = measured(leaf);
        }
    }

    pub(super) fn id(&self) -> EndpointId {
        self.id
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Is this what it is reached with?
    pub(super) fn is_reached_by(&self, reach: Option<&Reach>) -> bool {
        reach.is_some() && self.reach.as_ref() == reach
    }

    pub(super) fn priority(&self) -> u32 {
        self.priority.load(Relaxed)
    }

    pub(super) fn weight(&self) -> u32 {
        self.weight.load(Relaxed)
    }

    /// The highest block that it has shown.
    pub(super) fn head(&self) -> Option<BlockNumber> {
        self.state().head
    }

    /// The head that it has shown since then, if it has.
    pub(super) fn head_since(&self, then: Instant) -> Option<BlockNumber> {
        let state = self.state();
        state.head.filter(|_| state.head_seen.is_some_and(|seen| seen >= then))
    }

    pub(super) fn recognition(&self) -> Option<&Recognition> {
        self.recognition.as_ref()
    }

    pub(super) fn status(&self) -> EndpointStatus {
        let state = self.state();
        EndpointStatus {
            name: self.name.clone(),
            id: self.id,
            priority: self.priority(),
            identity: self.recognition.as_ref().map(Recognition::state),
            health: state.breaker.health(Instant::now()),
            head: state.head,
            last_error: state.last_error.clone(),
            last_mismatch: state.last_mismatch.clone(),
            paused: state.paused.map(|until| until.saturating_duration_since(Instant::now())),
        }
    }

    /// Why it last failed.
    pub(super) fn last_error(&self) -> Option<UpstreamError> {
        self.state().last_error.clone()
    }

    /// May it be asked for so many calls that need this?
    pub(super) fn eligible(&self, calls: u32, need: Need, now: Instant) -> Eligible {
        let known = self.recognition.as_ref().map(Recognition::state);
        if matches!(known, Some(IdentityState::Stranger(_))) {
            return Eligible::No;
        }
        let state = self.state();
        if !state.breaker.lets_pass(now) {
            let is_tried_slowly = state.breaker.is_tried_slowly(now);
            drop(state);
            if is_tried_slowly {
                self.probe();
            }
            return Eligible::No;
        }
        let pause = state.paused.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        let wait = state.bucket.map_or(Duration::ZERO, |bucket| bucket.wait(calls, now)).max(pause);
        if !wait.is_zero() {
            return Eligible::After(wait);
        }
        let failures = match state.failed {
            Some(failed) if now < failed + GRUDGE => state.breaker.failures() + DISTRUST * state.wrong,
            _ => 0,
        };
        let lacks = need.block.is_some_and(|block| state.has_forgotten(block, now))
            || need.block.max(need.head).is_some_and(|block| state.is_behind(block, now));
        drop(state);
        let unsure = self.recognition.as_ref().is_some_and(|recognition| !recognition.is_sure());
        Eligible::Yes(Cost { lacks, unsure, failures, load: self.lock_leaf().load() })
    }

    /// Sends calls, and judges what comes. Not before it is known who it is.
    pub(super) async fn attempt(&self, calls: &Calls) -> Attempted {
        if let Some(recognition) = &self.recognition
            && let Err(error) = recognition.confirm().await
        {
            let error = match error {
                IdentityError::Upstream(error) => error,
                IdentityError::Stranger(stranger) => UpstreamError::Stranger(stranger),
            };
            return vec![Err(UpstreamError::Unasked(Box::new(error))); calls.len()];
        }
        self.ask(calls).await
    }

    /// The same, whoever it is.
    pub(super) async fn ask(&self, calls: &Calls) -> Attempted {
        let now = Instant::now();
        let everyday = calls.iter().all(Call::is_everyday);
        let mut begun = Begun { endpoint: self, at: now, everyday, heeded: false };
        {
            let mut state = self.state();
            state.breaker.begin(now);
            if let Some(bucket) = &mut state.bucket {
                bucket.take(calls.len() as u32, now);
            }
        }
        let span = debug_span!("upstream", upstream = %self.name, calls = calls.len());
        let answers = self.send(calls.clone()).instrument(span).await;
        let attempted = match answers {
            Ok(answers) => {
                let accepted = answers.into_iter().zip(calls);
                join_all(accepted.map(async |(answer, call)| self.accept(call, answer?).await)).await
            }
            Err(error) => vec![Err(error); calls.len()],
        };
        for (call, attempted) in calls.iter().zip(&attempted) {
            self.heed(call, attempted, now);
        }
        begun.heeded = true;
        attempted
    }

    /// Has an answer checked, by a check of its own: another endpoint may be asked at the same time.
    async fn accept(&self, call: &Call, answer: Answer) -> Result<Accepted, UpstreamError> {
        let by = self.id;
        let Some(check) = call.check.as_ref().map(|check| check.again()) else {
            return Ok(Accepted { answer, verdict: None, by });
        };
        // Who it was stands in what is said of it.
        match check.accept(&answer).instrument(warn_span!("upstream", upstream = %self.name)).await {
            Ok(()) => Ok(Accepted { answer, verdict: check.verdict(), by }),
            Err(failure) => Err(UpstreamError::Rejected(Box::new(super::Mismatch { failure, answer }))),
        }
    }

    async fn send(&self, calls: Calls) -> Result<super::Answers, UpstreamError> {
        let _in_flight = self.metrics.begin();
        let begun = Instant::now();
        let sent = {
            // A leaf is always ready.
            self.lock_leaf().call(calls)
        };
        let answers = sent.await;
        let elapsed = begun.elapsed();
        self.metrics.request_ended(elapsed);
        debug!(?elapsed, ok = answers.is_ok(), "upstream answered");
        answers
    }

    /// Takes in what an attempt that began then says about the endpoint.
    fn heed(&self, call: &Call, attempted: &Result<Accepted, UpstreamError>, begun: Instant) {
        let now = Instant::now();
        self.metrics.call_ended(attempted.as_ref().map(|accepted| &accepted.answer));
        let mut state = self.state();
        if !matches!(attempted, Err(error) if error.is_silence()) {
            state.spoke = Some(now);
        }
        match attempted {
            Ok(Accepted { answer, verdict, .. }) => {
                if let Answer::Error(error) = answer
                    && limited::is_rate_limit(call, error)
                {
                    state.pause(None, now);
                    return;
                }
                state.learn(call, answer, verdict.as_ref(), now);
                state.breaker.succeed();
                (state.wrong, state.refused, state.limits) = (0, 0, 0);
                (state.last_error, state.hung) = (None, None);
            }
            Err(UpstreamError::RateLimited { retry_after }) => state.pause(*retry_after, now),
            Err(UpstreamError::Rejected(mismatch)) => {
                state.last_mismatch = Some(mismatch.failure.to_string());
                state.wrong = (state.wrong + 1).min(DISTRUST);
                state.failed = Some(now);
            }
            Err(error) => {
                let refused = matches!(error, UpstreamError::Refused { .. }) && call.executes();
                state.refused = state.refused.saturating_add(u32::from(refused));
                if again::is_fault(call, error) || (refused && state.refused > REFUSALS) {
                    state.fail(error, begun, now);
                }
                drop(state);
                if error.lost_contact() {
                    self.doubt();
                }
                self.warn(error);
            }
        }
    }

    /// An attempt that began then was cut off. That says something only if it waited long enough for one that is well to
    /// answer, and nobody else got an answer meanwhile; and of a call that may take long anywhere not even then.
    fn cut_off(&self, begun: Instant, everyday: bool) {
        let now = Instant::now();
        let waited = now.saturating_duration_since(begun);
        let mut state = self.state();
        if waited < SILENCE || state.spoke.is_some_and(|spoke| spoke >= begun) {
            return;
        }
        if everyday {
            let error = UpstreamError::TimedOut { after: Duration::from_secs(waited.as_secs()) };
            state.fail(&error, begun, now);
            drop(state);
            self.warn(&error);
        } else if let Some(recognition) = &self.recognition {
            drop(state);
            recognition.probe();
        }
    }

    /// It failed, and nobody may be asking: it is asked who it is, to see whether it is back. Nobody waits for that.
    pub(super) fn probe(&self) {
        if let Some(recognition) = &self.recognition
            && self.last_error().is_some()
        {
            recognition.probe();
        }
    }

    /// Has it failed so often that it is left alone for now?
    pub(super) fn is_left_alone(&self, now: Instant) -> bool {
        !self.state().breaker.lets_pass(now)
    }

    /// A call would rather ask it, if it were sure who it is: so it is asked that, for the calls to come.
    pub(super) fn hurry(&self) {
        if let Some(recognition) = self.recognition.as_ref().filter(|recognition| recognition.is_doubted()) {
            recognition.hurry();
        }
    }

    /// Who answers next must say who it is.
    pub(super) fn doubt(&self) {
        if let Some(recognition) = &self.recognition {
            recognition.doubt();
        }
    }

    fn warn(&self, error: &UpstreamError) {
        let upstream = &self.name;
        if self.said.is_due(error.as_str()) {
            warn!(%error, %upstream, "upstream failed");
        } else {
            debug!(%error, %upstream, "upstream failed");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_leaf(&self) -> MutexGuard<'_, PeakEwma<Leaf>> {
        self.leaf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn measured(leaf: Leaf) -> PeakEwma<Leaf> {
    PeakEwma::new(leaf, DEFAULT_RTT, DECAY.as_nanos() as f64, CompleteOnResponse::default())
}

fn bucket(rate: RateConfig) -> Bucket {
    Bucket::new(rate.per_second, rate.burst)
}

// === impl EndpointId ===

impl EndpointId {
    pub(super) fn next() -> Self {
        static GIVEN: AtomicU64 = AtomicU64::new(0);
        Self(GIVEN.fetch_add(1, Relaxed))
    }
}

// === impl Begun ===

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.heeded {
            self.endpoint.cut_off(self.at, self.everyday);
        }
        self.endpoint.state().breaker.abandon(self.at);
    }
}

// === impl Cost ===

impl Cost {
    /// Is it known, and has it what is asked for?
    pub(super) fn is_fit(self) -> bool {
        !self.lacks && !self.unsure
    }

    /// Is it not known who it is?
    pub(super) fn is_unsure(self) -> bool {
        self.unsure
    }

    /// Has it not failed of late?
    pub(super) fn is_well(self) -> bool {
        self.failures == 0
    }

    /// Is it known not to have what is asked for?
    pub(super) fn lacks(self) -> bool {
        self.lacks
    }
}

// === impl State ===

impl State {
    /// Is it known to be behind this block?
    fn is_behind(&self, block: BlockNumber, now: Instant) -> bool {
        let is_news = self.head_seen.is_some_and(|seen| now < seen + BEHIND);
        is_news && self.head.is_some_and(|head| head < block)
    }

    /// Is it known to have forgotten this block?
    fn has_forgotten(&self, block: BlockNumber, now: Instant) -> bool {
        self.floor.is_some_and(|(floor, said)| block < floor && now < said + FORGOTTEN)
    }

    /// A call that began then failed in a way that speaks against it.
    fn fail(&mut self, error: &UpstreamError, begun: Instant, now: Instant) {
        let hangs = matches!(error, UpstreamError::TimedOut { .. });
        // Those that wait at the same time, on one connection that is dead, wait for the same.
        let again = hangs && self.hung.is_some_and(|hung| hung <= begun);
        self.breaker.fail(if again { Blow::Hang } else { Blow::Failure }, now);
        if hangs {
            self.hung = Some(now);
        }
        self.failed = Some(now);
        self.last_error = Some(error.clone());
    }

    /// It was asked too often, and may have said when to come back. One that does not say is left alone for longer
    /// each time: it may mean the day's quota.
    fn pause(&mut self, retry_after: Option<Duration>, now: Instant) {
        let is_new = self.paused.is_none_or(|until| until <= now);
        let after = retry_after.unwrap_or_else(|| {
            let doublings = if is_new { self.limits } else { self.limits.saturating_sub(1) };
            LIMITED * 2u32.pow(doublings.min(6))
        });
        self.limits += u32::from(is_new && retry_after.is_none());
        self.paused = self.paused.max(Some(now + after.min(limited::LONGEST)));
    }

    /// Takes in what an answer shows of what it has.
    fn learn(&mut self, call: &Call, answer: &Answer, verdict: Option<&Verdict>, now: Instant) {
        if let (Answer::Error(error), Some(block)) = (answer, call.need.block)
            && limited::is_pruned(error)
        {
            let floor = BlockNumber(block.0.saturating_add(GONE_TOGETHER));
            let before = self.floor.filter(|(_, said)| now < *said + FORGOTTEN);
            // What is said of a lower block says nothing new of those above it.
            if before.is_none_or(|(before, _)| before <= floor) {
                self.floor = Some((floor, now));
            }
        }
        let Some(Verdict::Passed(checked) | Verdict::Unproved(_, Some(checked))) = verdict else { return };
        let shown = match checked {
            Checked::Block(block) => block.header().number,
            Checked::Thin(thin) => thin.header().number,
            Checked::Receipts { number, .. } => *number,
            Checked::Transaction(_) | Checked::Receipt(_) => return,
        };
        // A head is asked for by its tag: then what it shows is all that it has.
        if call.need.is_head {
            (self.head, self.head_seen) = (Some(shown), Some(now));
        }
        self.head = self.head.max(Some(shown));
    }
}
