//! Refuses calls that the policy or the rate limit of the caller forbids, before any other work.

use std::{
    future::{Ready, ready},
    task::{Context, Poll},
};

use futures_util::future::Either;
use tower::{Layer, Service};

use crate::{
    proxy::{call::request::Request, error::CallError},
    upstream::{Identity, is_development},
};

/// Puts an [`Admit`] around a service.
#[derive(Clone, Debug)]
pub(crate) struct AdmitLayer(pub(crate) Identity);

/// Passes on the calls that the caller may make now.
#[derive(Clone, Debug)]
pub(crate) struct Admit<S> {
    inner: S,
    identity: Identity,
}

/// Checks the rate limit and the policy of the caller.
fn check(request: &Request, identity: &Identity) -> Result<(), CallError> {
    let caller = request.packet().caller();
    // Charge every call, even if the policy then refuses it or the cache answers it. A batch of a hundred calls costs a
    // hundred.
    caller.charge(1).map_err(|wait| CallError::RateLimited { wait })?;
    let is_development = || identity.pinned().is_some_and(|chain| is_development(chain.chain_id));
    caller.policy.check(request.call().method.as_str(), caller.origin.as_ref(), is_development)
}

// === impl AdmitLayer ===

impl<S> Layer<S> for AdmitLayer {
    type Service = Admit<S>;

    fn layer(&self, inner: S) -> Admit<S> {
        Admit { inner, identity: self.0.clone() }
    }
}

// === impl Admit ===

impl<S> Service<Request> for Admit<S>
where
    S: Service<Request, Error = CallError>,
{
    type Response = S::Response;
    type Error = CallError;
    type Future = Either<S::Future, Ready<Result<S::Response, CallError>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match check(&request, &self.identity) {
            Ok(()) => Either::Left(self.inner.call(request)),
            Err(refusal) => Either::Right(ready(Err(refusal))),
        }
    }
}
