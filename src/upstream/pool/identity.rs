//! Who all endpoints are together.

use std::sync::Arc;

use futures_util::future::{select_all, select_ok};
use tokio::time::Instant;

use super::{
    super::{
        EndpointId, UpstreamError,
        endpoint::Endpoint,
        identity::{IdentityError, IdentityState, Recognition, WhoIs},
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
            endpoints.iter().filter_map(|endpoint| Some(endpoint.recognition()?.state())).collect();
        let known = states.iter().find(|state| matches!(state, IdentityState::Known(_)));
        let failed = || states.iter().find(|state| matches!(state, IdentityState::Unknown(Some(_))));
        let stranger = || states.iter().find(|state| matches!(state, IdentityState::Stranger(_)));
        known.or_else(stranger).or_else(failed).cloned().unwrap_or(IdentityState::Unknown(None))
    }

    /// Resolves once one of them is known to be who it should be.
    pub async fn known(&self) {
        loop {
            let mut changed = self.0.subscribe();
            let endpoints = self.0.load_full();
            let known =
                endpoints.iter().filter_map(|endpoint| endpoint.recognition()).map(Recognition::known);
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
    pub fn pinned(&self) -> Option<Arc<WhoIs>> {
        self.0.pin().pinned()
    }

    /// Something speaks against them: whoever answers next must say who it is.
    pub fn doubt(&self) {
        for endpoint in self.0.load().iter() {
            endpoint.doubt();
        }
    }

    /// Calls `heed` whenever an endpoint whose answers were accepted turns out to serve another chain, before any call
    /// learns of it. Only the first `heed` counts.
    pub fn on_stranger(&self, heed: impl Fn() + Send + Sync + 'static) {
        self.0.pin().on_stranger(heed);
    }

    /// Makes sure of this one, whoever the others are.
    ///
    /// # Errors
    /// If it is gone, or is not who it should be, or does not say.
    pub async fn confirm_one(&self, id: EndpointId) -> Result<Arc<WhoIs>, IdentityError> {
        match self.0.get(id).as_ref().and_then(|endpoint| endpoint.recognition()) {
            Some(recognition) => recognition.confirm().await,
            None => Err(IdentityError::Upstream(UpstreamError::Empty)),
        }
    }

    /// Who they are, if one of them surely is.
    fn sure(&self) -> Option<Arc<WhoIs>> {
        let is_sure = |endpoint: &Arc<Endpoint>| endpoint.recognition().is_some_and(Recognition::is_sure);
        self.0.load().iter().any(is_sure).then(|| self.0.pin().pinned()).flatten()
    }

    /// Makes sure that one of them can be asked: at once if one is known, else by the next attempts. Where all are left
    /// alone, since they failed too often, nobody waits.
    ///
    /// # Errors
    /// If none can.
    pub async fn confirm(&self) -> Result<Arc<WhoIs>, IdentityError> {
        // Most often there is nothing to wait for.
        if let Some(who) = self.sure() {
            return Ok(who);
        }
        loop {
            let mut changed = self.0.subscribe();
            let endpoints = self.0.load_full();
            let recognitions: Vec<_> =
                endpoints.iter().filter_map(|endpoint| endpoint.recognition()).collect();
            if let Some(who) = self.sure() {
                return Ok(who);
            }
            if recognitions.is_empty() {
                return Err(IdentityError::Upstream(UpstreamError::Busy));
            }
            // None of them is let say anything now: whoever waited for that would wait for the last one's try.
            let now = Instant::now();
            // At first contact there is nothing to serve without it, and it is waited for.
            let is_met = self.0.pin().pinned().is_some();
            let is_out = |endpoint: &Arc<Endpoint>| endpoint.is_left_alone(now) || endpoint.is_stranger();
            if is_met && endpoints.iter().all(is_out) {
                // Whoever comes next may find one that is back. A stranger answers, and each time that it is asked is
                // paid for: so it is now and then.
                for recognition in recognitions {
                    if recognition.is_stranger() { recognition.probe() } else { recognition.hurry() }
                }
                return Err(match self.0.why_none() {
                    UpstreamError::Stranger(stranger) => IdentityError::Stranger(stranger),
                    error => IdentityError::Upstream(error),
                });
            }
            // Once: who turns out a stranger meanwhile says so when asked, and there is always somebody to ask.
            let others = recognitions.iter().filter(|recognition| !is_met || !recognition.is_stranger());
            let others: Vec<_> = others.cloned().collect();
            let asked = if others.is_empty() { recognitions } else { others };
            let confirming = asked.into_iter().map(|recognition| Box::pin(recognition.confirm()));
            tokio::select! {
                biased;
                // Others are asked from now on.
                _ = changed.changed() => {}
                confirmed = select_ok(confirming) => return confirmed.map(|(who, _)| who),
            }
        }
    }
}
