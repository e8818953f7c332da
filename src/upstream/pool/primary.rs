//! The primary: the endpoint whose head the canonical view follows.
//!
//! Two nodes need not be on the same branch, nor at the same height. So the canonical view follows one of them, the
//! primary, which also answers every call that depends on the branch and every forwarded call. While the primary is
//! at its rate limit or has asked for a pause, calls wait for it, up to `max_wait`. Another endpoint replaces the
//! primary when
//! - the primary fails, or several forwarded calls in a row fail at it,
//! - its head falls behind an earlier one, or stalls while another endpoint has a newer head,
//! - a reload removes it, or
//! - it asks for a longer pause than a call waits.
//!
//! An endpoint that answers a single call in place of the primary, because the primary lacks the block or gave a
//! worse answer, does not become the primary.
//!
//! When a preferred endpoint is healthy again, it becomes the primary again: the operator chose the order, and a
//! spare may be billed. The check runs at most once per [`PREFERRED_CHECK_INTERVAL`], so that two endpoints that
//! fail in turn do not make the view alternate between them. It runs beside a refresh of the head, and no client
//! waits for it. The preferred endpoint becomes the primary only if its head is not behind the primary's.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::{
    super::{
        Call, Calls, EndpointId,
        endpoint::{Availability, Endpoint, Score, attempt},
        identity::IdentityProbe,
    },
    endpoint_set::{EndpointSet, Selection},
    p2c::choose,
    retry::is_null,
};
use crate::{log_throttle::LogThrottle, verify::Verdict};

/// Interval between a switch, or a check of preferred endpoints, and the next check. Longer than a node usually
/// takes to recover and fail again, short enough to limit the cost of a spare.
const PREFERRED_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The primary endpoint, shared by all calls.
#[derive(Debug)]
pub(in crate::upstream) struct Primary {
    endpoints: Arc<EndpointSet>,
    /// How long a call waits for an endpoint at its rate limit.
    max_wait: Duration,
    state: Mutex<PrimaryState>,
    log_throttle: LogThrottle,
}

/// The state is locked during the choice, so that two calls do not choose two primaries.
#[derive(Debug, Default)]
struct PrimaryState {
    endpoint: Option<EndpointId>,
    /// Time of the last switch, or of the last check of preferred endpoints.
    changed_at: Option<Instant>,
}

// === impl Primary ===

impl Primary {
    pub(super) fn new(endpoints: Arc<EndpointSet>, max_wait: Duration) -> Self {
        Self { endpoints, max_wait, state: Mutex::default(), log_throttle: LogThrottle::default() }
    }

    /// Returns the primary.
    pub(in crate::upstream) fn endpoint(&self) -> Option<EndpointId> {
        self.state.lock().endpoint
    }

    /// Returns the primary if it is available, or how long to wait for it. If it is neither available nor worth the
    /// wait, makes another endpoint the primary. If the primary lacks the block, has been tried for these calls, or
    /// becomes available only after their patience has run out, returns another endpoint without making it the primary.
    pub(in crate::upstream) fn pick(
        &self,
        available: &[(Score, Arc<Endpoint>)],
        Selection { calls, requirements, tried }: Selection<'_>,
        now: Instant,
        left: Duration,
    ) -> Result<Arc<Endpoint>, Option<Duration>> {
        let mut primary = self.state.lock();
        if let Some(current) = primary.endpoint.and_then(|id| self.endpoints.get(id)) {
            if tried.contains(&current.id()) {
                return choose(available).cloned().ok_or(None);
            }
            match current.availability(calls, requirements, now) {
                Availability::Now(score) if score.lacks_block() && !requirements.filter => {
                    let has_it = available.iter().filter(|(score, _)| !score.lacks_block());
                    let has_it: Vec<_> = has_it.cloned().collect();
                    return Ok(choose(&has_it).cloned().unwrap_or(current));
                }
                Availability::Now(_) => return Ok(current),
                Availability::After(wait)
                    if wait <= if requirements.filter { self.max_wait } else { left } =>
                {
                    return Err(Some(wait));
                }
                // The remaining wait exceeds the patience of this call. Another endpoint answers it, but the primary
                // is healthy and stays the primary.
                Availability::After(wait) if wait <= self.max_wait => {
                    return choose(available).cloned().ok_or(Some(wait));
                }
                Availability::After(..) | Availability::Never => {}
            }
        }
        let endpoint = choose(available).cloned().ok_or(None)?;
        if primary.switch_to(endpoint.id(), now).is_some() {
            self.log_switch(&endpoint);
        }
        Ok(endpoint)
    }

    /// Reports that an endpoint failed or lags: if it is the primary, another suitable endpoint replaces it.
    pub(in crate::upstream) fn demote(&self, id: EndpointId) {
        self.leave(id, |_| true);
    }

    /// Reports that an endpoint keeps failing forwarded calls: if it is the primary, an endpoint with clearly fewer
    /// such failures replaces it. Calls that fail everywhere are not the primary's fault.
    pub(in crate::upstream) fn demote_for_forwarded(&self, endpoint: &Endpoint) {
        let failures = endpoint.forward_failures();
        self.leave(endpoint.id(), |other| other.forward_failures() < failures / 2);
    }

    fn leave(&self, id: EndpointId, is_better: impl Fn(&Endpoint) -> bool) {
        let now = Instant::now();
        let mut primary = self.state.lock();
        if primary.endpoint != Some(id) {
            return;
        }
        let others = self.endpoints.candidates(Selection::excluding(&[id]), now).available;
        let fit = others.iter().filter(|(score, other)| score.is_fit() && is_better(other));
        let fit: Vec<_> = fit.cloned().collect();
        if let Some(endpoint) = choose(&fit) {
            primary.switch_to(endpoint.id(), now);
            self.log_switch(endpoint);
        } else {
            // No other endpoint is suitable yet, but one may become suitable when its identity is confirmed.
            others.iter().filter_map(|(_, other)| other.identity()).for_each(IdentityProbe::recheck_now);
        }
    }

    /// Sends the call once to a healthy endpoint other than `than`.
    pub(in crate::upstream) async fn call_another(
        &self,
        than: EndpointId,
        call: Call,
    ) -> Option<(EndpointId, Option<Verdict>)> {
        let mut available =
            self.endpoints.candidates(Selection::excluding(&[than]), Instant::now()).available;
        // An endpoint with an unconfirmed identity is acceptable: the attempt confirms it first, and no client waits
        // for it.
        available.retain(|(score, _)| score.is_healthy());
        let other = choose(&available)?;
        let accepted = attempt(other, &vec![call], None).await.pop()?.ok()?;
        Some((other.id(), accepted.verdict))
    }

    /// Makes `other` the primary in place of `of`, whose head has stalled behind that of `other`. Does nothing if `of`
    /// is not the primary.
    pub(in crate::upstream) fn switch(&self, of: EndpointId, other: EndpointId) {
        let Some(other) = self.endpoints.get(other) else { return };
        let mut primary = self.state.lock();
        if primary.endpoint == Some(of) {
            primary.switch_to(other.id(), Instant::now());
            let endpoint = other.name();
            if self.log_throttle.is_due("further") {
                warn!(%endpoint, "primary endpoint stalled; switching to this endpoint, which has a newer head");
            } else {
                debug!(%endpoint, "primary endpoint stalled; switching to this endpoint, which has a newer head");
            }
        }
    }

    /// If `calls` include a call for the head and a check is due, sends that call to a preferred endpoint, too. Makes
    /// this endpoint the primary if it is healthy and not behind. Does not wait for the answer.
    pub(in crate::upstream) fn check_preferred(self: &Arc<Self>, calls: &Calls) {
        let Some(head) = calls.iter().find(|call| call.requirements.is_head) else { return };
        let now = Instant::now();
        let (first, from) = {
            let mut primary = self.state.lock();
            let Some(both) = self.preferred(&primary, now) else { return };
            primary.changed_at = Some(now);
            both
        };
        let (this, calls) = (self.clone(), vec![head.clone().without_context()]);
        tokio::spawn(async move {
            let attempted = attempt(&first, &calls, None).await;
            let is_healthy = attempted.iter().all(|outcome| outcome.is_ok() && !is_null(outcome));
            let shown = first.head_since(now);
            let mut primary = this.state.lock();
            if is_healthy
                && shown.is_some()
                && primary.endpoint == Some(from.id())
                && shown >= from.head()
                && this.endpoints.get(first.id()).is_some()
            {
                primary.switch_to(first.id(), Instant::now());
                info!(endpoint = %first.name(), "preferred endpoint is healthy again; switching back to it");
            }
        });
    }

    /// Returns whether the next call for the head compares the primary with a preferred endpoint.
    pub(in crate::upstream) fn is_preferred_check_due(&self) -> bool {
        self.preferred(&self.state.lock(), Instant::now()).is_some()
    }

    /// Returns the preferred endpoint and the primary; `None` if no check is due or no preferred endpoint is healthy.
    fn preferred(&self, primary: &PrimaryState, now: Instant) -> Option<(Arc<Endpoint>, Arc<Endpoint>)> {
        if !primary.is_preferred_check_due(now) {
            return None;
        }
        let current = self.endpoints.get(primary.endpoint?)?;
        if self.endpoints.load().iter().all(|other| other.priority() >= current.priority()) {
            return None;
        }
        let available = self.endpoints.candidates(Selection::excluding(&[current.id()]), now).available;
        let well = available.iter().filter(|(score, _)| score.is_fit() && score.is_healthy());
        let first = well.map(|(_, endpoint)| endpoint).min_by_key(|endpoint| endpoint.priority())?;
        (first.priority() < current.priority()).then(|| (first.clone(), current))
    }

    /// Logs a switch of the primary. Throttled, because two endpoints that fail in turn would otherwise fill the log.
    fn log_switch(&self, endpoint: &Endpoint) {
        let endpoint = endpoint.name();
        if self.log_throttle.is_due("elsewhere") {
            info!(%endpoint, "primary endpoint unavailable or lagging; switching to this endpoint");
        } else {
            debug!(%endpoint, "primary endpoint unavailable or lagging; switching to this endpoint");
        }
    }
}

// === impl PrimaryState ===

impl PrimaryState {
    /// Makes `endpoint` the primary. Returns the previous primary, if it was another endpoint.
    fn switch_to(&mut self, endpoint: EndpointId, now: Instant) -> Option<EndpointId> {
        let before = self.endpoint.replace(endpoint).filter(|before| *before != endpoint);
        self.changed_at = Some(now);
        before
    }

    /// Returns whether a check of preferred endpoints is due.
    fn is_preferred_check_due(&self, now: Instant) -> bool {
        self.changed_at.is_some_and(|changed_at| now >= changed_at + PREFERRED_CHECK_INTERVAL)
    }
}
