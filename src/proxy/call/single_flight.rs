//! Lets callers that ask for the same data share one upstream fetch.

use std::{
    future::Future,
    hash::Hash,
    sync::{Arc, OnceLock},
};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tracing::{Instrument, Span};

use crate::{chain::Stamp, context::CallContext};

/// Runs at most one joinable fetch per key. A *flight* is a fetch that is running.
///
/// A fetch runs on its own task, to its end, so that a caller that disconnects does not cancel it for the others. If
/// the task dies, every waiter gets [`Abandoned`].
#[derive(Clone, Debug)]
pub(crate) struct Coalesce<K, V> {
    flights: Flights<K, V>,
}

type Flights<K, V> = Arc<Mutex<HashMap<K, Arc<Flight<V>>>>>;

#[derive(Debug)]
struct Flight<V> {
    sent: Stamp,
    /// Span of the caller that started the fetch.
    span: Span,
    /// Result of the fetch; unset while the task runs, and if the task died.
    value: OnceLock<V>,
    /// Semaphore without permits. It closes when the task ends, which wakes all waiters.
    ended: Semaphore,
}

/// The fetch ended without a result, because its task died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the fetch was abandoned")]
pub(crate) struct Abandoned;

/// Result of a fetch for one of its callers.
#[derive(Clone, Debug)]
pub(crate) struct Shared<V> {
    pub(crate) value: V,
    /// Whether another caller had started the fetch.
    pub(crate) joined: bool,
    /// Time at which the fetch was sent.
    pub(crate) sent: Stamp,
}

/// Removes the flight from the map and wakes its waiters when the task ends, even if it panics.
struct Ending<K: Hash + Eq, V> {
    flights: Flights<K, V>,
    key: K,
    flight: Arc<Flight<V>>,
}

// === impl Coalesce ===

impl<K, V> Default for Coalesce<K, V> {
    fn default() -> Self {
        Self { flights: Arc::default() }
    }
}

impl<K, V> Coalesce<K, V>
where
    K: Clone + Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Joins the flight of `key` if `may_join` accepts its send time. Otherwise starts a new flight, sent at `now`,
    /// that others may join.
    pub(crate) async fn run<F>(
        &self,
        key: K,
        now: Stamp,
        may_join: impl FnOnce(Stamp) -> bool,
        fetch: impl FnOnce() -> F,
    ) -> Result<Shared<V>, Abandoned>
    where
        F: Future<Output = V> + Send + 'static,
    {
        let (flight, joined) = {
            let mut flights = self.flights.lock();
            match flights.get(&key) {
                Some(flight) if may_join(flight.sent) => (flight.clone(), true),
                _ => {
                    // The task runs in the context of the caller that starts the flight, even if that caller
                    // disconnects. The task holds the caller's permit, but passes neither the permit nor the connection
                    // observer on to fetches that it starts.
                    let CallContext { client, permit, trace, .. } = CallContext::current();
                    let (context, span) =
                        (CallContext { client, trace, ..CallContext::default() }, Span::current());
                    let flight = Arc::new(Flight {
                        sent: now,
                        span: span.clone(),
                        value: OnceLock::new(),
                        ended: Semaphore::new(0),
                    });
                    flights.insert(key.clone(), flight.clone());
                    let landing = Ending { flights: self.flights.clone(), key, flight: flight.clone() };
                    // Box the future, because it is large and `spawn` would move it.
                    let fetch = Box::pin(fetch());
                    tokio::spawn(async move {
                        let value = context.scope(fetch).instrument(span).await;
                        drop(permit);
                        landing.land(value);
                    });
                    (flight, false)
                }
            }
        };
        if joined {
            Span::current().follows_from(&flight.span);
        }
        // `acquire` never gets a permit; it returns when the semaphore closes at the end of the task.
        let _ = flight.ended.acquire().await;
        let value = flight.value.get().cloned().ok_or(Abandoned)?;
        Ok(Shared { value, joined, sent: flight.sent })
    }

    #[cfg(test)]
    fn in_flight(&self) -> usize {
        self.flights.lock().len()
    }
}

// === impl Ending ===

impl<K: Hash + Eq, V> Ending<K, V> {
    fn land(self, value: V) {
        // Setting the value cannot fail, because each task sets it only once.
        let _ = self.flight.value.set(value);
    }
}

impl<K: Hash + Eq, V> Drop for Ending<K, V> {
    fn drop(&mut self) {
        let mut flights = self.flights.lock();
        // Remove only this flight, because a later flight may have replaced it in the map.
        if flights.get(&self.key).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
            flights.remove(&self.key);
        }
        drop(flights);
        // Wake the waiters only after the flight has left the map, so that no later caller joins a flight that has
        // ended.
        self.flight.ended.close();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time;

    use super::*;
    use crate::chain::Clock;

    #[tokio::test]
    async fn waiters_get_an_error_when_the_fetch_task_panics() {
        let (flights, clock) = (Coalesce::<u8, u8>::default(), Clock::default());
        let died = flights.run(1, clock.now(), |_| true, || async { panic!("on purpose") }).await;
        assert_eq!(died.unwrap_err(), Abandoned);
        assert_eq!(flights.in_flight(), 0);
        assert_eq!(flights.run(1, clock.now(), |_| true, || async { 8 }).await.unwrap().value, 8);
    }

    #[tokio::test(start_paused = true)]
    async fn fetch_that_must_not_be_joined_keeps_its_callers() {
        let (flights, clock) = (Coalesce::<u8, u8>::default(), Clock::default());
        let slow = |value| {
            move || async move {
                time::sleep(Duration::from_secs(1)).await;
                value
            }
        };
        let (one, two, three) = tokio::join!(
            flights.run(1, clock.now(), |_| true, slow(1)),
            flights.run(1, clock.now(), |_| false, slow(2)),
            flights.run(1, clock.now(), |_| true, slow(3)),
        );
        assert_eq!([one, two, three].map(|landed| landed.unwrap().value), [1, 2, 2]);
        assert_eq!(flights.in_flight(), 0);
    }
}
