//! Sheds requests when there are too many, before their bodies are read.

use std::{
    future::{Future, Ready, ready},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use futures_util::future::Either;
use http::Response;
use pin_project_lite::pin_project;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{Layer, Service};

use super::{HttpError, RpcBody};

/// How many requests there may be at a time. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct InFlightLimit {
    permits: Arc<Semaphore>,
    max: Arc<Mutex<usize>>,
}

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

// === impl InFlightLimit ===

impl InFlightLimit {
    pub(super) fn new(max: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(max)), max: Arc::new(Mutex::new(max)) }
    }

    /// Allows so many from now on. Permits that are out are withdrawn as they come back, before anybody else
    /// gets them; that needs a runtime.
    pub(super) fn set(&self, max: usize) {
        let mut now = self.max.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *now, max);
        if max >= before {
            self.permits.add_permits(max - before);
            return;
        }
        let surplus = before - max;
        let out = surplus - self.permits.forget_permits(surplus);
        if let Some(out) = u32::try_from(out).ok().filter(|out| *out > 0) {
            let permits = self.permits.clone();
            tokio::spawn(async move {
                if let Ok(returned) = permits.acquire_many_owned(out).await {
                    returned.forget();
                }
            });
        }
    }
}

// === impl InFlightLayer ===

impl InFlightLayer {
    pub(super) fn new(limit: &InFlightLimit) -> Self {
        Self(limit.permits.clone())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn take(limit: &InFlightLimit, count: usize) -> Vec<OwnedSemaphorePermit> {
        (0..count).map_while(|_| limit.permits.clone().try_acquire_owned().ok()).collect()
    }

    #[tokio::test]
    async fn a_lower_limit_holds_once_those_above_it_are_done() {
        let limit = InFlightLimit::new(4);
        let mut taken = take(&limit, 3);
        limit.set(1);
        tokio::task::yield_now().await;
        assert!(take(&limit, 1).is_empty());
        for _ in 0..2 {
            taken.pop();
            tokio::task::yield_now().await;
            assert!(take(&limit, 1).is_empty());
        }
        taken.pop();
        assert_eq!(take(&limit, 9).len(), 1);
    }

    #[tokio::test]
    async fn limits_that_go_up_and_down_come_out_even() {
        let limit = InFlightLimit::new(4);
        let taken = take(&limit, 4);
        for max in [1, 6, 2, 5, 3] {
            limit.set(max);
        }
        tokio::task::yield_now().await;
        drop(taken);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert_eq!(take(&limit, 9).len(), 3);
    }
}
