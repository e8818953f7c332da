//! Limits the concurrent upstream fetches of one client.
//!
//! The upstream has a limit on concurrent calls and serves calls in order of arrival. Without a limit per client, a
//! client with huge batches of misses would use the whole upstream limit. A call above the client's limit waits only
//! for other calls of the same client. Cache hits need no permit.
//!
//! A fetch outlives the caller that started it, and holds that caller's permit until the fetch ends. Otherwise a client
//! that disconnects and reconnects could have any number of fetches under way.

use std::{sync::Arc, time::Duration};

use moka::{policy::EvictionPolicy, sync::Cache};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    client::{Client, ClientLimit},
    context::CallContext,
};

/// Maximum number of clients in the map. A client that was evicted starts again with all its permits, which does no
/// harm.
const MOST_CLIENTS: u64 = 1 << 14;

/// Time after which an idle client leaves the map. It is longer than the default call timeout.
const IDLE: Duration = Duration::from_secs(120);

/// A client's permit for a fetch.
pub(crate) type Permit = Arc<OwnedSemaphorePermit>;

/// The fetch permits of all clients.
#[derive(Clone, Debug)]
pub(crate) struct ClientConcurrency {
    limit: ClientLimit,
    clients: Cache<Client, Arc<Semaphore>>,
}

// === impl ClientConcurrency ===

impl ClientConcurrency {
    pub(crate) fn new(limit: ClientLimit) -> Self {
        let clients = Cache::builder()
            // Evict the least recently used client. A frequency-based policy would reject new clients while the old
            // clients are busy.
            .eviction_policy(EvictionPolicy::lru())
            .max_capacity(MOST_CLIENTS)
            .time_to_idle(IDLE)
            .build();
        Self { limit, clients }
    }

    /// Runs `work` with a permit of this client, after waiting for one. A fetch that outlives `work` keeps the
    /// permit.
    pub(crate) async fn within<T>(&self, client: Option<Client>, work: impl Future<Output = T>) -> T {
        self.with(client, self.take(client).await, work).await
    }

    /// Runs `work` with a permit that the client already has.
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

    /// Waits for a permit of this client. Calls without a client, such as the proxy's own calls, need no permit.
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
    async fn permit_lasts_as_long_as_work_started_under_it() {
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
