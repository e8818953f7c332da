//! Refuses requests before their bodies are read if too many requests are in flight, in total or from one client.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::future::Either;
use http::Response;
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::http::{
    access::auth::Admitted,
    error::HttpError,
    permit::{InFlightLimit, Permit},
    response::{body::RpcBody, refused::RefusedFuture},
};

/// Puts an [`InFlight`] around a service.
#[derive(Clone, Debug)]
pub(in crate::http) struct InFlightLayer(InFlightLimit);

/// Takes a permit for each request, and refuses the request if no permit is left.
#[derive(Clone, Debug)]
pub(in crate::http) struct InFlight<S> {
    inner: S,
    limit: InFlightLimit,
}

pin_project! {
    /// Moves the permit into the response's body, so that the request is in flight until the body is sent.
    pub(in crate::http) struct ResponseFuture<F> {
        #[pin]
        inner: F,
        permit: Option<Permit>,
    }
}

// === impl InFlightLayer ===

impl InFlightLayer {
    pub(in crate::http) fn new(limit: &InFlightLimit) -> Self {
        Self(limit.clone())
    }
}

impl<S> Layer<S> for InFlightLayer {
    type Service = InFlight<S>;

    fn layer(&self, inner: S) -> InFlight<S> {
        InFlight { inner, limit: self.0.clone() }
    }
}

// === impl InFlight ===

impl<S, B> Service<Admitted<B>> for InFlight<S>
where
    S: Service<Admitted<B>, Response = Response<RpcBody>, Error = HttpError>,
{
    type Response = Response<RpcBody>;
    type Error = HttpError;
    type Future = Either<ResponseFuture<S::Future>, RefusedFuture>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Admitted<B>) -> Self::Future {
        match self.limit.take(request.caller.client) {
            Ok(permit) => {
                Either::Left(ResponseFuture { inner: self.inner.call(request), permit: Some(permit) })
            }
            Err(error) => Either::Right(RefusedFuture::new(error)),
        }
    }
}

// === impl ResponseFuture ===

impl<F> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<RpcBody>, HttpError>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut polled = this.inner.poll(cx);
        if let Poll::Ready(Ok(response)) = &mut polled {
            response.body_mut().keep(this.permit.take());
        }
        polled
    }
}
