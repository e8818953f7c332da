//! One node among those that can be asked: how it does, what it has, and whether it may be asked now.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
    Call, Calls, EndpointConfig, Leaf, Metrics, UpstreamError,
    breaker::{Breaker, Health},
    bucket::Bucket,
    identity::{IdentityError, IdentityState, Pin, Recognition},
    limited,
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

/// Where a node limits its rate and does not say for how long.
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

/// One node.
#[derive(Debug)]
pub(super) struct Endpoint {
    name: Arc<str>,
    priority: u32,
    weight: u32,
    leaf: Mutex<PeakEwma<Leaf>>,
    state: Mutex<State>,
    /// Who it is. `None` where nobody cares.
    recognition: Option<Recognition>,
    metrics: Metrics,
    said: Seldom,
}

#[derive(Debug)]
struct State {
    breaker: Breaker,
    bucket: Option<Bucket>,
    /// It asked for a pause until then.
    paused: Option<Instant>,
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
    /// What is below it has forgotten, as far as can be told.
    floor: Option<BlockNumber>,
}

/// An answer that passed its check, and what that found.
#[derive(Clone, Debug)]
pub(super) struct Accepted {
    pub(super) answer: Answer,
    pub(super) verdict: Option<Verdict>,
    /// The endpoint that gave it, by name.
    pub(super) by: Arc<str>,
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

/// An attempt; dropped before its end is heeded, it has said nothing about the endpoint.
struct Begun<'a> {
    endpoint: &'a Endpoint,
    at: Instant,
}

/// How an endpoint does, for those who look.
#[derive(Clone, Debug)]
pub struct EndpointStatus {
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
        leaf: Leaf,
        config: &EndpointConfig,
        pin: Option<&Arc<Pin>>,
        metrics: Metrics,
    ) -> Self {
        let decay = DECAY.as_nanos() as f64;
        Self {
            recognition: pin.map(|pin| Recognition::new(name.clone(), pin.clone())),
            name,
            priority: config.priority,
            weight: config.weight.max(1),
            leaf: Mutex::new(PeakEwma::new(leaf, DEFAULT_RTT, decay, CompleteOnResponse::default())),
            state: Mutex::new(State {
                breaker: Breaker::new(),
                bucket: config.rate.map(|rate| Bucket::new(rate.per_second, rate.burst)),
                paused: None,
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

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn priority(&self) -> u32 {
        self.priority
    }

    pub(super) fn weight(&self) -> u32 {
        self.weight
    }

    pub(super) fn recognition(&self) -> Option<&Recognition> {
        self.recognition.as_ref()
    }

    pub(super) fn status(&self) -> EndpointStatus {
        let state = self.state();
        EndpointStatus {
            name: self.name.clone(),
            priority: self.priority,
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

    /// May it be asked for so many calls that need this block?
    pub(super) fn eligible(&self, calls: u32, block: Option<BlockNumber>, now: Instant) -> Eligible {
        let known = self.recognition.as_ref().map(Recognition::state);
        if matches!(known, Some(IdentityState::Stranger(_))) {
            return Eligible::No;
        }
        let state = self.state();
        if !state.breaker.lets_pass(now) {
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
        let lacks = block.is_some_and(|block| state.lacks(block, now));
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
            return vec![Err(error); calls.len()];
        }
        self.ask(calls).await
    }

    /// The same, whoever it is.
    pub(super) async fn ask(&self, calls: &Calls) -> Attempted {
        let now = Instant::now();
        let _begun = Begun { endpoint: self, at: now };
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
                join_all(accepted.map(async |(answer, call)| accept(call, answer?, &self.name).await)).await
            }
            Err(error) => vec![Err(error); calls.len()],
        };
        for (call, attempted) in calls.iter().zip(&attempted) {
            self.heed(call, attempted);
        }
        attempted
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

    /// Takes in what an attempt says about the endpoint.
    fn heed(&self, call: &Call, attempted: &Result<Accepted, UpstreamError>) {
        let now = Instant::now();
        self.metrics.call_ended(attempted.as_ref().map(|accepted| &accepted.answer));
        let mut state = self.state();
        match attempted {
            Ok(Accepted { answer, verdict, .. }) => {
                if let Answer::Error(error) = answer
                    && limited::is_rate_limit(error)
                {
                    state.paused = state.paused.max(Some(now + LIMITED));
                    return;
                }
                state.learn(call, answer, verdict.as_ref(), now);
                state.breaker.succeed();
                (state.wrong, state.last_error) = (0, None);
            }
            Err(UpstreamError::RateLimited { retry_after }) => {
                let until = now + retry_after.unwrap_or(LIMITED).min(limited::LONGEST);
                state.paused = state.paused.max(Some(until));
            }
            Err(UpstreamError::Rejected(mismatch)) => {
                state.last_mismatch = Some(mismatch.failure.to_string());
                state.wrong = (state.wrong + 1).min(DISTRUST);
                state.failed = Some(now);
            }
            Err(error) => {
                if error.is_endpoints_fault() {
                    state.breaker.fail(now);
                    state.failed = Some(now);
                    state.last_error = Some(error.clone());
                }
                drop(state);
                if error.lost_contact() {
                    self.doubt();
                }
                self.warn(error);
            }
        }
    }

    /// It failed, and nobody may be asking: it is asked who it is, to see whether it is back.
    pub(super) fn probe(&self) {
        if let Some(recognition) = &self.recognition
            && self.last_error().is_some()
        {
            recognition.doubt();
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

/// Has an answer checked, by a check of its own: another endpoint may be asked at the same time.
async fn accept(call: &Call, answer: Answer, by: &Arc<str>) -> Result<Accepted, UpstreamError> {
    let by = by.clone();
    let Some(check) = call.check.as_ref().map(|check| check.again()) else {
        return Ok(Accepted { answer, verdict: None, by });
    };
    // Who it was stands in what is said of it.
    match check.accept(&answer).instrument(warn_span!("upstream", upstream = %by)).await {
        Ok(()) => Ok(Accepted { answer, verdict: check.verdict(), by }),
        Err(failure) => Err(UpstreamError::Rejected(Box::new(super::Mismatch { failure, answer }))),
    }
}

// === impl Begun ===

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.endpoint.state().breaker.abandon(self.at);
    }
}

// === impl Cost ===

impl Cost {
    /// Is it known, and has it what is asked for?
    pub(super) fn is_fit(self) -> bool {
        !self.lacks && !self.unsure
    }

    /// Is it known not to have what is asked for?
    pub(super) fn lacks(self) -> bool {
        self.lacks
    }
}

// === impl State ===

impl State {
    /// Is it known not to have this block?
    fn lacks(&self, block: BlockNumber, now: Instant) -> bool {
        let is_news = self.head_seen.is_some_and(|seen| now < seen + BEHIND);
        let behind = is_news && self.head.is_some_and(|head| head < block);
        behind || self.floor.is_some_and(|floor| block < floor)
    }

    /// Takes in what an answer shows of what it has.
    fn learn(&mut self, call: &Call, answer: &Answer, verdict: Option<&Verdict>, now: Instant) {
        if let (Answer::Error(error), Some(block)) = (answer, call.need.block)
            && limited::is_pruned(error)
        {
            self.floor = self.floor.max(Some(BlockNumber(block.0.saturating_add(GONE_TOGETHER))));
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
