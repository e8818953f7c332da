//! Lets no client keep all the others waiting.
//!
//! The upstream takes so many calls at a time and no more, and who comes first is served first. One client with
//! huge batches of what is not in memory would always be first. So a client has only so many concurrency at a time; its
//! other calls wait for these, and for nobody else's. What is in memory needs no turn.
//!
//! A fetch goes on without the one who began it. So it keeps that one's turn until it lands: else whoever hangs up
//! and comes again would have as many fetches under way as it likes.

use std::{sync::Arc, time::Duration};

use moka::{policy::EvictionPolicy, sync::Cache};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    client::{Client, ClientLimit},
    context::CallContext,
};

/// Clients that are remembered at a time. One that is forgotten has its concurrency anew, which harms nobody.
const MOST_CLIENTS: u64 = 1 << 14;

/// Longer than any call waits.
const IDLE: Duration = Duration::from_secs(120);

/// A client's permit for a fetch.
pub(crate) type Permit = Arc<OwnedSemaphorePermit>;

/// The concurrency of all clients.
#[derive(Clone, Debug)]
pub(crate) struct ClientConcurrency {
    limit: ClientLimit,
    clients: Cache<Client, Arc<Semaphore>>,
}

// === impl ClientConcurrency ===

impl ClientConcurrency {
    pub(crate) fn new(limit: ClientLimit) -> Self {
        let clients = Cache::builder()
            // Not by frequency: a newcomer would not be let in while the old ones are busy.
            .eviction_policy(EvictionPolicy::lru())
            .max_capacity(MOST_CLIENTS)
            .time_to_idle(IDLE)
            .build();
        Self { limit, clients }
    }

    /// Does work when this client may have another fetch. A fetch that outlives the work keeps the permit.
    pub(crate) async fn within<T>(&self, client: Option<Client>, work: impl Future<Output = T>) -> T {
        self.with(client, self.take(client).await, work).await
    }

    /// Does work for a client with a permit that it has.
    pub(crate) async fn with<T>(
        &self,
        client: Option<Client>,
        permit: Option<Permit>,
        work: impl Future<Output = T>,
    ) -> T {
        match permit {
            Some(permit) => {
                let context = CallContext { client, permit: Some(permit), ..CallContext::current() };
                context.scope(work).await
            }
            None => work.await,
        }
    }

    /// Waits until this client may have another fetch. A call without a client, such as the program's own, need not wait.
    pub(crate) async fn take(&self, client: Option<Client>) -> Option<Permit> {
        let client = client?;
        let concurrency = self.clients.get_with(client, || {
            let at_a_time = usize::try_from(self.limit.of(client)).unwrap_or(usize::MAX);
            Arc::new(Semaphore::new(at_a_time.min(Semaphore::MAX_PERMITS)))
        });
        concurrency.acquire_owned().await.ok().map(Arc::new)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_client_waits_for_its_own_concurrency_only() {
        let concurrency = ClientConcurrency::new(ClientLimit::new(4, None));
        let one = Some(Client::Key(1));
        let (first, _second) = (concurrency.take(one).await, concurrency.take(one).await);
        assert!(concurrency.take(one).now_or_never().is_none());
        let other = Some(Client::Address(IpAddr::from([10, 0, 0, 7])));
        assert!(concurrency.take(other).now_or_never().is_some());
        assert!(concurrency.take(None).now_or_never().is_some());
        drop(first);
        assert!(concurrency.take(one).now_or_never().is_some());
    }
    #[tokio::test]
    async fn a_turn_lasts_as_long_as_what_was_begun_in_it() {
        let concurrency = ClientConcurrency::new(ClientLimit::new(2, None));
        let one = Some(Client::Key(1));
        let held = concurrency.within(one, async { CallContext::current().permit }).await;
        assert!(held.is_some());
        assert!(concurrency.take(one).now_or_never().is_none());
        drop(held);
        assert!(concurrency.take(one).now_or_never().is_some());
        assert!(concurrency.within(None, async { CallContext::current().permit }).await.is_none());
    }
}
