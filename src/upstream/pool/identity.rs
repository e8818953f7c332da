//! Chain identity of all endpoints together.

use std::sync::Arc;

use futures_util::future::{select_all, select_ok};
use tokio::time::Instant;

use super::{
    super::{
        EndpointId, UpstreamError,
        endpoint::Endpoint,
        identity::{ChainIdentity, IdentityError, IdentityProbe, IdentityState},
    },
    EndpointSet,
};

/// Chain identity of all endpoints, which serve one chain. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Identity(Arc<EndpointSet>);

// === impl Identity ===

impl Identity {
    pub(in crate::upstream) fn new(endpoints: Arc<EndpointSet>) -> Self {
        Self(endpoints)
    }

    /// Returns the combined state: known if the identity of any endpoint is known.
    pub fn state(&self) -> IdentityState {
        let endpoints = self.0.load();
        let states: Vec<_> =
            endpoints.iter().filter_map(|endpoint| Some(endpoint.identity()?.state())).collect();
        let known = states.iter().find(|state| matches!(state, IdentityState::Known(_)));
        let failed = || states.iter().find(|state| matches!(state, IdentityState::Unknown(Some(_))));
        let wrong_chain = || states.iter().find(|state| matches!(state, IdentityState::WrongChain(_)));
        known.or_else(wrong_chain).or_else(failed).cloned().unwrap_or(IdentityState::Unknown(None))
    }

    /// Resolves once any endpoint is known to serve the right chain.
    pub async fn wait_known(&self) {
        loop {
            let mut changed = self.0.subscribe();
            let endpoints = self.0.load_full();
            let known =
                endpoints.iter().filter_map(|endpoint| endpoint.identity()).map(IdentityProbe::wait_known);
            let known: Vec<_> = known.map(Box::pin).collect();
            if known.is_empty() {
                return;
            }
            tokio::select! {
                biased;
                _ = select_all(known) => return,
                _ = changed.changed() => {}
            }
        }
    }

    /// Returns the pinned chain, even if no endpoint is reachable now.
    pub fn pinned(&self) -> Option<Arc<ChainIdentity>> {
        self.0.pinned_chain().pinned()
    }

    /// Requires each endpoint to confirm its identity before its next call.
    pub fn require_recheck(&self) {
        for endpoint in self.0.load().iter() {
            endpoint.require_recheck();
        }
    }

    /// Calls `notify` whenever an endpoint whose answers were accepted turns out to serve another chain, before any
    /// call learns of it. Only the first `notify` is registered.
    pub fn on_wrong_chain(&self, notify: impl Fn() + Send + Sync + 'static) {
        self.0.pinned_chain().on_wrong_chain(notify);
    }

    /// Confirms the identity of this endpoint, regardless of the others.
    ///
    /// # Errors
    /// If the endpoint was removed, serves another chain, or does not report its identity.
    pub async fn confirm_endpoint(&self, id: EndpointId) -> Result<Arc<ChainIdentity>, IdentityError> {
        match self.0.get(id).as_ref().and_then(|endpoint| endpoint.identity()) {
            Some(probe) => probe.confirm().await,
            None => Err(IdentityError::Upstream(UpstreamError::Empty)),
        }
    }

    /// Returns the pinned chain, if the identity of any endpoint is confirmed.
    fn confirmed(&self) -> Option<Arc<ChainIdentity>> {
        let is_confirmed =
            |endpoint: &Arc<Endpoint>| endpoint.identity().is_some_and(IdentityProbe::is_confirmed);
        self.0.load().iter().any(is_confirmed).then(|| self.0.pinned_chain().pinned()).flatten()
    }

    /// Confirms the identity of any endpoint: at once if one is confirmed, otherwise with the next attempts. Once the
    /// chain is pinned, does not wait if each endpoint has an open breaker or serves a wrong chain.
    ///
    /// # Errors
    /// If no endpoint is usable.
    pub async fn confirm(&self) -> Result<Arc<ChainIdentity>, IdentityError> {
        // Usually the identity of an endpoint is confirmed already.
        if let Some(identity) = self.confirmed() {
            return Ok(identity);
        }
        loop {
            let mut changed = self.0.subscribe();
            let endpoints = self.0.load_full();
            let probes: Vec<_> = endpoints.iter().filter_map(|endpoint| endpoint.identity()).collect();
            if let Some(identity) = self.confirmed() {
                return Ok(identity);
            }
            if probes.is_empty() {
                return Err(IdentityError::Upstream(UpstreamError::Busy));
            }
            // If every endpoint is out of service, fails at once, because the caller would otherwise wait for the
            // slowest recovery attempt.
            let now = Instant::now();
            // Before the chain is pinned, Holdfast can serve nothing, so the caller waits in any case.
            let is_pinned = self.0.pinned_chain().pinned().is_some();
            let is_out =
                |endpoint: &Arc<Endpoint>| endpoint.is_breaker_open(now) || endpoint.is_wrong_chain();
            if is_pinned && endpoints.iter().all(is_out) {
                // Starts checks, so that a later caller may find an endpoint that has recovered. An endpoint of a
                // wrong chain does answer, and each answer may be billed, so it is only probed at intervals.
                for probe in probes {
                    if probe.is_wrong_chain() { probe.probe() } else { probe.recheck_now() }
                }
                return Err(match self.0.unavailable_reason() {
                    UpstreamError::WrongChain(wrong_chain) => IdentityError::WrongChain(wrong_chain),
                    error => IdentityError::Upstream(error),
                });
            }
            // Once the chain is pinned, skips endpoints of a wrong chain. If no others are left, because the last one
            // has just turned out to serve a wrong chain, asks all: `select_ok` panics on an empty list.
            let others = probes.iter().filter(|probe| !is_pinned || !probe.is_wrong_chain());
            let others: Vec<_> = others.cloned().collect();
            let asked = if others.is_empty() { probes } else { others };
            let confirming = asked.into_iter().map(|probe| Box::pin(probe.confirm()));
            tokio::select! {
                biased;
                // A reload has replaced the endpoints, so the loop starts over.
                _ = changed.changed() => {}
                confirmed = select_ok(confirming) => return confirmed.map(|(identity, _)| identity),
            }
        }
    }
}
