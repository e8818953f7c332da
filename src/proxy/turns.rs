//! Lets no client keep all the others waiting.
//!
//! The upstream takes so many calls at a time and no more, and who comes first is served first. One client with
//! huge batches of what is not in memory would always be first. So a client has only so many turns at a time; its
//! other calls wait for these, and for nobody else's. What is in memory needs no turn.

use std::{net::IpAddr, sync::Arc, time::Duration};

use moka::{policy::EvictionPolicy, sync::Cache};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Clients that are remembered at a time. One that is forgotten has its turns anew, which harms nobody.
const MOST_CLIENTS: u64 = 1 << 14;

/// Longer than any call waits.
const IDLE: Duration = Duration::from_secs(120);

/// Who a client is, as far as it must be told from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// Whoever has this key, by a part of its hash.
    Key(u64),
    /// Whoever is at this address, or in this network.
    Address(IpAddr),
}

/// The turns of all clients.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    at_a_time: usize,
    clients: Cache<Client, Arc<Semaphore>>,
}

// === impl Turns ===

impl Turns {
    pub(super) fn new(at_a_time: usize) -> Self {
        let clients = Cache::builder()
            // Not by frequency: a newcomer would not be let in while the old ones are busy.
            .eviction_policy(EvictionPolicy::lru())
            .max_capacity(MOST_CLIENTS)
            .time_to_idle(IDLE)
            .build();
        Self { at_a_time, clients }
    }

    /// Resolves when it is this client's turn, until what is returned is dropped. Who is nobody's client, such as
    /// the program itself, need not wait.
    pub(super) async fn take(&self, client: Option<Client>) -> Option<OwnedSemaphorePermit> {
        let turns = self.clients.get_with(client?, || Arc::new(Semaphore::new(self.at_a_time)));
        turns.acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_client_waits_for_its_own_turns_only() {
        let turns = Turns::new(2);
        let one = Some(Client::Key(1));
        let (first, _second) = (turns.take(one).await, turns.take(one).await);
        assert!(turns.take(one).now_or_never().is_none());
        let other = Some(Client::Address(IpAddr::from([10, 0, 0, 7])));
        assert!(turns.take(other).now_or_never().is_some());
        assert!(turns.take(None).now_or_never().is_some());
        drop(first);
        assert!(turns.take(one).now_or_never().is_some());
    }
}
