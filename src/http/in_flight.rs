//! Sheds requests when there are too many, before their bodies are read; and when it is crowded, first those of
//! a client that has many already.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use futures_util::future::Either;
use http::Response;
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use super::{HttpError, RpcBody, auth::Admitted, refused::Refused};
use crate::{
    budget::{Crowd, Full, Seats, Share},
    client::Client,
};

/// How many requests there may be at a time. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct InFlightLimit(Arc<Places>);

#[derive(Debug)]
struct Places {
    max: AtomicUsize,
    taken: AtomicUsize,
    crowd: Crowd,
}

/// A request's place. Free again when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    places: Arc<Places>,
    /// If it was crowded. On the heap, as most of the time it is not.
    seat: Option<Box<Seats>>,
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
        let (max, taken) = (AtomicUsize::new(max), AtomicUsize::new(0));
        Self(Arc::new(Places { max, taken, crowd: Crowd::default() }))
    }

    /// A place for a request of this client.
    ///
    /// # Errors
    /// If there is none, or none for this client.
    fn take(&self, client: Option<Client>) -> Result<Permit, HttpError> {
        let places = &self.0;
        let max = places.max.load(Relaxed);
        let taken = places.taken.fetch_add(1, Relaxed);
        // Given back when dropped, whatever is found now.
        let mut permit = Permit { places: places.clone(), seat: None };
        if let (Some(client), Some(share)) = (client, Share::of(taken as u64, max as u64)) {
            let seat = permit.seat.insert(Box::new(places.crowd.seats(client)));
            seat.take(1, share).map_err(|full| match full {
                Full::All => HttpError::Overloaded,
                Full::Share => HttpError::OverShare,
            })?;
        }
        // Not before: who has its share is not one for whom others would have to go.
        if taken >= max {
            return Err(HttpError::Overloaded);
        }
        Ok(permit)
    }

    /// How many there are.
    pub(super) fn taken(&self) -> usize {
        self.0.taken.load(Relaxed)
    }

    /// Allows so many from now on. Where there are more already, there is no place until enough of them are done.
    pub(super) fn set(&self, max: usize) {
        self.0.max.store(max, Relaxed);
    }
}

// === impl Permit ===

impl Drop for Permit {
    fn drop(&mut self) {
        self.places.taken.fetch_sub(1, Relaxed);
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
    type Future = Either<ResponseFuture<S::Future>, Refused>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Admitted<B>) -> Self::Future {
        match self.limit.take(request.caller.client) {
            Ok(permit) => {
                Either::Left(ResponseFuture { inner: self.inner.call(request), permit: Some(permit) })
            }
            Err(error) => Either::Right(Refused::new(error)),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn take(limit: &InFlightLimit, count: usize) -> Vec<Permit> {
        (0..count).map_while(|_| limit.take(None).ok()).collect()
    }

    #[test]
    fn one_client_leaves_room_for_others() {
        let limit = InFlightLimit::new(64);
        let [greedy, modest] = [1, 2].map(|key| Some(Client::Key(key)));
        let mut taken: Vec<_> = (0..1000).filter_map(|_| limit.take(greedy).ok()).collect();
        assert_eq!(taken.len(), 32 + 16, "a half while there was room, and a fourth when it was crowded");
        taken.extend((0..10).filter_map(|_| limit.take(modest).ok()));
        assert_eq!(taken.len(), 32 + 16 + 8, "the last eighth is for those who have none");
        assert_eq!(limit.take(modest).unwrap_err().to_string(), HttpError::Overloaded.to_string());
        taken.extend((3..10).filter_map(|key| limit.take(Some(Client::Key(key))).ok()));
        taken.push(limit.take(None).unwrap());
        assert_eq!(taken.len(), 64);
        for (client, error) in
            [(greedy, HttpError::OverShare), (Some(Client::Key(11)), HttpError::Overloaded)]
        {
            assert_eq!(limit.take(client).unwrap_err().to_string(), error.to_string());
        }
        // Once they are done, it is as if nothing had been.
        drop(taken);
        assert!(limit.0.crowd.is_empty());
        assert_eq!((0..1000).filter_map(|_| limit.take(modest).ok()).collect::<Vec<_>>().len(), 32 + 16);
    }

    #[test]
    fn a_lower_limit_holds_once_those_above_it_are_done() {
        let limit = InFlightLimit::new(4);
        let mut taken = take(&limit, 3);
        limit.set(1);
        assert!(take(&limit, 1).is_empty());
        for _ in 0..2 {
            taken.pop();
            assert!(take(&limit, 1).is_empty());
        }
        taken.pop();
        assert_eq!(take(&limit, 9).len(), 1);
    }

    #[test]
    fn limits_that_go_up_and_down_come_out_even() {
        let limit = InFlightLimit::new(4);
        let taken = take(&limit, 4);
        for max in [1, 6, 2, 5, 3] {
            limit.set(max);
        }
        drop(taken);
        assert_eq!(take(&limit, 9).len(), 3);
    }
}
