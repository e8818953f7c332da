//! Which endpoint the view of the chain follows.
//!
//! Two nodes need not be on one branch, nor equally far. So the view follows one of them, and whatever depends on
//! the branch is asked of that one, the primary, and so is every forwarded call. It is waited for while it is at its rate or has asked for a pause, as long as a
//! call waits at all. It is left for another when it fails, when it shows a head behind the one it showed before, when
//! it is taken away, and when it wants to be left alone for longer than a call waits. What another is asked for besides,
//! since it may have it or say it better, does not make it the one that is followed.
//!
//! Once the first in order does well again it is followed again: whoever named an order meant it, and a spare may be
//! billed. So that two that fail by turns do not have the view swing between them, that is looked into at most
//! once in [`LOOK_BACK`], beside a refresh of the head and without anybody waiting for it; and the first is followed
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
    endpoint_set::{EndpointSet, Wanted},
    p2c::two_choices,
    retry::is_null,
};
use crate::{seldom::Seldom, verify::Verdict};

/// Between a change, or a look at those that come first, and the next look. Long beside what a node needs to come back
/// and be gone again, short beside what a spare may cost.
const LOOK_BACK: Duration = Duration::from_secs(60);

/// The one that is followed, shared by all calls.
#[derive(Debug)]
pub(in crate::upstream) struct Primary {
    endpoints: Arc<EndpointSet>,
    /// How long a call waits for an endpoint that is at its rate.
    max_wait: Duration,
    state: Mutex<State>,
    log_throttle: Seldom,
}

/// Locked while one is chosen, so that two calls do not choose two.
#[derive(Debug, Default)]
struct State {
    endpoint: Option<EndpointId>,
    /// When it changed, or those that come before it were last looked at.
    settled: Option<Instant>,
}

// === impl Primary ===

impl Primary {
    pub(super) fn new(endpoints: Arc<EndpointSet>, max_wait: Duration) -> Self {
        Self { endpoints, max_wait, state: Mutex::default(), log_throttle: Seldom::default() }
    }

    /// The one that is followed.
    pub(in crate::upstream) fn endpoint(&self) -> Option<EndpointId> {
        self.state.lock().endpoint
    }

    /// The one that is followed, as long as it can be asked or waited for; then another is. For what that one is
    /// known to lack, or has been asked for already, another is asked, and not followed for that.
    pub(in crate::upstream) fn pick(
        &self,
        eligible: &[(Score, Arc<Endpoint>)],
        Wanted { calls, requirements, tried }: Wanted<'_>,
        now: Instant,
        left: Duration,
    ) -> Result<Arc<Endpoint>, Option<Duration>> {
        let mut followed = self.state.lock();
        if let Some(current) = followed.endpoint.and_then(|id| self.endpoints.get(id)) {
            if tried.contains(&current.id()) {
                return two_choices(eligible).cloned().ok_or(None);
            }
            match current.availability(calls, requirements, now) {
                Availability::Now(score) if score.lacks_block() && !requirements.filter => {
                    let has_it = eligible.iter().filter(|(score, _)| !score.lacks_block());
                    let has_it: Vec<_> = has_it.cloned().collect();
                    return Ok(two_choices(&has_it).cloned().unwrap_or(current));
                }
                Availability::Now(_) => return Ok(current),
                Availability::After(wait) if wait <= if requirements.filter { self.max_wait } else { left } => {
                    return Err(Some(wait));
                }
                // So many wait for it that this one has waited long enough: it does well all the same.
                Availability::After(wait) if wait <= self.max_wait => {
                    return two_choices(eligible).cloned().ok_or(Some(wait));
                }
                Availability::After(..) | Availability::Never => {}
            }
        }
        let endpoint = two_choices(eligible).cloned().ok_or(None)?;
        if followed.follow(endpoint.id(), now).is_some() {
            self.say(&endpoint);
        }
        Ok(endpoint)
    }

    /// This endpoint failed, or lags: if it is the one that is followed, another is from now on, if there is one.
    pub(in crate::upstream) fn leave(&self, id: EndpointId) {
        let now = Instant::now();
        let mut followed = self.state.lock();
        if followed.endpoint != Some(id) {
            return;
        }
        let others = self.endpoints.candidates(Wanted::another_than(&[id]), now).eligible;
        let fit: Vec<_> = others.iter().filter(|(score, _)| score.is_fit()).cloned().collect();
        if let Some(endpoint) = two_choices(&fit) {
            followed.follow(endpoint.id(), now);
            self.say(endpoint);
        } else {
            // Nobody knows who the others are: then they are no better, until they have said it.
            others.iter().filter_map(|(_, other)| other.identity()).for_each(IdentityProbe::recheck_now);
        }
    }

    /// Asks one that is well, and is not this one, once.
    pub(in crate::upstream) async fn ask_another(
        &self,
        than: EndpointId,
        call: Call,
    ) -> Option<(EndpointId, Option<Verdict>)> {
        let mut eligible = self.endpoints.candidates(Wanted::another_than(&[than]), Instant::now()).eligible;
        // Who it is it is asked first, if that is in doubt; nobody waits for this.
        eligible.retain(|(score, _)| score.is_healthy());
        let other = two_choices(&eligible)?;
        let accepted = attempt(other, &vec![call]).await.pop()?.ok()?;
        Some((other.id(), accepted.verdict))
    }

    /// The head of this endpoint stands still, and the other is further: that one is followed, if this one was.
    pub(in crate::upstream) fn follow_instead(&self, of: EndpointId, other: EndpointId) {
        let Some(other) = self.endpoints.get(other) else { return };
        let mut followed = self.state.lock();
        if followed.endpoint == Some(of) {
            followed.follow(other.id(), Instant::now());
            if self.log_throttle.is_due("further") {
                warn!(upstream = %other.name(), "the head stood still where the chain was followed, and is further here: it is followed here from now on");
            }
        }
    }

    /// Beside a call for the head, now and then: does one that comes before the one that is followed do well again, and
    /// is it as far? Then it is followed from now on. Waits for nothing.
    pub(in crate::upstream) fn look_back(self: &Arc<Self>, calls: &Calls) {
        let Some(head) = calls.iter().find(|call| call.requirements.is_head && call.is_awaited()) else {
            return;
        };
        let now = Instant::now();
        let (first, from) = {
            let mut followed = self.state.lock();
            let Some(both) = self.first_again(&followed, now) else { return };
            followed.settled = Some(now);
            both
        };
        let (this, calls) = (self.clone(), vec![head.clone().without_context()]);
        tokio::spawn(async move {
            let attempted = attempt(&first, &calls).await;
            let is_healthy = attempted.iter().all(|outcome| outcome.is_ok() && !is_null(outcome));
            let shown = first.head_since(now);
            let mut followed = this.state.lock();
            if is_healthy
                && shown.is_some()
                && followed.endpoint == Some(from.id())
                && shown >= from.head()
                && this.endpoints.get(first.id()).is_some()
            {
                followed.follow(first.id(), Instant::now());
                info!(upstream = %first.name(), "the chain is followed again at the first in order");
            }
        });
    }

    /// Returns whether the next call for the head compares the primary with an endpoint that comes before it in order.
    pub(in crate::upstream) fn may_look_back(&self) -> bool {
        self.first_again(&self.state.lock(), Instant::now()).is_some()
    }

    /// The first in order that could be followed instead, and the one that is; `None` if it is not time to look.
    fn first_again(&self, followed: &State, now: Instant) -> Option<(Arc<Endpoint>, Arc<Endpoint>)> {
        if !followed.may_look_back(now) {
            return None;
        }
        let current = self.endpoints.get(followed.endpoint?)?;
        if self.endpoints.load().iter().all(|other| other.priority() >= current.priority()) {
            return None;
        }
        let eligible = self.endpoints.candidates(Wanted::another_than(&[current.id()]), now).eligible;
        let well = eligible.iter().filter(|(score, _)| score.is_fit() && score.is_healthy());
        let first = well.map(|(_, endpoint)| endpoint).min_by_key(|endpoint| endpoint.priority())?;
        (first.priority() < current.priority()).then(|| (first.clone(), current))
    }

    /// Two that fail by turns would else fill the log.
    fn say(&self, upstream: &Endpoint) {
        let upstream = upstream.name();
        if self.log_throttle.is_due("elsewhere") {
            info!(%upstream, "the chain is followed elsewhere from now on");
        } else {
            debug!(%upstream, "the chain is followed elsewhere from now on");
        }
    }
}

// === impl State ===

impl State {
    /// From here on this one is; returns the one before, if it was another.
    fn follow(&mut self, endpoint: EndpointId, now: Instant) -> Option<EndpointId> {
        let before = self.endpoint.replace(endpoint).filter(|before| *before != endpoint);
        self.settled = Some(now);
        before
    }

    /// Returns whether it is time to look at the endpoints that come before it.
    fn may_look_back(&self, now: Instant) -> bool {
        self.settled.is_some_and(|settled| now >= settled + LOOK_BACK)
    }
}
