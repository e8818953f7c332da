//! Sheds requests when there are too many, before their bodies are read.

use std::{
    future::{Future, Ready, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_util::future::Either;
use http::Response;
use pin_project_lite::pin_project;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{Layer, Service};

use super::{HttpError, RpcBody};

/// Puts an [`InFlight`] around a service.
#[derive(Clone, Debug)]
pub(super) struct InFlightLayer(Arc<Semaphore>);

/// Takes a permit for each request, and none that has to wait for one.
#[derive(Clone, Debug)]
pub(super) struct InFlight<S> {
    inner: S,
    permits: Arc<Semaphore>,
}

pin_project! {
    /// Hands the permit on to the answer's body.
    pub(super) struct ResponseFuture<F> {
        #[pin]
        inner: F,
        permit: Option<OwnedSemaphorePermit>,
    }
}

// === impl InFlightLayer ===

impl InFlightLayer {
    pub(super) fn new(max: usize) -> Self {
        Self(Arc::new(Semaphore::new(max)))
    }
}

impl<S> Layer<S> for InFlightLayer {
    type Service = InFlight<S>;

    fn layer(&self, inner: S) -> InFlight<S> {
        InFlight { inner, permits: self.0.clone() }
    }
}

// === impl InFlight ===

impl<S, R> Service<R> for InFlight<S>
where
    S: Service<R, Response = Response<RpcBody>, Error = HttpError>,
{
    type Response = Response<RpcBody>;
    type Error = HttpError;
    type Future = Either<ResponseFuture<S::Future>, Ready<Result<Response<RpcBody>, HttpError>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        match self.permits.clone().try_acquire_owned() {
            Ok(permit) => {
                Either::Left(ResponseFuture { inner: self.inner.call(request), permit: Some(permit) })
            }
            Err(_) => Either::Right(ready(Err(HttpError::Overloaded))),
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
        let response = ready!(this.inner.poll(cx))?;
        let permit = this.permit.take().expect("a future is not polled after it is ready");
        Poll::Ready(Ok(response.map(|body| body.with_permit(permit))))
    }
}
