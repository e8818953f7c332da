//! All endpoints of one chain, and the choice among them.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use futures_util::future::{join_all, select_ok};
use tokio::{
    sync::watch,
    time::{self, Instant},
};
use tower::retry::budget::{Budget, TpsBudget};
use tracing::{debug, info};

use super::{
    Call, Calls, UpstreamError,
    endpoint::{Accepted, Attempted, Cost, Eligible, Endpoint, EndpointStatus},
    identity::{IdentityError, IdentityState, Pin, Recognition, WhoIs},
    limited,
};
use crate::{eth::BlockNumber, jsonrpc::Answer};

/// A call is sent to so many endpoints at most, whatever their number.
const MOST_ATTEMPTS: usize = 3;

/// Retries are a tenth of the calls at most, and these many a second in any case: a chain of proxies that all
/// retry would else turn one failure into a flood.
const RETRY_SHARE: f32 = 0.1;
const LEAST_RETRIES: u32 = 10;
const RETRY_MEMORY: Duration = Duration::from_secs(10);

/// Before a second attempt: long enough for a herd to part, too short to be noticed. Doubled each time.
const BACKOFF: Duration = Duration::from_millis(10);

/// All endpoints.
#[derive(Debug)]
pub(super) struct Pool {
    endpoints: ArcSwap<Vec<Arc<Endpoint>>>,
    pin: Arc<Pin>,
    /// The endpoint that the view of the chain follows, by name.
    followed: Mutex<Option<Arc<str>>>,
    retries: TpsBudget,
    /// How long a call waits for an endpoint that is at its rate.
    max_wait: Duration,
    changed: watch::Sender<()>,
}

/// What a call needs of the endpoint that answers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// It should have this block: not be behind it, not have forgotten it.
    pub block: Option<BlockNumber>,
    /// It must be the one that the view of the chain follows, or whoever takes its place.
    pub followed: bool,
    /// The answer is a head: what it shows is all that the endpoint has.
    pub is_head: bool,
    /// A `null` may only mean that this endpoint has not got it yet: another one is asked once.
    pub null_elsewhere: bool,
}

/// Who all endpoints are together: one chain. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Identity(Arc<Pool>);

// === impl Pool ===

impl Pool {
    pub(super) fn new(endpoints: Vec<Endpoint>, pin: Arc<Pin>, max_wait: Duration) -> Self {
        Self {
            endpoints: ArcSwap::from_pointee(endpoints.into_iter().map(Arc::new).collect()),
            pin,
            followed: Mutex::default(),
            retries: TpsBudget::new(RETRY_MEMORY, LEAST_RETRIES, RETRY_SHARE),
            max_wait,
            changed: watch::Sender::new(()),
        }
    }

    /// Sends calls to an endpoint, and those that fail to others, as far as that is safe and may help.
    pub(super) async fn send(&self, calls: Calls) -> Attempted {
        self.retries.deposit();
        let mut done: Vec<Option<Result<Accepted, UpstreamError>>> = vec![None; calls.len()];
        let mut left: Vec<usize> = (0..calls.len()).collect();
        let mut tried = Vec::new();
        for attempt in 0..MOST_ATTEMPTS {
            let sending: Calls = left.iter().map(|at| calls[*at].clone()).collect();
            let need = together(&sending);
            let endpoint = match self.choose(sending.len() as u32, need, &tried).await {
                Ok(endpoint) => endpoint,
                Err(error) => {
                    for at in left {
                        done[at].get_or_insert(Err(error.clone()));
                    }
                    break;
                }
            };
            let attempted = endpoint.attempt(&sending).await;
            tried.push(endpoint.name().clone());
            let mut again = Vec::new();
            for ((at, call), outcome) in left.iter().zip(&sending).zip(attempted) {
                if is_worth_another(call, &outcome) {
                    again.push(*at);
                }
                // A later failure does not make an earlier answer worse.
                if outcome.is_ok() || !matches!(done[*at], Some(Ok(_))) {
                    done[*at] = Some(outcome);
                }
            }
            left = again;
            let others = self.endpoints.load().iter().any(|endpoint| !tried.contains(endpoint.name()));
            if left.is_empty() || !others || !self.retries.withdraw() {
                break;
            }
            time::sleep(BACKOFF.mul_f64(fastrand::f64() * f64::from(1u32 << attempt))).await;
        }
        done.into_iter().map(|outcome| outcome.unwrap_or(Err(UpstreamError::Empty))).collect()
    }

    /// An endpoint for these calls that is not among those tried; waits for one that is at its rate.
    async fn choose(
        &self,
        calls: u32,
        need: Need,
        tried: &[Arc<str>],
    ) -> Result<Arc<Endpoint>, UpstreamError> {
        let patience = Instant::now() + self.max_wait;
        loop {
            let now = Instant::now();
            match self.pick(calls, need, tried, now) {
                Ok(endpoint) => return Ok(endpoint),
                Err(Some(wait)) if now + wait <= patience => time::sleep(wait).await,
                Err(Some(wait)) => return Err(UpstreamError::RateLimited { retry_after: Some(wait) }),
                Err(None) => return Err(self.why_none()),
            }
        }
    }

    /// The best endpoint now; else how long until there is one, if that is known.
    fn pick(
        &self,
        calls: u32,
        need: Need,
        tried: &[Arc<str>],
        now: Instant,
    ) -> Result<Arc<Endpoint>, Option<Duration>> {
        let endpoints = self.endpoints.load();
        let mut wait = None::<Duration>;
        let mut eligible: Vec<(Cost, &Arc<Endpoint>)> = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints.iter().filter(|endpoint| !tried.contains(endpoint.name())) {
            match endpoint.eligible(calls, need.block, now) {
                Eligible::Yes(cost) => eligible.push((cost, endpoint)),
                Eligible::After(after) => wait = Some(wait.map_or(after, |wait| wait.min(after))),
                Eligible::No => {}
            }
        }
        if need.followed {
            return self.pick_followed(&eligible).ok_or(wait);
        }
        two_choices(&eligible).cloned().ok_or(wait)
    }

    /// The one that is followed, as long as it can be asked; then another is. For what that one is known to
    /// lack, one that may have it is asked, and none is followed for that.
    fn pick_followed(&self, eligible: &[(Cost, &Arc<Endpoint>)]) -> Option<Arc<Endpoint>> {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_followed =
            |(_, endpoint): &&(Cost, &Arc<Endpoint>)| followed.as_deref() == Some(&**endpoint.name());
        if let Some((cost, endpoint)) = eligible.iter().find(is_followed) {
            let has_it = || eligible.iter().filter(|(cost, _)| !cost.lacks()).copied().collect::<Vec<_>>();
            let elsewhere = if cost.lacks() { two_choices(&has_it()).cloned() } else { None };
            return Some(elsewhere.unwrap_or_else(|| (*endpoint).clone()));
        }
        let endpoint = two_choices(eligible)?;
        if let Some(before) = followed.replace(endpoint.name().clone()) {
            info!(upstream = %endpoint.name(), %before, "the chain is followed elsewhere from now on");
        }
        Some(endpoint.clone())
    }

    /// The endpoint that is followed lags: another is followed that may be further, if there is one.
    pub(super) fn unfollow(&self) {
        let endpoints = self.endpoints.load();
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let others = endpoints.iter().filter(|endpoint| followed.as_ref() != Some(endpoint.name()));
        let eligible: Vec<_> = others
            .filter_map(|endpoint| match endpoint.eligible(1, None, now) {
                Eligible::Yes(cost) => Some((cost, endpoint)),
                Eligible::After(_) | Eligible::No => None,
            })
            .collect();
        if let Some(endpoint) = two_choices(&eligible) {
            let before = followed.replace(endpoint.name().clone());
            debug!(upstream = %endpoint.name(), ?before, "the one that was followed lags");
        }
    }

    /// Nobody can be asked: the reason that tells most.
    fn why_none(&self) -> UpstreamError {
        let endpoints = self.endpoints.load();
        let stranger = |endpoint: &Arc<Endpoint>| match endpoint.recognition()?.state() {
            IdentityState::Stranger(stranger) => Some(UpstreamError::Stranger(stranger)),
            IdentityState::Unknown(_) | IdentityState::Known(_) => None,
        };
        let failed = endpoints.iter().find_map(|endpoint| endpoint.last_error());
        failed.or_else(|| endpoints.iter().find_map(stranger)).unwrap_or(UpstreamError::Busy)
    }

    /// Asks every endpoint who it is, for as long as this runs, also those that come later.
    pub(super) async fn watch(&self) {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let endpoints = self.endpoints.load_full();
            let watching = join_all(endpoints.iter().filter_map(|endpoint| {
                let recognition = endpoint.recognition()?;
                Some(recognition.watch(|call| ask_one(endpoint, call)))
            }));
            tokio::select! {
                _ = watching => std::future::pending().await,
                _ = changed.changed() => {}
            }
        }
    }

    /// How all of them do.
    pub(super) fn status(&self) -> Vec<EndpointStatus> {
        self.endpoints.load().iter().map(|endpoint| endpoint.status()).collect()
    }

    pub(super) fn followed(&self) -> Option<Arc<str>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From here on these are the endpoints.
    pub(super) fn replace(&self, endpoints: Vec<Endpoint>) {
        self.endpoints.store(Arc::new(endpoints.into_iter().map(Arc::new).collect()));
        self.changed.send_replace(());
    }

    pub(super) fn pin(&self) -> &Arc<Pin> {
        &self.pin
    }
}

async fn ask_one(endpoint: &Endpoint, call: Call) -> Result<Answer, UpstreamError> {
    let mut attempted = endpoint.ask(&vec![call]).await;
    Ok(attempted.pop().unwrap_or(Err(UpstreamError::Empty))?.answer)
}

/// What calls that travel together need.
fn together(calls: &Calls) -> Need {
    Need {
        block: calls.iter().filter_map(|call| call.need.block).max(),
        followed: calls.iter().any(|call| call.need.followed),
        is_head: false,
        null_elsewhere: false,
    }
}

/// Of the first in order that are fit, the better of two at random: nearly as good as the best of all, and no
/// herd runs after the one that was best a moment ago.
fn two_choices<'a>(eligible: &[(Cost, &'a Arc<Endpoint>)]) -> Option<&'a Arc<Endpoint>> {
    let fit = eligible.iter().filter(|(cost, _)| cost.is_fit());
    let first = fit.map(|(_, endpoint)| endpoint.priority()).min();
    let mut group: Vec<_> = eligible
        .iter()
        .filter(|(cost, endpoint)| first.is_none_or(|first| cost.is_fit() && endpoint.priority() == first))
        .collect();
    let one = draw(&mut group)?;
    let two = draw(&mut group).unwrap_or(one);
    Some(if one.0 <= two.0 { one.1 } else { two.1 })
}

/// Takes one out, at random by weight.
fn draw<'b, 'a>(group: &mut Vec<&'b (Cost, &'a Arc<Endpoint>)>) -> Option<&'b (Cost, &'a Arc<Endpoint>)> {
    let total: u64 = group.iter().map(|(_, endpoint)| u64::from(endpoint.weight())).sum();
    let mut left = fastrand::u64(..total.max(1));
    let at = group.iter().position(|(_, endpoint)| {
        let weight = u64::from(endpoint.weight());
        let drawn = left < weight;
        left = left.saturating_sub(weight);
        drawn
    })?;
    Some(group.swap_remove(at))
}

/// Might another endpoint do better, and is it safe to ask one?
fn is_worth_another(call: &Call, outcome: &Result<Accepted, UpstreamError>) -> bool {
    match outcome {
        Ok(Accepted { answer: Answer::Error(error), .. }) => {
            !call.is_write() && (limited::is_rate_limit(error) || limited::is_pruned(error))
        }
        Ok(Accepted { answer: Answer::Result(result), .. }) => call.need.null_elsewhere && result == "null",
        Err(error) if call.is_write() => error.never_sent(),
        Err(error) => error.retry() != super::Retry::Never,
    }
}

// === impl Identity ===

impl Identity {
    pub(super) fn new(pool: Arc<Pool>) -> Self {
        Self(pool)
    }

    /// What is known now: who they are, if one of them has said it.
    pub fn state(&self) -> IdentityState {
        let endpoints = self.0.endpoints.load();
        let states: Vec<_> =
            endpoints.iter().filter_map(|endpoint| Some(endpoint.recognition()?.state())).collect();
        let known = states.iter().find(|state| matches!(state, IdentityState::Known(_)));
        let failed = || states.iter().find(|state| matches!(state, IdentityState::Unknown(Some(_))));
        let stranger = || states.iter().find(|state| matches!(state, IdentityState::Stranger(_)));
        known.or_else(stranger).or_else(failed).cloned().unwrap_or(IdentityState::Unknown(None))
    }

    /// Resolves once one of them is known to be who it should be.
    pub async fn known(&self) {
        loop {
            let mut changed = self.0.changed.subscribe();
            let endpoints = self.0.endpoints.load_full();
            let known =
                endpoints.iter().filter_map(|endpoint| endpoint.recognition()).map(Recognition::known);
            let known: Vec<_> = known.map(Box::pin).collect();
            if known.is_empty() {
                return;
            }
            tokio::select! {
                _ = futures_util::future::select_all(known) => return,
                _ = changed.changed() => {}
            }
        }
    }

    /// The chain as last known, though nobody may be in reach now.
    pub fn pinned(&self) -> Option<Arc<WhoIs>> {
        self.0.pin.pinned()
    }

    /// Something speaks against them: whoever answers next must say who it is.
    pub fn doubt(&self) {
        for endpoint in self.0.endpoints.load().iter() {
            endpoint.doubt();
        }
    }

    /// Makes sure that one of them can be asked: at once if one is known, else by the next attempts.
    ///
    /// # Errors
    /// If none can.
    pub async fn confirm(&self) -> Result<Arc<WhoIs>, IdentityError> {
        let endpoints = self.0.endpoints.load_full();
        let recognitions: Vec<_> = endpoints.iter().filter_map(|endpoint| endpoint.recognition()).collect();
        if let (Some(who), true) =
            (self.0.pin.pinned(), recognitions.iter().any(|recognition| recognition.is_sure()))
        {
            return Ok(who);
        }
        if recognitions.is_empty() {
            return Err(IdentityError::Upstream(UpstreamError::Busy));
        }
        let confirming = recognitions.into_iter().map(|recognition| Box::pin(recognition.confirm()));
        select_ok(confirming).await.map(|(who, _)| who)
    }
}
