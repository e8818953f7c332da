//! Which endpoint the view of the chain follows.
//!
//! Two nodes need not be on one branch, nor equally far. So the view follows one of them, and whatever depends on
//! the branch is asked of that one, the primary, and so is every forwarded call. It is waited for while it is at its rate or has asked for a pause, as long as a
//! call waits at all. It is left for another when it fails, when several forwarded calls in a row fail at it, when it shows
//! a head behind the one it showed before, when it is taken away, and when it wants to be left alone for longer than a call waits. What another is asked for besides,
//! since it may have it or say it better, does not make it the one that is followed.
//!
//! Once the first in order does well again it is followed again: whoever named an order meant it, and a spare may be
//! billed. So that two that fail by turns do not have the view swing between them, that is looked into at most
//! once in [`PREFERRED_CHECK_INTERVAL`], beside a refresh of the head and without anybody waiting for it; and the first is followed
//! only if the head that it shows is not behind the other's.

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

/// Between a change, or a look at those that come first, and the next look. Long beside what a node needs to come back
/// and be gone again, short beside what a spare may cost.
const PREFERRED_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The one that is followed, shared by all calls.
#[derive(Debug)]
pub(in crate::upstream) struct Primary {
    endpoints: Arc<EndpointSet>,
    /// How long a call waits for an endpoint that is at its rate.
    max_wait: Duration,
    state: Mutex<PrimaryState>,
    log_throttle: LogThrottle,
}

/// Locked while one is chosen, so that two calls do not choose two.
#[derive(Debug, Default)]
struct PrimaryState {
    endpoint: Option<EndpointId>,
    /// When it changed, or those that come before it were last looked at.
    changed_at: Option<Instant>,
}

// === impl Primary ===

impl Primary {
    pub(super) fn new(endpoints: Arc<EndpointSet>, max_wait: Duration) -> Self {
        Self { endpoints, max_wait, state: Mutex::default(), log_throttle: LogThrottle::default() }
    }

    /// The one that is followed.
    pub(in crate::upstream) fn endpoint(&self) -> Option<EndpointId> {
        self.state.lock().endpoint
    }

    /// The one that is followed, as long as it can be asked or waited for; then another is. For what that one is
    /// known to lack, or has been asked for already, another is asked, and not followed for that.
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
                // So many wait for it that this one has waited long enough: it does well all the same.
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

    /// This endpoint failed, or lags: if it is the one that is followed, another is from now on, if there is one.
    pub(in crate::upstream) fn demote(&self, id: EndpointId) {
        self.leave(id, |_| true);
    }

    /// This endpoint keeps failing forwarded calls: if it is the primary, another that fails clearly fewer is from now on.
    /// Calls that fail everywhere are not the primary's fault.
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
            // Nobody knows who the others are: then they are no better, until they have said it.
            others.iter().filter_map(|(_, other)| other.identity()).for_each(IdentityProbe::recheck_now);
        }
    }

    /// Asks one that is well, and is not this one, once.
    pub(in crate::upstream) async fn call_another(
        &self,
        than: EndpointId,
        call: Call,
    ) -> Option<(EndpointId, Option<Verdict>)> {
        let mut available =
            self.endpoints.candidates(Selection::excluding(&[than]), Instant::now()).available;
        // Who it is it is asked first, if that is in doubt; nobody waits for this.
        available.retain(|(score, _)| score.is_healthy());
        let other = choose(&available)?;
        let accepted = attempt(other, &vec![call]).await.pop()?.ok()?;
        Some((other.id(), accepted.verdict))
    }

    /// The head of this endpoint stands still, and the other is further: that one is followed, if this one was.
    pub(in crate::upstream) fn switch(&self, of: EndpointId, other: EndpointId) {
        let Some(other) = self.endpoints.get(other) else { return };
        let mut primary = self.state.lock();
        if primary.endpoint == Some(of) {
            primary.switch_to(other.id(), Instant::now());
            if self.log_throttle.is_due("further") {
                warn!(endpoint = %other.name(), "primary endpoint stalled; switching to an endpoint with a newer head");
            }
        }
    }

    /// Beside a call for the head, now and then: does one that comes before the one that is followed do well again, and
    /// is it as far? Then it is followed from now on. Waits for nothing.
    pub(in crate::upstream) fn check_preferred(self: &Arc<Self>, calls: &Calls) {
        let Some(head) = calls.iter().find(|call| call.requirements.is_head && call.is_awaited()) else {
            return;
        };
        let now = Instant::now();
        let (first, from) = {
            let mut primary = self.state.lock();
            let Some(both) = self.preferred(&primary, now) else { return };
            primary.changed_at = Some(now);
            both
        };
        let (this, calls) = (self.clone(), vec![head.clone().without_context()]);
        tokio::spawn(async move {
            let attempted = attempt(&first, &calls).await;
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

    /// Returns whether the next call for the head compares the primary with an endpoint that comes before it in order.
    pub(in crate::upstream) fn is_preferred_check_due(&self) -> bool {
        self.preferred(&self.state.lock(), Instant::now()).is_some()
    }

    /// The first in order that could be followed instead, and the one that is; `None` if it is not time to look.
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

    /// Two that fail by turns would else fill the log.
    fn log_switch(&self, endpoint: &Endpoint) {
        let endpoint = endpoint.name();
        if self.log_throttle.is_due("elsewhere") {
            info!(%endpoint, "primary endpoint failed or lags; switching to another");
        } else {
            debug!(%endpoint, "primary endpoint failed or lags; switching to another");
        }
    }
}

// === impl PrimaryState ===

impl PrimaryState {
    /// From here on this one is; returns the one before, if it was another.
    fn switch_to(&mut self, endpoint: EndpointId, now: Instant) -> Option<EndpointId> {
        let before = self.endpoint.replace(endpoint).filter(|before| *before != endpoint);
        self.changed_at = Some(now);
        before
    }

    /// Returns whether it is time to look at the endpoints that come before it.
    fn is_preferred_check_due(&self, now: Instant) -> bool {
        self.changed_at.is_some_and(|changed_at| now >= changed_at + PREFERRED_CHECK_INTERVAL)
    }
}
