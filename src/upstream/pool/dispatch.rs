//! Sends calls to the endpoints of one chain: selection, retries and hedging.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Semaphore,
    time::{self, Instant},
};
use tower::retry::budget::{Budget, TpsBudget};
use tracing::debug;

use super::{
    super::{
        AcceptedAnswer, AcceptedAnswers, Call, Calls, Config, EndpointId, EndpointStatus, Metrics,
        Requirements, UpstreamError,
        endpoint::{Availability, Endpoint, Slot, attempt},
        identity::PinnedChain,
    },
    endpoint_set::{Candidates, EndpointSet, Selection},
    hedge::{Hedge, HedgeOutcome},
    p2c::choose,
    primary::Primary,
    retry::{RetryReason, is_disputed, is_failure, is_null, is_unproved, replaces, retry_reason},
};
use crate::{backoff::Backoff, display::seconds, timeout::timeout};

/// Maximum number of endpoints that a call is sent to.
const MAX_ATTEMPTS: usize = 3;

/// Retries are at most this share of the calls, plus a minimum per second. Without this limit, one failure would
/// become a flood of calls in a chain of proxies that all retry.
const RETRY_SHARE: f32 = 0.1;
const MIN_RETRIES_PER_SECOND: u32 = 10;
const RETRY_WINDOW: Duration = Duration::from_secs(10);

/// Pause before each further attempt. It is long enough to spread simultaneous retries, and too short for clients to
/// notice.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(40));

/// How often a waiting call checks whether another endpoint has become available.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// All endpoints of one chain.
#[derive(Debug)]
pub(in crate::upstream) struct Pool {
    pub(in crate::upstream) endpoints: Arc<EndpointSet>,
    pub(in crate::upstream) primary: Arc<Primary>,
    retries: TpsBudget,
    /// Bounds the requests in flight.
    slots: Arc<Semaphore>,
    /// How long a call waits for a slot, and for an endpoint at its rate limit.
    max_wait: Duration,
    /// Decides when to send a second request. `None` if hedging is off.
    hedge: Option<Hedge>,
    metrics: Metrics,
}

// === impl Pool ===

impl Pool {
    pub(in crate::upstream) fn new(
        endpoints: Vec<Arc<Endpoint>>,
        pinned_chain: Arc<PinnedChain>,
        config: &Config,
        metrics: Metrics,
    ) -> Self {
        let endpoints = Arc::new(EndpointSet::new(endpoints, pinned_chain));
        Self {
            primary: Arc::new(Primary::new(endpoints.clone(), config.max_wait)),
            endpoints,
            retries: TpsBudget::new(RETRY_WINDOW, MIN_RETRIES_PER_SECOND, RETRY_SHARE),
            slots: Arc::new(Semaphore::new(config.max_in_flight)),
            max_wait: config.max_wait,
            hedge: config.hedge.map(Hedge::new),
            metrics,
        }
    }

    /// Sends calls to an endpoint, and sends those that fail to other endpoints, if a retry is safe and may help.
    pub(in crate::upstream) async fn send(&self, calls: &Calls) -> AcceptedAnswers {
        self.retries.deposit();
        let mut done: Vec<Option<Result<AcceptedAnswer, UpstreamError>>> = vec![None; calls.len()];
        let mut left: Vec<usize> = (0..calls.len()).collect();
        let mut tried = Vec::new();
        let (mut patience, mut backoff) = (self.max_wait, BACKOFF);
        for _ in 0..MAX_ATTEMPTS {
            if left.is_empty() {
                break;
            }
            let again: Calls;
            let sending = if left.len() == calls.len() {
                calls
            } else {
                again = left.iter().map(|at| calls[*at].clone()).collect();
                &again
            };
            let requirements = combined_requirements(sending);
            let selection = Selection { calls: sending.len() as u32, requirements, tried: &tried };
            let (slot, endpoint) = match self.enter(selection, patience).await {
                Ok(entered) => entered,
                Err(error) => {
                    for at in left {
                        done[at].get_or_insert(Err(error.clone()));
                    }
                    break;
                }
            };
            let attempted = self.attempt(&endpoint, sending, slot, requirements, &mut tried).await;
            let failed = |(call, outcome)| is_failure(call, outcome);
            let needs_primary = requirements.primary || requirements.forwarded;
            if (requirements.primary && sending.iter().zip(&attempted).any(failed))
                // Repeated rate limits also demote the primary, because a call waits for one pause, but not for
                // several in a row.
                || (needs_primary && endpoint.is_limited_for(self.max_wait))
            {
                self.primary.demote(endpoint.id());
            } else if requirements.forwarded && endpoint.fails_forwarded_calls() {
                self.primary.demote_for_forwarded(&endpoint);
            }
            let mut retried = Vec::new();
            // Whether a call is retried because of a failure. A retry after `null` uses no retry budget, because it
            // goes to one other endpoint at most.
            let mut is_retry = false;
            for ((at, call), outcome) in left.iter().zip(sending).zip(attempted) {
                let was_null = done[*at].as_ref().is_some_and(is_null);
                // An error that deserves a second opinion gets only one.
                let was_disputed = done[*at].as_ref().is_some_and(|before| is_disputed(call, before));
                // An unproved head is not retried, because another endpoint's head is no better and may be older.
                let gets_no_retry =
                    was_null || was_disputed || (call.requirements.is_head && is_unproved(&outcome));
                let why = retry_reason(call, &outcome);
                if let Some(why) = why.filter(|_| !gets_no_retry) {
                    is_retry |= why == RetryReason::Failure;
                    retried.push(*at);
                }
                // The earlier error stays if the second opinion is no better.
                let keeps = was_disputed && why.is_some();
                if !keeps && done[*at].as_ref().is_none_or(|before| replaces(&outcome, before)) {
                    done[*at] = Some(outcome);
                }
            }
            left = retried;
            // A call that already has an answer, even a `null`, does not wait for an endpoint.
            patience = if is_retry { self.max_wait } else { Duration::ZERO };
            let others = self.endpoints.load().iter().any(|endpoint| !tried.contains(&endpoint.id()));
            if left.is_empty() || !others || tried.len() >= MAX_ATTEMPTS {
                break;
            }
            if is_retry && !self.retries.withdraw() {
                break;
            }
            time::sleep(backoff.next_pause().mul_f64(fastrand::f64())).await;
        }
        done.into_iter().map(|outcome| outcome.unwrap_or(Err(UpstreamError::Empty))).collect()
    }

    /// Sends one call to this endpoint only, once. Returns `None` if the endpoint was removed or is unavailable.
    pub(in crate::upstream) async fn send_to(
        &self,
        id: EndpointId,
        call: Call,
    ) -> Option<Result<AcceptedAnswer, UpstreamError>> {
        let pick = |now, _| {
            let endpoint = self.endpoints.get(id).ok_or(None)?;
            match endpoint.availability(1, Requirements::default(), now) {
                Availability::Now(_) => Ok(endpoint),
                Availability::After(wait) => Err(Some(wait)),
                Availability::Never => Err(None),
            }
        };
        match self.wait_for(self.max_wait, pick).await {
            Ok(endpoint) => {
                let mut attempted = attempt(&endpoint, &vec![call], None).await;
                Some(attempted.pop().unwrap_or(Err(UpstreamError::Empty)))
            }
            Err(Some(wait)) => {
                let endpoint = self.endpoints.get(id)?;
                Some(Err(endpoint.wait_error(1, Requirements::default(), wait)))
            }
            Err(None) => None,
        }
    }

    /// Sends calls to this endpoint. If the endpoint is slow and the calls may be sent twice, also sends them to
    /// another one.
    async fn attempt(
        &self,
        endpoint: &Endpoint,
        calls: &Calls,
        slot: Slot,
        requirements: Requirements,
        tried: &mut Vec<EndpointId>,
    ) -> AcceptedAnswers {
        tried.push(endpoint.id());
        match &self.hedge {
            None => attempt(endpoint, calls, slot).await,
            Some(hedge) => self.hedged(hedge, endpoint, calls, slot, requirements, tried).await,
        }
    }

    async fn hedged(
        &self,
        hedge: &Hedge,
        endpoint: &Endpoint,
        calls: &Calls,
        slot: Slot,
        requirements: Requirements,
        tried: &mut Vec<EndpointId>,
    ) -> AcceptedAnswers {
        // Boxed, because hedging is off by default, and two futures would enlarge every `send`.
        let first = Box::pin(attempt(endpoint, calls, slot));
        // Calls that require the primary are not hedged, because another endpoint's answer may belong to another
        // branch.
        let may_hedge = calls.iter().all(Call::is_repeatable) && !requirements.primary;
        let hedge_candidate = may_hedge.then_some(|after: Duration| {
            let other = self.hedge_candidate(Selection { calls: calls.len() as u32, requirements, tried })?;
            tried.push(other.id());
            self.metrics.hedged();
            debug!(slow = %endpoint.name(), endpoint = %other.name(), after_seconds = seconds(after), "endpoint is slow; sending a hedge request");
            Some(Box::pin(async move { attempt(&other, calls, None).await }))
        });
        let HedgeOutcome { attempted, second_won } = hedge.attempt(calls, first, hedge_candidate).await;
        if second_won {
            self.metrics.hedge_won();
        }
        attempted
    }

    /// Returns another suitable endpoint that is available at once, if the retry budget allows it.
    fn hedge_candidate(&self, selection: Selection<'_>) -> Option<Arc<Endpoint>> {
        if selection.tried.len() >= MAX_ATTEMPTS {
            return None;
        }
        let mut available = self.endpoints.candidates(selection, Instant::now()).available;
        available.retain(|(score, _)| score.is_fit());
        let other = choose(&available)?;
        self.retries.withdraw().then(|| other.clone())
    }

    /// Waits for a slot and for an endpoint. Calls of the canonical view need no slot. They are few: at most one refresh of
    /// each tag at a time.
    async fn enter(
        &self,
        selection: Selection<'_>,
        patience: Duration,
    ) -> Result<(Slot, Arc<Endpoint>), UpstreamError> {
        let slot = if selection.requirements.for_view {
            None
        } else {
            let slot = timeout(self.max_wait, self.slots.clone().acquire_owned());
            Some(slot.await.map_err(|_| UpstreamError::Busy)?.expect("the semaphore is never closed"))
        };
        Ok((slot, self.select(selection, patience).await?))
    }

    /// Selects an endpoint for these calls that has not been tried. Waits for an endpoint that is at its rate limit.
    async fn select(
        &self,
        selection: Selection<'_>,
        patience: Duration,
    ) -> Result<Arc<Endpoint>, UpstreamError> {
        match self.wait_for(patience, |now, left| self.pick(selection, now, left)).await {
            Ok(endpoint) => Ok(endpoint),
            Err(Some(wait)) => Err(self.endpoints.wait_error(selection, wait)),
            Err(None) => Err(self.endpoints.unavailable_reason()),
        }
    }

    /// Waits until `pick` returns an endpoint, for `patience` at most. If `pick` returns none, returns how long the
    /// wait would be, if known. `pick` receives the current time and the remaining patience.
    async fn wait_for(
        &self,
        patience: Duration,
        pick: impl Fn(Instant, Duration) -> Result<Arc<Endpoint>, Option<Duration>>,
    ) -> Result<Arc<Endpoint>, Option<Duration>> {
        let mut now = Instant::now();
        let until = now + patience;
        loop {
            match pick(now, until.saturating_duration_since(now)) {
                Err(Some(wait)) if now + wait <= until => time::sleep(wait.min(POLL_INTERVAL)).await,
                picked => return picked,
            }
            now = Instant::now();
        }
    }

    /// Returns the best endpoint now. If there is none, returns the wait until there is one, if known.
    fn pick(
        &self,
        selection: Selection<'_>,
        now: Instant,
        left: Duration,
    ) -> Result<Arc<Endpoint>, Option<Duration>> {
        let Candidates { available, wait } = self.endpoints.candidates(selection, now);
        let Selection { requirements, .. } = selection;
        let endpoint = if requirements.primary || requirements.forwarded {
            self.primary.pick(&available, selection, now, left).map_err(|own| own.or(wait))?
        } else {
            choose(&available).cloned().ok_or(wait)?
        };
        if !requirements.primary {
            let unconfirmed =
                available.iter().filter(|(score, _)| score.is_unconfirmed()).map(|(_, other)| other);
            unconfirmed
                .filter(|other| other.priority() <= endpoint.priority())
                .for_each(|other| other.recheck_now());
        }
        Ok(endpoint)
    }

    /// Returns the status of all endpoints, and the primary.
    pub(in crate::upstream) fn status(&self) -> (Vec<EndpointStatus>, Option<EndpointId>) {
        (self.endpoints.status(), self.primary.endpoint())
    }

    pub(in crate::upstream) fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}

/// Combines the requirements of calls that are sent in one request.
fn combined_requirements(calls: &Calls) -> Requirements {
    Requirements {
        block: calls.iter().filter_map(|call| call.requirements.block).max(),
        head: calls.iter().filter_map(|call| call.requirements.head).max(),
        primary: calls.iter().any(|call| call.requirements.primary),
        forwarded: calls.iter().any(|call| call.requirements.forwarded),
        filter: calls.iter().any(Call::is_filter),
        for_view: calls.iter().all(|call| call.requirements.for_view),
        ..Requirements::default()
    }
}
