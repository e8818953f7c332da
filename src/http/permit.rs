//! Counts and limits the requests in flight, in total and for each client.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use arc_swap::ArcSwap;

use super::{config::Config, error::HttpError};
use crate::{
    budget::ClientCounts,
    client::{Client, ClientLimit},
};

/// Limits the number of requests in flight. Clones share the count.
#[derive(Clone, Debug)]
pub(super) struct InFlightLimit(Arc<Places>);

#[derive(Debug)]
struct Places {
    limit: ArcSwap<ClientLimit>,
    taken: AtomicUsize,
    clients: ClientCounts,
}

/// One request's share of the limit, released on drop.
#[derive(Debug)]
pub(super) struct Permit {
    places: Arc<Places>,
    /// The client whose count includes this permit, if the client has a limit of its own.
    client: Option<Client>,
}

// === impl InFlightLimit ===

impl InFlightLimit {
    pub(super) fn new(config: &Config) -> Self {
        let limit = ArcSwap::from_pointee(limit(config));
        Self(Arc::new(Places { limit, taken: AtomicUsize::new(0), clients: ClientCounts::default() }))
    }

    /// Takes a permit for a request of this client.
    ///
    /// # Errors
    /// If the total or the client is at its limit.
    pub(super) fn take(&self, client: Option<Client>) -> Result<Permit, HttpError> {
        let places = &self.0;
        let limit = **places.limit.load();
        let taken = places.taken.fetch_add(1, Relaxed);
        // Each error below drops the permit, which reverts the count.
        let mut permit = Permit { places: places.clone(), client: None };
        if let Some((client, most)) = limit.below_total(client) {
            places.clients.add(client, 1, most).map_err(|_| HttpError::ClientLimit)?;
            permit.client = Some(client);
        }
        if taken as u64 >= limit.total() {
            return Err(HttpError::Overloaded);
        }
        Ok(permit)
    }

    /// Returns the number of requests in flight.
    pub(super) fn taken(&self) -> usize {
        self.0.taken.load(Relaxed)
    }

    /// Applies the limits of another configuration. If more requests are in flight than the new limit allows, new
    /// requests are refused until enough of the others are done.
    pub(super) fn set(&self, config: &Config) {
        self.0.limit.store(Arc::new(limit(config)));
    }
}

fn limit(config: &Config) -> ClientLimit {
    ClientLimit::new(config.max_in_flight as u64, config.max_per_client.map(|most| most as u64))
}

// === impl Permit ===

impl Drop for Permit {
    fn drop(&mut self) {
        self.places.taken.fetch_sub(1, Relaxed);
        if let Some(client) = self.client {
            self.places.clients.subtract(client, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn config(max_in_flight: usize, max_per_client: Option<usize>) -> Config {
        Config { max_in_flight, max_per_client, ..Config::default() }
    }

    fn take(limit: &InFlightLimit, client: Option<Client>, count: usize) -> Vec<Permit> {
        (0..count).map_while(|_| limit.take(client).ok()).collect()
    }

    #[test]
    fn one_client_leaves_room_for_others() {
        let limit = InFlightLimit::new(&config(64, None));
        let [greedy, modest] = [1, 2].map(|key| Some(Client::Key(key)));
        let held = take(&limit, greedy, 1000);
        assert_eq!(held.len(), 32, "half of the total");
        assert_eq!(limit.take(greedy).unwrap_err().to_string(), HttpError::ClientLimit.to_string());
        let others = take(&limit, modest, 1000);
        assert_eq!(others.len(), 32);
        let late = limit.take(Some(Client::Key(3))).unwrap_err();
        assert_eq!(late.to_string(), HttpError::Overloaded.to_string());
        drop((held, others));
        assert!(limit.0.clients.is_empty());
        assert_eq!(limit.taken(), 0);
    }

    #[test]
    fn shared_address_has_the_full_limit_by_default() {
        let shared = Some(Client::Shared(IpAddr::from([127, 0, 0, 1])));
        let limit = InFlightLimit::new(&config(8, None));
        assert_eq!(take(&limit, shared, 1000).len(), 8);
        limit.set(&config(8, Some(3)));
        assert_eq!(take(&limit, shared, 1000).len(), 3);
    }

    #[test]
    fn lowered_limit_holds_once_excess_requests_end() {
        let limit = InFlightLimit::new(&config(4, None));
        let mut taken = take(&limit, None, 3);
        limit.set(&config(1, None));
        assert!(take(&limit, None, 1).is_empty());
        for _ in 0..2 {
            taken.pop();
            assert!(take(&limit, None, 1).is_empty());
        }
        taken.pop();
        assert_eq!(take(&limit, None, 9).len(), 1);
    }

    #[test]
    fn limit_is_exact_after_several_changes() {
        let limit = InFlightLimit::new(&config(4, None));
        let taken = take(&limit, None, 4);
        for max in [1, 6, 2, 5, 3] {
            limit.set(&config(max, None));
        }
        drop(taken);
        assert_eq!(take(&limit, None, 9).len(), 3);
    }
}
