//! Who all endpoints are together.

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

/// Who all endpoints are together: one chain. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Identity(Arc<EndpointSet>);

// === impl Identity ===

impl Identity {
    pub(in crate::upstream) fn new(endpoints: Arc<EndpointSet>) -> Self {
        Self(endpoints)
    }

    /// What is known now: who they are, if one of them has said it.
    pub fn state(&self) -> IdentityState {
        let endpoints = self.0.load();
        let states: Vec<_> =
            endpoints.iter().filter_map(|endpoint| Some(endpoint.identity()?.state())).collect();
        let known = states.iter().find(|state| matches!(state, IdentityState::Known(_)));
        let failed = || states.iter().find(|state| matches!(state, IdentityState::Unknown(Some(_))));
        let wrong_chain = || states.iter().find(|state| matches!(state, IdentityState::WrongChain(_)));
        known.or_else(wrong_chain).or_else(failed).cloned().unwrap_or(IdentityState::Unknown(None))
    }

    /// Resolves once one of them is known to be who it should be.
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
                _ = select_all(known) => return,
                _ = changed.changed() => {}
            }
        }
    }

    /// The chain as last known, though nobody may be in reach now.
    pub fn pinned(&self) -> Option<Arc<ChainIdentity>> {
        self.0.pinned_chain().pinned()
    }

    /// Something speaks against them: whoever answers next must say who it is.
    pub fn require_recheck(&self) {
        for endpoint in self.0.load().iter() {
            endpoint.require_recheck();
        }
    }

    /// Calls `notify` whenever an endpoint whose answers were accepted turns out to serve another chain, before any call
    /// learns of it. Only the first `notify` counts.
    pub fn on_wrong_chain(&self, notify: impl Fn() + Send + Sync + 'static) {
        self.0.pinned_chain().on_wrong_chain(notify);
    }

    /// Makes sure of this one, whoever the others are.
    ///
    /// # Errors
    /// If it is gone, or is not who it should be, or does not say.
    pub async fn confirm_endpoint(&self, id: EndpointId) -> Result<Arc<ChainIdentity>, IdentityError> {
        match self.0.get(id).as_ref().and_then(|endpoint| endpoint.identity()) {
            Some(probe) => probe.confirm().await,
            None => Err(IdentityError::Upstream(UpstreamError::Empty)),
        }
    }

    /// Who they are, if one of them surely is.
    fn confirmed(&self) -> Option<Arc<ChainIdentity>> {
        let is_confirmed =
            |endpoint: &Arc<Endpoint>| endpoint.identity().is_some_and(IdentityProbe::is_confirmed);
        self.0.load().iter().any(is_confirmed).then(|| self.0.pinned_chain().pinned()).flatten()
    }

    /// Makes sure that one of them can be asked: at once if one is known, else by the next attempts. Where all are left
    /// alone, since they failed too often, nobody waits.
    ///
    /// # Errors
    /// If none can.
    pub async fn confirm(&self) -> Result<Arc<ChainIdentity>, IdentityError> {
        // Most often there is nothing to wait for.
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
            // None of them is let say anything now: whoever waited for that would wait for the last one's try.
            let now = Instant::now();
            // At first contact there is nothing to serve without it, and it is waited for.
            let is_pinned = self.0.pinned_chain().pinned().is_some();
            let is_out =
                |endpoint: &Arc<Endpoint>| endpoint.is_breaker_open(now) || endpoint.is_wrong_chain();
            if is_pinned && endpoints.iter().all(is_out) {
                // Whoever comes next may find one that is back. A stranger answers, and each time that it is asked is
                // paid for: so it is now and then.
                for probe in probes {
                    if probe.is_wrong_chain() { probe.probe() } else { probe.recheck_now() }
                }
                return Err(match self.0.unavailable_reason() {
                    UpstreamError::WrongChain(wrong_chain) => IdentityError::WrongChain(wrong_chain),
                    error => IdentityError::Upstream(error),
                });
            }
            // Once: who turns out a stranger meanwhile says so when asked, and there is always somebody to ask.
            let others = probes.iter().filter(|probe| !is_pinned || !probe.is_wrong_chain());
            let others: Vec<_> = others.cloned().collect();
            let asked = if others.is_empty() { probes } else { others };
            let confirming = asked.into_iter().map(|probe| Box::pin(probe.confirm()));
            tokio::select! {
                biased;
                // Others are asked from now on.
                _ = changed.changed() => {}
                confirmed = select_ok(confirming) => return confirmed.map(|(identity, _)| identity),
            }
        }
    }
}
