//! All endpoints of one chain, and the choice among them.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use tokio::{
    sync::watch,
    time::{self, Instant},
};
use tower::retry::budget::{Budget, TpsBudget};
use tracing::debug;

use super::{
    super::{
        Call, Calls, Config, Metrics, UpstreamError,
        endpoint::{Accepted, Attempted, Cost, Eligible, Endpoint, EndpointId, EndpointStatus},
        identity::{IdentityState, Pin, Recognition},
    },
    hedge::{Hedge, Raced},
    p2c::two_choices,
    primary::Followed,
    retry::{Another, another, is_better, is_failure, is_null, is_unproved, was_in_doubt},
};
use crate::{backoff::Backoff, eth::BlockNumber, jsonrpc::Answer};

/// A call is sent to so many endpoints at most, whatever their number.
const MOST_ATTEMPTS: usize = 3;

/// Retries are a tenth of the calls at most, and these many a second in any case: a chain of proxies that all
/// retry would else turn one failure into a flood.
const RETRY_SHARE: f32 = 0.1;
const LEAST_RETRIES: u32 = 10;
const RETRY_MEMORY: Duration = Duration::from_secs(10);

/// Before a second attempt: long enough for a herd to part, too short to be noticed.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(40));

/// How soon one that waits looks again whether another will do by now.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// All endpoints.
#[derive(Debug)]
pub(in crate::upstream) struct Pool {
    pub(in crate::upstream) endpoints: ArcSwap<Vec<Arc<Endpoint>>>,
    pub(in crate::upstream) pin: Arc<Pin>,
    /// The endpoint that the view of the chain follows.
    pub(in crate::upstream) followed: Followed,
    retries: TpsBudget,
    /// How long a call waits for an endpoint that is at its rate.
    pub(in crate::upstream) max_wait: Duration,
    /// When to ask another as well. `None` where that is off.
    hedge: Option<Hedge>,
    metrics: Metrics,
    pub(in crate::upstream) changed: watch::Sender<()>,
}

/// For what an endpoint is picked.
#[derive(Clone, Copy, Debug)]
pub(in crate::upstream) struct Wanted<'a> {
    /// So many calls.
    pub(in crate::upstream) calls: u32,
    /// What they need together.
    pub(in crate::upstream) need: Need,
    /// Not one of these.
    pub(in crate::upstream) tried: &'a [EndpointId],
}

/// Who can be asked.
pub(in crate::upstream) struct Candidates {
    /// Now.
    pub(in crate::upstream) eligible: Vec<(Cost, Arc<Endpoint>)>,
    /// How long until another can, if that is known.
    pub(in crate::upstream) wait: Option<Duration>,
}

/// What a call needs of the endpoint that answers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// It should have this block: not be behind it, not have forgotten it.
    pub block: Option<BlockNumber>,
    /// It should not be behind this head: what it says is of the newest block that it has.
    pub head: Option<BlockNumber>,
    /// It must be the one that the view of the chain follows, or whoever takes its place.
    pub followed: bool,
    /// A forwarded call: the primary answers it, or another endpoint if the primary fails. It leaves the last call of the
    /// primary's rate to the view, and its failure alone does not make another endpoint the primary.
    pub forwarded: bool,
    /// A filter call: only the primary answers it, since each node has filter ids of its own.
    pub filter: bool,
    /// A call of the canonical view itself, for which all clients wait: it takes no slot of `max_in_flight`.
    pub for_view: bool,
    /// The answer is a head: what it shows is all that the endpoint has.
    pub is_head: bool,
    /// A `null` may only mean that this endpoint has not got it yet: one other is asked, once.
    pub null_elsewhere: bool,
}

// === impl Wanted ===

impl<'a> Wanted<'a> {
    /// One call that needs nothing but another endpoint than these.
    pub(in crate::upstream) fn another_than(tried: &'a [EndpointId]) -> Self {
        Self { calls: 1, need: Need::default(), tried }
    }
}

// === impl Pool ===

impl Pool {
    pub(in crate::upstream) fn new(
        endpoints: Vec<Arc<Endpoint>>,
        pin: Arc<Pin>,
        config: &Config,
        metrics: Metrics,
    ) -> Self {
        Self {
            endpoints: ArcSwap::from_pointee(endpoints),
            pin,
            followed: Followed::default(),
            retries: TpsBudget::new(RETRY_MEMORY, LEAST_RETRIES, RETRY_SHARE),
            max_wait: config.max_wait,
            hedge: config.hedge.map(Hedge::new),
            metrics,
            changed: watch::Sender::new(()),
        }
    }

    /// Sends calls to an endpoint, and those that fail to others, as far as that is safe and may help.
    pub(in crate::upstream) async fn send(&self, calls: &Calls) -> Attempted {
        self.retries.deposit();
        let mut done: Vec<Option<Result<Accepted, UpstreamError>>> = vec![None; calls.len()];
        let mut left: Vec<usize> = (0..calls.len()).collect();
        let mut tried = Vec::new();
        let (mut patience, mut backoff) = (self.max_wait, BACKOFF);
        for _ in 0..MOST_ATTEMPTS {
            left.retain(|at| {
                let is_awaited = calls[*at].is_awaited();
                if !is_awaited {
                    done[*at].get_or_insert(Err(UpstreamError::Cancelled));
                }
                is_awaited
            });
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
            let need = together(sending);
            let wanted = Wanted { calls: sending.len() as u32, need, tried: &tried };
            let endpoint = match self.choose(wanted, patience).await {
                Ok(endpoint) => endpoint,
                Err(error) => {
                    for at in left {
                        done[at].get_or_insert(Err(error.clone()));
                    }
                    break;
                }
            };
            let attempted = self.attempt(&endpoint, sending, need, &mut tried).await;
            let failed = |(call, outcome)| is_failure(call, outcome);
            if need.followed && sending.iter().zip(&attempted).any(failed) {
                self.leave(endpoint.id());
            }
            let mut once_more = Vec::new();
            // For a `null` one other is asked, and nobody paid: it is no failure that could become a flood.
            let mut is_retry = false;
            for ((at, call), outcome) in left.iter().zip(sending).zip(attempted) {
                let was_null = done[*at].as_ref().is_some_and(is_null);
                // Of an error, too, one other is asked for its opinion.
                let doubted = done[*at].as_ref().is_some_and(|before| was_in_doubt(call, before));
                // A head that cannot be proved is as good as another's, and another's may be older.
                let is_settled = was_null || doubted || (call.need.is_head && is_unproved(&outcome));
                let why = another(call, &outcome);
                if let Some(why) = why.filter(|_| !is_settled) {
                    is_retry |= why == Another::Retry;
                    once_more.push(*at);
                }
                // A later failure, or a later `null`, does not make an earlier answer worse; nor does an opinion that is
                // none, nor is a later answer better for being later.
                let keeps = doubted && why.is_some();
                if !keeps && done[*at].as_ref().is_none_or(|before| is_better(&outcome, before)) {
                    done[*at] = Some(outcome);
                }
            }
            left = once_more;
            // With an answer in hand, though it is `null`, only those are asked that can be now.
            patience = if is_retry { self.max_wait } else { Duration::ZERO };
            let others = self.endpoints.load().iter().any(|endpoint| !tried.contains(&endpoint.id()));
            if left.is_empty() || !others || tried.len() >= MOST_ATTEMPTS {
                break;
            }
            if is_retry && !self.retries.withdraw() {
                break;
            }
            time::sleep(backoff.next_pause().mul_f64(fastrand::f64())).await;
        }
        done.into_iter().map(|outcome| outcome.unwrap_or(Err(UpstreamError::Empty))).collect()
    }

    /// Sends one call to this endpoint, once, and to no other. `None` if it is not there, or cannot be asked.
    pub(in crate::upstream) async fn send_to(
        &self,
        id: EndpointId,
        call: Call,
    ) -> Option<Result<Accepted, UpstreamError>> {
        let pick = |now, _| {
            let endpoint = self.get(id).ok_or(None)?;
            match endpoint.eligible(1, Need::default(), now) {
                Eligible::Yes(_) => Ok(endpoint),
                Eligible::After(wait) => Err(Some(wait)),
                Eligible::No => Err(None),
            }
        };
        match self.wait_for(self.max_wait, pick).await {
            Ok(endpoint) => {
                let mut attempted = endpoint.attempt(&vec![call]).await;
                Some(attempted.pop().unwrap_or(Err(UpstreamError::Empty)))
            }
            Err(Some(wait)) => Some(Err(UpstreamError::RateLimited { retry_after: Some(wait) })),
            Err(None) => None,
        }
    }

    /// Is there one endpoint only?
    pub(in crate::upstream) fn is_single(&self) -> bool {
        self.endpoints.load().len() == 1
    }

    pub(in crate::upstream) fn get(&self, id: EndpointId) -> Option<Arc<Endpoint>> {
        self.endpoints.load().iter().find(|endpoint| endpoint.id() == id).cloned()
    }

    /// Sends calls to this endpoint and, if it takes long and they may be sent twice, to another one too.
    async fn attempt(
        &self,
        endpoint: &Endpoint,
        calls: &Calls,
        need: Need,
        tried: &mut Vec<EndpointId>,
    ) -> Attempted {
        tried.push(endpoint.id());
        match &self.hedge {
            None => endpoint.attempt(calls).await,
            Some(hedge) => self.hedged(hedge, endpoint, calls, need, tried).await,
        }
    }

    async fn hedged(
        &self,
        hedge: &Hedge,
        endpoint: &Endpoint,
        calls: &Calls,
        need: Need,
        tried: &mut Vec<EndpointId>,
    ) -> Attempted {
        // Boxed: two attempts need room for two futures, and hedging is off by default.
        let first = Box::pin(endpoint.attempt(calls));
        // The one that is followed has no equal: another's answer may be of another branch.
        let may_hedge = calls.iter().all(Call::is_repeatable) && !need.followed;
        let second = may_hedge.then_some(|after: Duration| {
            if !calls.iter().any(Call::is_awaited) {
                return None;
            }
            let other = self.second(Wanted { calls: calls.len() as u32, need, tried })?;
            tried.push(other.id());
            self.metrics.hedged();
            debug!(slow = %endpoint.name(), upstream = %other.name(), ?after, "asking another as well");
            Some(Box::pin(async move { other.attempt(calls).await }))
        });
        let Raced { attempted, second_won } = hedge.attempt(calls, first, second).await;
        if second_won {
            self.metrics.hedge_won();
        }
        attempted
    }

    /// Another endpoint that can be asked at once and has what is needed, if it may be.
    fn second(&self, wanted: Wanted<'_>) -> Option<Arc<Endpoint>> {
        if wanted.tried.len() >= MOST_ATTEMPTS {
            return None;
        }
        let mut eligible = self.eligible(wanted, Instant::now()).eligible;
        eligible.retain(|(cost, _)| cost.is_fit());
        let other = two_choices(&eligible)?;
        self.retries.withdraw().then(|| other.clone())
    }

    /// An endpoint for these calls that is not among those tried; waits for one that is at its rate.
    async fn choose(&self, wanted: Wanted<'_>, patience: Duration) -> Result<Arc<Endpoint>, UpstreamError> {
        match self.wait_for(patience, |now, left| self.pick(wanted, now, left)).await {
            Ok(endpoint) => Ok(endpoint),
            Err(Some(wait)) => Err(UpstreamError::RateLimited { retry_after: Some(wait) }),
            Err(None) => Err(self.why_none()),
        }
    }

    /// Picks until there is one, for as long as a call waits; else how long it would have to, if that is known. The
    /// one who picks is told how long it is now and how much longer the call waits.
    async fn wait_for(
        &self,
        patience: Duration,
        pick: impl Fn(Instant, Duration) -> Result<Arc<Endpoint>, Option<Duration>>,
    ) -> Result<Arc<Endpoint>, Option<Duration>> {
        let mut now = Instant::now();
        let until = now + patience;
        loop {
            match pick(now, until.saturating_duration_since(now)) {
                Err(Some(wait)) if now + wait <= until => time::sleep(wait.min(LOOK_AGAIN)).await,
                picked => return picked,
            }
            now = Instant::now();
        }
    }

    /// The best endpoint now; else how long until there is one, if that is known.
    fn pick(
        &self,
        wanted: Wanted<'_>,
        now: Instant,
        left: Duration,
    ) -> Result<Arc<Endpoint>, Option<Duration>> {
        let Candidates { eligible, wait } = self.eligible(wanted, now);
        let Wanted { need, .. } = wanted;
        let endpoint = if need.followed || need.forwarded {
            self.pick_followed(&eligible, wanted, now, left).map_err(|own| own.or(wait))?
        } else {
            two_choices(&eligible).cloned().ok_or(wait)?
        };
        if !need.followed {
            let unsure = eligible.iter().filter(|(cost, _)| cost.is_unsure()).map(|(_, other)| other);
            unsure.filter(|other| other.priority() <= endpoint.priority()).for_each(|other| other.hurry());
        }
        Ok(endpoint)
    }

    /// Those that can be asked now, and those that can be later.
    pub(in crate::upstream) fn eligible(
        &self,
        Wanted { calls, need, tried }: Wanted<'_>,
        now: Instant,
    ) -> Candidates {
        let endpoints = self.endpoints.load();
        let mut wait = None;
        let mut eligible = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints.iter().filter(|endpoint| !tried.contains(&endpoint.id())) {
            match endpoint.eligible(calls, need, now) {
                Eligible::Yes(cost) => eligible.push((cost, endpoint.clone())),
                Eligible::After(after) => wait = Some(wait.map_or(after, |wait: Duration| wait.min(after))),
                Eligible::No => {}
            }
        }
        Candidates { eligible, wait }
    }

    /// Has this endpoint shown a block as high as this?
    pub(in crate::upstream) fn has_reached(&self, id: EndpointId, block: BlockNumber) -> bool {
        self.get(id).is_some_and(|endpoint| endpoint.head() >= Some(block))
    }

    /// Nobody can be asked: the reason that tells most.
    pub(in crate::upstream) fn why_none(&self) -> UpstreamError {
        let endpoints = self.endpoints.load();
        let stranger = |endpoint: &Arc<Endpoint>| match endpoint.recognition()?.state() {
            IdentityState::Stranger(stranger) => Some(UpstreamError::Stranger(stranger)),
            IdentityState::Unknown(_) | IdentityState::Known(_) => None,
        };
        let failed = endpoints.iter().find_map(|endpoint| endpoint.last_error());
        let error = failed.or_else(|| endpoints.iter().find_map(stranger));
        match error.map_or(UpstreamError::Busy, UpstreamError::in_general) {
            // That was another call's time, and this one has not waited for anything.
            UpstreamError::TimedOut { after } => UpstreamError::Hangs { after },
            error => error,
        }
    }

    /// Asks every endpoint who it is, for as long as this runs, also those that come later.
    pub(in crate::upstream) async fn watch(&self) {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let endpoints = self.endpoints.load_full();
            let watching = join_all(endpoints.iter().zip(0..).filter_map(|(endpoint, at)| {
                let recognition = endpoint.recognition()?;
                Some(recognition.watch(before(&endpoints, at), |call| ask_one(endpoint, call)))
            }));
            tokio::select! {
                _ = watching => std::future::pending().await,
                _ = changed.changed() => {}
            }
        }
    }

    /// Have all of them failed, and has none answered since?
    pub(in crate::upstream) fn is_lost(&self) -> bool {
        let failed = |endpoint: &Arc<Endpoint>| endpoint.is_stranger() || endpoint.last_error().is_some();
        self.endpoints.load().iter().all(failed)
    }

    /// Why nobody answers, if nobody does; and whoever failed is asked whether it is back.
    pub(in crate::upstream) fn lost(&self) -> Option<UpstreamError> {
        if !self.is_lost() {
            return None;
        }
        let endpoints = self.endpoints.load();
        endpoints.iter().for_each(|endpoint| endpoint.probe());
        endpoints.iter().find_map(|endpoint| endpoint.last_error())
    }

    /// How all of them do.
    pub(in crate::upstream) fn status(&self) -> Vec<EndpointStatus> {
        self.endpoints.load().iter().map(|endpoint| endpoint.status()).collect()
    }

    pub(in crate::upstream) fn followed(&self) -> Option<EndpointId> {
        self.followed.state.lock().endpoint()
    }

    pub(in crate::upstream) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// From here on these are the endpoints. Those that were there before go on as they are.
    pub(in crate::upstream) fn replace(&self, endpoints: Vec<Arc<Endpoint>>) {
        let endpoints = Arc::new(endpoints);
        let before = self.endpoints.swap(endpoints.clone());
        let ids = |of: &[Arc<Endpoint>]| of.iter().map(|endpoint| endpoint.id()).collect::<Vec<_>>();
        if ids(&before) == ids(&endpoints) {
            // Whoever is being asked who it is need not be asked anew.
            return;
        }
        let is_there = |id| endpoints.iter().any(|endpoint| endpoint.id() == id);
        let known = |endpoint: &&Arc<Endpoint>| {
            endpoint
                .recognition()
                .is_some_and(|recognition| matches!(recognition.state(), IdentityState::Known(_)))
        };
        self.pin.retain(is_there, || endpoints.iter().find(known).map(|endpoint| endpoint.id()));
        self.changed.send_replace(());
        for gone in before.iter().filter(|endpoint| !is_there(endpoint.id())) {
            if let Some(recognition) = gone.recognition() {
                recognition.retire();
            }
        }
    }
}

async fn ask_one(endpoint: &Endpoint, call: Call) -> Result<Answer, UpstreamError> {
    let mut attempted = endpoint.ask_who(&vec![call]).await;
    let outcome = attempted.pop().unwrap_or(Err(UpstreamError::Empty));
    outcome.map(|accepted| accepted.answer)
}

/// Those that come before this one in order, and by place where they are equal.
fn before(endpoints: &[Arc<Endpoint>], at: usize) -> Vec<&Recognition> {
    let place = |at: usize| (endpoints[at].priority(), at);
    let before = (0..endpoints.len()).filter(|other| place(*other) < place(at));
    before.filter_map(|other| endpoints[other].recognition()).collect()
}

/// What calls that travel together need.
fn together(calls: &Calls) -> Need {
    Need {
        block: calls.iter().filter_map(|call| call.need.block).max(),
        head: calls.iter().filter_map(|call| call.need.head).max(),
        followed: calls.iter().any(|call| call.need.followed),
        forwarded: calls.iter().any(|call| call.need.forwarded),
        filter: calls.iter().any(Call::is_filter),
        ..Need::default()
    }
}
