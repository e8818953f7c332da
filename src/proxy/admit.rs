//! Refuses a call before it costs anything: one that its caller may not make, or not yet.

use std::{
    future::{Ready, ready},
    task::{Context, Poll},
};

use futures_util::future::Either;
use tower::{Layer, Service};

use super::{CallError, Request};

/// Says why a call is refused, if it is.
type Check = fn(&Request) -> Result<(), CallError>;

/// Puts an [`Admit`] around a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdmitLayer(Check);

/// Hands on what passes its check.
#[derive(Clone, Debug)]
pub(super) struct Admit<S> {
    inner: S,
    check: Check,
}

// === impl AdmitLayer ===

impl AdmitLayer {
    /// Takes each call out of its caller's bucket; refuses it where that is empty.
    pub(super) fn within_rate() -> Self {
        Self(|request| request.packet.caller().charge().map_err(|wait| CallError::RateLimited { wait }))
    }

    /// Refuses what its caller's policy does not allow.
    pub(super) fn by_policy() -> Self {
        Self(|request| request.packet.caller().policy.check(request))
    }
}

impl<S> Layer<S> for AdmitLayer {
    type Service = Admit<S>;

    fn layer(&self, inner: S) -> Admit<S> {
        Admit { inner, check: self.0 }
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
        match (self.check)(&request) {
            Ok(()) => Either::Left(self.inner.call(request)),
            Err(refusal) => Either::Right(ready(Err(refusal))),
        }
    }
}
