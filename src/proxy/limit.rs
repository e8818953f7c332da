//! Lets a client call as often as it may.

use std::{
    future::{Ready, ready},
    task::{Context, Poll},
};

use futures_util::future::Either;
use tower::{Layer, Service};

use super::{CallError, Request};

/// Puts a [`Limited`] around a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitLayer;

/// Takes each call out of its caller's bucket; refuses it where that is empty.
#[derive(Clone, Debug)]
pub(super) struct Limited<S>(S);

// === impl LimitLayer ===

impl<S> Layer<S> for LimitLayer {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Limited<S> {
        Limited(inner)
    }
}

// === impl Limited ===

impl<S> Service<Request> for Limited<S>
where
    S: Service<Request, Error = CallError>,
{
    type Response = S::Response;
    type Error = CallError;
    type Future = Either<S::Future, Ready<Result<S::Response, CallError>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match request.packet().caller().charge() {
            Ok(()) => Either::Left(self.0.call(request)),
            Err(wait) => Either::Right(ready(Err(CallError::RateLimited { wait }))),
        }
    }
}
