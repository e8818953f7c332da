//! Sheds requests when there are too many, before their bodies are read; and when it is crowded, first those of
//! a client that has many already.

use std::{
    collections::HashMap,
    future::{Future, Ready, ready},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use futures_util::future::Either;
use http::Response;
use pin_project_lite::pin_project;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{Layer, Service};

use super::{HttpError, RpcBody, auth::Admitted};
use crate::proxy::Client;

/// When fewer than a half of all places are free, it is crowded …
const CROWDED: usize = 2;

/// … and then a client may have a fourth of all of them, beside those that it had before: there is room for others.
const SHARE: usize = 4;

/// How many requests there may be at a time. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct InFlightLimit {
    permits: Arc<Semaphore>,
    max: Arc<Mutex<usize>>,
    /// The same as `max`, for those who only look.
    now: Arc<AtomicUsize>,
    crowd: Arc<Crowd>,
}

/// A request's place. Free again when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    _permit: OwnedSemaphorePermit,
    _seat: Option<Seat>,
}

/// How many requests each client has, of those that came while it was crowded. Looked at only then.
#[derive(Debug, Default)]
struct Crowd(Mutex<HashMap<Client, usize>>);

#[derive(Debug)]
struct Seat {
    crowd: Arc<Crowd>,
    client: Client,
}

/// Puts an [`InFlight`] around a service.
#[derive(Clone, Debug)]
pub(super) struct InFlightLayer(InFlightLimit);

/// Takes a permit for each request, and none that has to wait for one.
#[derive(Clone, Debug)]
pub(super) struct InFlight<S> {
    inner: S,
    limit: InFlightLimit,
}

pin_project! {
    /// Hands the permit on to the answer's body.
    pub(super) struct ResponseFuture<F> {
        #[pin]
        inner: F,
        permit: Option<Permit>,
    }
}

// === impl InFlightLimit ===

impl InFlightLimit {
    pub(super) fn new(max: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(max)),
            max: Arc::new(Mutex::new(max)),
            now: Arc::new(AtomicUsize::new(max)),
            crowd: Arc::default(),
        }
    }

    /// A place for a request of this client, if there is one.
    fn take(&self, client: Option<Client>) -> Option<Permit> {
        let permit = self.permits.clone().try_acquire_owned().ok()?;
        let max = self.now.load(Relaxed);
        let is_crowded = self.permits.available_permits() < max / CROWDED;
        let seat = match client.filter(|_| is_crowded) {
            Some(client) => Some(Crowd::sit(&self.crowd, client, (max / SHARE).max(1))?),
            None => None,
        };
        Some(Permit { _permit: permit, _seat: seat })
    }

    /// Allows so many from now on. Permits that are out are withdrawn as they come back, before anybody else
    /// gets them; that needs a runtime.
    pub(super) fn set(&self, max: usize) {
        let mut now = self.max.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *now, max);
        self.now.store(max, Relaxed);
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

// === impl Crowd ===

impl Crowd {
    /// A seat for this client, unless it has so many already.
    fn sit(this: &Arc<Self>, client: Client, most: usize) -> Option<Seat> {
        let mut seats = this.lock();
        let taken = seats.entry(client).or_default();
        if *taken >= most {
            return None;
        }
        *taken += 1;
        Some(Seat { crowd: this.clone(), client })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Client, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Seat ===

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.crowd.lock();
        if let Some(taken) = seats.get_mut(&self.client) {
            *taken -= 1;
            if *taken == 0 {
                seats.remove(&self.client);
            }
        }
    }
}

// === impl InFlightLayer ===

impl InFlightLayer {
    pub(super) fn new(limit: &InFlightLimit) -> Self {
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
    type Future = Either<ResponseFuture<S::Future>, Ready<Result<Response<RpcBody>, HttpError>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Admitted<B>) -> Self::Future {
        match self.limit.take(request.caller.client) {
            Some(permit) => {
                Either::Left(ResponseFuture { inner: self.inner.call(request), permit: Some(permit) })
            }
            None => Either::Right(ready(Err(HttpError::Overloaded))),
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

    fn take(limit: &InFlightLimit, count: usize) -> Vec<Permit> {
        (0..count).map_while(|_| limit.take(None)).collect()
    }

    #[tokio::test]
    async fn one_client_leaves_room_for_others() {
        let limit = InFlightLimit::new(64);
        let [greedy, modest] = [1, 2].map(|key| Some(Client::Key(key)));
        let mut taken: Vec<_> = (0..1000).filter_map(|_| limit.take(greedy)).collect();
        assert_eq!(taken.len(), 32 + 16, "a half while there was room, and a fourth when it was crowded");
        taken.extend((0..10).filter_map(|_| limit.take(modest)));
        assert_eq!(taken.len(), 32 + 16 + 10);
        // Once they are done, it is as if nothing had been.
        drop(taken);
        assert!(limit.crowd.lock().is_empty());
        assert_eq!((0..1000).filter_map(|_| limit.take(modest)).collect::<Vec<_>>().len(), 32 + 16);
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
