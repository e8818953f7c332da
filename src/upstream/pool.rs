//! All endpoints of one chain, and the choice among them.

use std::{
    pin::pin,
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
    Call, Calls, Config, Metrics, UpstreamError,
    choice::two_choices,
    endpoint::{Accepted, Attempted, Cost, Eligible, Endpoint, EndpointStatus},
    hedge::{Hedge, Raced, race, worth},
    identity::{IdentityError, IdentityState, Pin, Recognition, WhoIs},
    limited,
};
use crate::{
    eth::BlockNumber,
    jsonrpc::Answer,
    verify::{Failure, Verdict},
};

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
    /// When to ask another as well. `None` where that is off.
    hedge: Option<Hedge>,
    metrics: Metrics,
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
    pub(super) fn new(endpoints: Vec<Endpoint>, pin: Arc<Pin>, config: &Config, metrics: Metrics) -> Self {
        Self {
            endpoints: ArcSwap::from_pointee(endpoints.into_iter().map(Arc::new).collect()),
            pin,
            followed: Mutex::default(),
            retries: TpsBudget::new(RETRY_MEMORY, LEAST_RETRIES, RETRY_SHARE),
            max_wait: config.max_wait,
            hedge: config.hedge.map(Hedge::new),
            metrics,
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
            let attempted = self.attempt(&endpoint, &sending, need, &mut tried).await;
            let mut again = Vec::new();
            for ((at, call), outcome) in left.iter().zip(&sending).zip(attempted) {
                if is_worth_another(call, &outcome) {
                    again.push(*at);
                }
                // A later failure, or a later `null`, does not make an earlier answer worse.
                if done[*at].as_ref().is_none_or(|before| worth(&outcome) >= worth(before)) {
                    done[*at] = Some(outcome);
                }
            }
            left = again;
            let others = self.endpoints.load().iter().any(|endpoint| !tried.contains(endpoint.name()));
            if left.is_empty() || !others || tried.len() >= MOST_ATTEMPTS || !self.retries.withdraw() {
                break;
            }
            time::sleep(BACKOFF.mul_f64(fastrand::f64() * f64::from(1u32 << attempt))).await;
        }
        done.into_iter().map(|outcome| outcome.unwrap_or(Err(UpstreamError::Empty))).collect()
    }

    /// Sends one call.
    pub(super) async fn send_one(&self, call: Call) -> Result<Accepted, UpstreamError> {
        self.send(vec![call]).await.pop().unwrap_or(Err(UpstreamError::Empty))
    }

    /// Sends one call to this endpoint, once, and to no other. `None` if it is not there, or cannot be asked.
    pub(super) async fn send_to(&self, name: &str, call: Call) -> Option<Result<Accepted, UpstreamError>> {
        let named = || self.endpoints.load().iter().find(|endpoint| &**endpoint.name() == name).cloned();
        let pick = |now| {
            let endpoint = named().ok_or(None)?;
            match endpoint.eligible(1, None, now) {
                Eligible::Yes(_) => Ok(endpoint),
                Eligible::After(wait) => Err(Some(wait)),
                Eligible::No => Err(None),
            }
        };
        match self.wait_for(pick).await {
            Ok(endpoint) => {
                let mut attempted = endpoint.attempt(&vec![call]).await;
                Some(attempted.pop().unwrap_or(Err(UpstreamError::Empty)))
            }
            Err(Some(wait)) => Some(Err(UpstreamError::RateLimited { retry_after: Some(wait) })),
            Err(None) => None,
        }
    }

    /// Is there one endpoint only?
    pub(super) fn is_single(&self) -> bool {
        self.endpoints.load().len() == 1
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.endpoints.load().iter().any(|endpoint| &**endpoint.name() == name)
    }

    /// Sends calls to this endpoint and, if it takes long and they may be sent twice, to another one too.
    async fn attempt(
        &self,
        endpoint: &Endpoint,
        calls: &Calls,
        need: Need,
        tried: &mut Vec<Arc<str>>,
    ) -> Attempted {
        tried.push(endpoint.name().clone());
        let Some(hedge) = &self.hedge else { return endpoint.attempt(calls).await };
        let begun = Instant::now();
        let mut first = pin!(hedge.timed(endpoint.attempt(calls)));
        // The one that is followed has no equal: another's answer may be of another branch.
        let after =
            if calls.iter().all(Call::is_repeatable) && !need.followed { hedge.after() } else { None };
        let Some(after) = after else { return first.await };
        if let Ok(attempted) = time::timeout(after, &mut first).await {
            return attempted;
        }
        let Some(other) = self.second(calls.len() as u32, need, tried) else { return first.await };
        tried.push(other.name().clone());
        self.metrics.hedged();
        debug!(slow = %endpoint.name(), upstream = %other.name(), ?after, "asking another as well");
        let second = pin!(hedge.timed(other.attempt(calls)));
        let Raced { attempted, second_won } = race(calls, first, second).await;
        if second_won {
            self.metrics.hedge_won();
            // What is given up for being slow would else not be among what is slow.
            hedge.note(begun.elapsed());
        }
        attempted
    }

    /// Another endpoint that can be asked at once and has what is needed, if it may be.
    fn second(&self, calls: u32, need: Need, tried: &[Arc<str>]) -> Option<Arc<Endpoint>> {
        if tried.len() >= MOST_ATTEMPTS {
            return None;
        }
        let (mut eligible, _) = self.eligible(calls, need, tried, Instant::now());
        eligible.retain(|(cost, _)| cost.is_fit());
        let other = two_choices(&eligible)?;
        self.retries.withdraw().then(|| other.clone())
    }

    /// An endpoint for these calls that is not among those tried; waits for one that is at its rate.
    async fn choose(
        &self,
        calls: u32,
        need: Need,
        tried: &[Arc<str>],
    ) -> Result<Arc<Endpoint>, UpstreamError> {
        match self.wait_for(|now| self.pick(calls, need, tried, now)).await {
            Ok(endpoint) => Ok(endpoint),
            Err(Some(wait)) => Err(UpstreamError::RateLimited { retry_after: Some(wait) }),
            Err(None) => Err(self.why_none()),
        }
    }

    /// Picks until there is one, for as long as a call waits; else how long it would have to, if that is known.
    async fn wait_for(
        &self,
        pick: impl Fn(Instant) -> Result<Arc<Endpoint>, Option<Duration>>,
    ) -> Result<Arc<Endpoint>, Option<Duration>> {
        let patience = Instant::now() + self.max_wait;
        loop {
            let now = Instant::now();
            match pick(now) {
                Err(Some(wait)) if now + wait <= patience => time::sleep(wait).await,
                picked => return picked,
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
        let (eligible, wait) = self.eligible(calls, need, tried, now);
        if need.followed {
            return self.pick_followed(&eligible).ok_or(wait);
        }
        two_choices(&eligible).cloned().ok_or(wait)
    }

    /// Those that can be asked now, and how long until the next can, if that is known.
    fn eligible(
        &self,
        calls: u32,
        need: Need,
        tried: &[Arc<str>],
        now: Instant,
    ) -> (Vec<(Cost, Arc<Endpoint>)>, Option<Duration>) {
        let endpoints = self.endpoints.load();
        let mut wait = None::<Duration>;
        let mut eligible = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints.iter().filter(|endpoint| !tried.contains(endpoint.name())) {
            match endpoint.eligible(calls, need.block, now) {
                Eligible::Yes(cost) => eligible.push((cost, endpoint.clone())),
                Eligible::After(after) => wait = Some(wait.map_or(after, |wait| wait.min(after))),
                Eligible::No => {}
            }
        }
        (eligible, wait)
    }

    /// The one that is followed, as long as it can be asked; then another is. For what that one is known to
    /// lack, one that may have it is asked, and none is followed for that.
    fn pick_followed(&self, eligible: &[(Cost, Arc<Endpoint>)]) -> Option<Arc<Endpoint>> {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_followed =
            |(_, endpoint): &&(Cost, Arc<Endpoint>)| followed.as_deref() == Some(&**endpoint.name());
        if let Some((cost, endpoint)) = eligible.iter().find(is_followed) {
            let has_it = || eligible.iter().filter(|(cost, _)| !cost.lacks()).cloned().collect::<Vec<_>>();
            let elsewhere = if cost.lacks() { two_choices(&has_it()).cloned() } else { None };
            return Some(elsewhere.unwrap_or_else(|| endpoint.clone()));
        }
        let endpoint = two_choices(eligible)?;
        if let Some(before) = followed.replace(endpoint.name().clone()) {
            info!(upstream = %endpoint.name(), %before, "the chain is followed elsewhere from now on");
        }
        Some(endpoint.clone())
    }

    /// The endpoint that is followed lags: another is followed that may be further, if there is one.
    pub(super) fn unfollow(&self) {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let (eligible, _) = self.eligible(1, Need::default(), followed.as_slice(), Instant::now());
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

    /// Why nobody answers, if nobody does; and whoever failed is asked whether it is back.
    pub(super) fn lost(&self) -> Option<UpstreamError> {
        let endpoints = self.endpoints.load();
        let is_out = |endpoint: &Arc<Endpoint>| {
            let stranger = endpoint
                .recognition()
                .is_some_and(|recognition| matches!(recognition.state(), IdentityState::Stranger(_)));
            stranger || endpoint.last_error().is_some()
        };
        if !endpoints.iter().all(is_out) {
            return None;
        }
        endpoints.iter().for_each(|endpoint| endpoint.probe());
        endpoints.iter().find_map(|endpoint| endpoint.last_error())
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
        let before = self.endpoints.swap(Arc::new(endpoints.into_iter().map(Arc::new).collect()));
        self.changed.send_replace(());
        for recognition in before.iter().filter_map(|endpoint| endpoint.recognition()) {
            recognition.retire();
        }
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

/// Might another endpoint do better, and is it safe to ask one?
pub(super) fn is_worth_another(call: &Call, outcome: &Result<Accepted, UpstreamError>) -> bool {
    match outcome {
        Ok(Accepted { answer: Answer::Error(error), .. }) => {
            call.is_repeatable() && (limited::is_rate_limit(error) || limited::is_pruned(error))
        }
        // It may be right, and another may say it so that it can be seen.
        Ok(Accepted { verdict: Some(Verdict::Unproved(Failure::Unprovable { .. }, _)), .. }) => {
            call.is_repeatable()
        }
        Ok(Accepted { answer: Answer::Result(result), .. }) => call.need.null_elsewhere && result == "null",
        Err(error) if !call.is_repeatable() => error.never_sent(),
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
        loop {
            let mut changed = self.0.changed.subscribe();
            let endpoints = self.0.endpoints.load_full();
            let recognitions: Vec<_> =
                endpoints.iter().filter_map(|endpoint| endpoint.recognition()).collect();
            if let (Some(who), true) =
                (self.0.pin.pinned(), recognitions.iter().any(|recognition| recognition.is_sure()))
            {
                return Ok(who);
            }
            if recognitions.is_empty() {
                return Err(IdentityError::Upstream(UpstreamError::Busy));
            }
            let confirming = recognitions.into_iter().map(|recognition| Box::pin(recognition.confirm()));
            tokio::select! {
                biased;
                // Others are asked from now on.
                _ = changed.changed() => {}
                confirmed = select_ok(confirming) => return confirmed.map(|(who, _)| who),
            }
        }
    }
}
