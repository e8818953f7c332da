//! Lets no client keep all the others waiting.
//!
//! The upstream takes so many calls at a time and no more, and who comes first is served first. One client with
//! huge batches of what is not in memory would always be first. So a client has only so many turns at a time; its
//! other calls wait for these, and for nobody else's. What is in memory needs no turn.
//!
//! A fetch goes on without the one who began it. So it keeps that one's turn until it lands: else whoever hangs up
//! and comes again would have as many fetches under way as it likes.

use std::{sync::Arc, time::Duration};

use moka::{policy::EvictionPolicy, sync::Cache};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task_local,
};

use crate::client::{Client, ClientLimit};

/// Clients that are remembered at a time. One that is forgotten has its turns anew, which harms nobody.
const MOST_CLIENTS: u64 = 1 << 14;

/// Longer than any call waits.
const IDLE: Duration = Duration::from_secs(120);

/// A client's turn, for as long as somebody holds it.
#[derive(Clone, Debug)]
pub(in crate::proxy) struct Turn(
    #[expect(dead_code, reason = "given back when dropped")] Arc<OwnedSemaphorePermit>,
);

task_local! {
    /// The turn that a call is answered in. Not an argument: a fetch may begin many steps from where the turn was taken.
    static CURRENT: Turn;
}

/// The turns of all clients.
#[derive(Clone, Debug)]
pub(in crate::proxy) struct Turns {
    limit: ClientLimit,
    clients: Cache<Client, Arc<Semaphore>>,
}

// === impl Turn ===

impl Turn {
    /// The turn that the caller does its work in, if it needs one.
    pub(in crate::proxy) fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }
}

// === impl Turns ===

impl Turns {
    pub(in crate::proxy) fn new(limit: ClientLimit) -> Self {
        let clients = Cache::builder()
            // Not by frequency: a newcomer would not be let in while the old ones are busy.
            .eviction_policy(EvictionPolicy::lru())
            .max_capacity(MOST_CLIENTS)
            .time_to_idle(IDLE)
            .build();
        Self { limit, clients }
    }

    /// Does work when it is this client's turn; whatever it leaves behind may hold that turn for longer. Who is nobody's
    /// client, such as the program itself, need not wait.
    pub(in crate::proxy) async fn within<T>(
        &self,
        client: Option<Client>,
        work: impl Future<Output = T>,
    ) -> T {
        match self.take(client).await {
            Some(turn) => Client::serve(client, CURRENT.scope(turn, work)).await,
            None => work.await,
        }
    }

    async fn take(&self, client: Option<Client>) -> Option<Turn> {
        let client = client?;
        let turns = self.clients.get_with(client, || {
            let at_a_time = usize::try_from(self.limit.of(client)).unwrap_or(usize::MAX);
            Arc::new(Semaphore::new(at_a_time.min(Semaphore::MAX_PERMITS)))
        });
        turns.acquire_owned().await.ok().map(|permit| Turn(Arc::new(permit)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_client_waits_for_its_own_turns_only() {
        let turns = Turns::new(ClientLimit::new(4, None));
        let one = Some(Client::Key(1));
        let (first, _second) = (turns.take(one).await, turns.take(one).await);
        assert!(turns.take(one).now_or_never().is_none());
        let other = Some(Client::Address(IpAddr::from([10, 0, 0, 7])));
        assert!(turns.take(other).now_or_never().is_some());
        assert!(turns.take(None).now_or_never().is_some());
        drop(first);
        assert!(turns.take(one).now_or_never().is_some());
    }
    #[tokio::test]
    async fn a_turn_lasts_as_long_as_what_was_begun_in_it() {
        let turns = Turns::new(ClientLimit::new(2, None));
        let one = Some(Client::Key(1));
        let held = turns.within(one, async { Turn::current() }).await;
        assert!(held.is_some());
        assert!(turns.take(one).now_or_never().is_none());
        drop(held);
        assert!(turns.take(one).now_or_never().is_some());
        assert!(turns.within(None, async { Turn::current() }).await.is_none());
    }
}
