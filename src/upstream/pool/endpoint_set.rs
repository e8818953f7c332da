//! The endpoints of one chain, which a reload may replace.

use std::{sync::Arc, time::Duration};

use arc_swap::{ArcSwap, Guard};
use futures_util::future::join_all;
use tokio::{sync::watch, time::Instant};

use super::super::{
    Call, EndpointId, EndpointStatus, Requirements, UpstreamError,
    endpoint::{Availability, Endpoint, Score, ask_identity},
    identity::{IdentityProbe, IdentityState, PinnedChain},
};
use crate::{eth::BlockNumber, jsonrpc::Answer};

/// All endpoints, and the chain that they must serve.
#[derive(Debug)]
pub(in crate::upstream) struct EndpointSet {
    list: ArcSwap<Vec<Arc<Endpoint>>>,
    pinned_chain: Arc<PinnedChain>,
    changed: watch::Sender<()>,
}

/// The calls that need an endpoint.
#[derive(Clone, Copy, Debug)]
pub(in crate::upstream) struct Selection<'a> {
    /// Number of calls.
    pub(in crate::upstream) calls: u32,
    /// Their combined requirements.
    pub(in crate::upstream) requirements: Requirements,
    /// Endpoints to exclude.
    pub(in crate::upstream) tried: &'a [EndpointId],
}

/// The endpoints that may take a call.
pub(in crate::upstream) struct Candidates {
    /// The endpoints that are available now.
    pub(in crate::upstream) available: Vec<(Score, Arc<Endpoint>)>,
    /// The wait until another endpoint is available, if known.
    pub(in crate::upstream) wait: Option<Duration>,
}

// === impl Selection ===

impl<'a> Selection<'a> {
    /// Returns the selection for one call without requirements, excluding `tried`.
    pub(in crate::upstream) fn excluding(tried: &'a [EndpointId]) -> Self {
        Self { calls: 1, requirements: Requirements::default(), tried }
    }
}

// === impl EndpointSet ===

impl EndpointSet {
    pub(super) fn new(endpoints: Vec<Arc<Endpoint>>, pinned_chain: Arc<PinnedChain>) -> Self {
        Self { list: ArcSwap::from_pointee(endpoints), pinned_chain, changed: watch::Sender::new(()) }
    }

    /// Returns the current endpoints.
    pub(in crate::upstream) fn load(&self) -> Guard<Arc<Vec<Arc<Endpoint>>>> {
        self.list.load()
    }

    /// Returns the current endpoints, for use across an `await`.
    pub(super) fn load_full(&self) -> Arc<Vec<Arc<Endpoint>>> {
        self.list.load_full()
    }

    /// Returns the chain that all endpoints must serve.
    pub(in crate::upstream) fn pinned_chain(&self) -> &Arc<PinnedChain> {
        &self.pinned_chain
    }

    /// Returns a receiver that is notified when a reload replaces the endpoints.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Returns whether there is only one endpoint.
    pub(in crate::upstream) fn is_single(&self) -> bool {
        self.list.load().len() == 1
    }

    pub(in crate::upstream) fn get(&self, id: EndpointId) -> Option<Arc<Endpoint>> {
        self.list.load().iter().find(|endpoint| endpoint.id() == id).cloned()
    }

    /// Returns the endpoints that are available now, and the wait until another one is.
    pub(in crate::upstream) fn candidates(
        &self,
        Selection { calls, requirements, tried }: Selection<'_>,
        now: Instant,
    ) -> Candidates {
        let endpoints = self.list.load();
        let mut wait = None;
        let mut available = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints.iter().filter(|endpoint| !tried.contains(&endpoint.id())) {
            match endpoint.availability(calls, requirements, now) {
                Availability::Now(score) => available.push((score, endpoint.clone())),
                Availability::After(after) => {
                    wait = Some(wait.map_or(after, |wait: Duration| wait.min(after)));
                }
                Availability::Never => {}
            }
        }
        Candidates { available, wait }
    }

    /// Returns whether the endpoint has shown a block at this height or above.
    pub(in crate::upstream) fn has_reached(&self, id: EndpointId, block: BlockNumber) -> bool {
        self.get(id).is_some_and(|endpoint| endpoint.head() >= Some(block))
    }

    /// Returns the error of calls that cannot wait this long for an endpoint.
    pub(in crate::upstream) fn wait_error(
        &self,
        Selection { calls, requirements, tried }: Selection<'_>,
        wait: Duration,
    ) -> UpstreamError {
        let limit = UpstreamError::RateLimited { retry_after: Some(wait), words: None };
        if !tried.is_empty() {
            // These calls have an answer or an error from another endpoint.
            return limit;
        }
        let endpoints = self.list.load();
        let errors = endpoints.iter().map(|endpoint| endpoint.wait_error(calls, requirements, wait));
        errors.fold(
            limit,
            |one, other| {
                if matches!(other, UpstreamError::RateUsedUp { .. }) { other } else { one }
            },
        )
    }

    /// Returns the most informative reason why no endpoint is available.
    pub(in crate::upstream) fn unavailable_reason(&self) -> UpstreamError {
        let endpoints = self.list.load();
        let wrong_chain = |endpoint: &Arc<Endpoint>| match endpoint.identity()?.state() {
            IdentityState::WrongChain(wrong_chain) => Some(UpstreamError::WrongChain(wrong_chain)),
            IdentityState::Unknown(_) | IdentityState::Known(_) => None,
        };
        // A rate limit is newer than the failures before it, which may have opened the circuit breaker.
        let limited = endpoints.iter().find_map(|endpoint| endpoint.rate_limit());
        let failed = || endpoints.iter().find_map(|endpoint| endpoint.last_error());
        let error = limited.or_else(failed).or_else(|| endpoints.iter().find_map(wrong_chain));
        match error.map_or(UpstreamError::Busy, UpstreamError::without_call_details) {
            // An earlier call timed out; this call has not been sent.
            UpstreamError::TimedOut { after } => UpstreamError::Unresponsive { after },
            error => error,
        }
    }

    /// Watches the identity of every endpoint, including those that a reload adds, for as long as the future runs.
    pub(in crate::upstream) async fn watch(&self) {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let endpoints = self.list.load_full();
            let watching = join_all(endpoints.iter().zip(0..).filter_map(|(endpoint, at)| {
                let identity = endpoint.identity()?;
                let is_alone = endpoints.len() == 1;
                Some(identity.watch(before(&endpoints, at), is_alone, |call| ask_one(endpoint, call)))
            }));
            tokio::select! {
                biased;
                _ = changed.changed() => {}
                _ = watching => std::future::pending().await,
            }
        }
    }

    /// Returns whether all endpoints have failed and none has answered since.
    pub(in crate::upstream) fn is_down(&self) -> bool {
        let failed = |endpoint: &Arc<Endpoint>| endpoint.is_wrong_chain() || endpoint.last_error().is_some();
        self.list.load().iter().all(failed)
    }

    /// Returns the reason of an outage, if all endpoints have failed, and probes them for recovery.
    pub(in crate::upstream) fn outage(&self) -> Option<UpstreamError> {
        if !self.is_down() {
            return None;
        }
        let endpoints = self.list.load();
        endpoints.iter().for_each(|endpoint| endpoint.probe());
        endpoints.iter().find_map(|endpoint| endpoint.last_error())
    }

    /// Sends an identity check to each endpoint that has failed or refuses calls.
    pub(in crate::upstream) fn probe(&self) {
        self.list.load().iter().for_each(|endpoint| endpoint.probe());
    }

    /// Returns the reason of a refusal, if every endpoint of the right chain refuses calls.
    pub(in crate::upstream) fn refusal(&self) -> Option<UpstreamError> {
        let endpoints = self.list.load();
        let mut refusals =
            endpoints.iter().filter(|endpoint| !endpoint.is_wrong_chain()).map(|it| it.refusal());
        let first = refusals.next()??;
        refusals.all(|refusal| refusal.is_some()).then_some(first)
    }

    /// Returns the status of all endpoints.
    pub(in crate::upstream) fn status(&self) -> Vec<EndpointStatus> {
        self.list.load().iter().map(|endpoint| endpoint.status()).collect()
    }

    /// Replaces the endpoints. Endpoints that are in both lists keep their state.
    pub(in crate::upstream) fn replace(&self, endpoints: Vec<Arc<Endpoint>>) {
        let endpoints = Arc::new(endpoints);
        let before = self.list.swap(endpoints.clone());
        let ids = |of: &[Arc<Endpoint>]| of.iter().map(|endpoint| endpoint.id()).collect::<Vec<_>>();
        if ids(&before) == ids(&endpoints) {
            // The endpoints are the same, so identity checks in progress continue.
            return;
        }
        let is_there = |id| endpoints.iter().any(|endpoint| endpoint.id() == id);
        let known = |endpoint: &&Arc<Endpoint>| {
            endpoint.identity().is_some_and(|identity| matches!(identity.state(), IdentityState::Known(_)))
        };
        self.pinned_chain.retain(is_there, || endpoints.iter().find(known).map(|endpoint| endpoint.id()));
        self.changed.send_replace(());
        for gone in before.iter().filter(|endpoint| !is_there(endpoint.id())) {
            if let Some(identity) = gone.identity() {
                identity.retire();
            }
        }
    }
}

async fn ask_one(endpoint: &Endpoint, call: Call) -> Result<Answer, UpstreamError> {
    let mut attempted = ask_identity(endpoint, &vec![call]).await;
    let outcome = attempted.pop().unwrap_or(Err(UpstreamError::Empty));
    outcome.map(|accepted| accepted.answer)
}

/// Returns the identities of the endpoints that come before this one by priority, or by position if priorities are
/// equal.
fn before(endpoints: &[Arc<Endpoint>], at: usize) -> Vec<&IdentityProbe> {
    let place = |at: usize| (endpoints[at].priority(), at);
    let before = (0..endpoints.len()).filter(|other| place(*other) < place(at));
    before.filter_map(|other| endpoints[other].identity()).collect()
}
