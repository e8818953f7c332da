//! Gives out permits in turn: of the clients that wait, each gets one before another gets a second.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    thread,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::client::Client;

/// Part of the queue that one client may fill. An address that many clients share may fill all of it.
const CLIENT_PART: usize = 4;

/// Limits of the threads and their queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of threads, and maximum number of jobs that run at a time.
    pub threads: usize,
    /// Maximum number of jobs that wait.
    pub waiting: usize,
    /// Maximum total size of what the waiting jobs work on, in bytes. A larger job waits alone.
    pub bytes: usize,
}

/// Permits for jobs, and the queue of the jobs that wait for one. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Turns(Arc<Mutex<State>>);

/// A permit for one job. Dropped, it goes to the oldest job of the next client.
#[derive(Debug)]
pub(super) struct Turn(Turns);

#[derive(Debug)]
struct State {
    limits: Limits,
    free: usize,
    /// Number of jobs that have waited so far.
    queued: u64,
    /// The waiting jobs of each client, oldest first.
    waiting: HashMap<Option<Client>, VecDeque<Job>>,
    /// The clients with waiting jobs. The first is next.
    order: VecDeque<Option<Client>>,
}

#[derive(Debug)]
struct Job {
    id: u64,
    bytes: usize,
    begin: oneshot::Sender<Turn>,
}

/// The place of a job in the queue. Dropped, it removes the job.
struct Place<'a> {
    turns: &'a Turns,
    client: Option<Client>,
    id: u64,
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // Within 2 s, one thread proves about a hundred full blocks or ten thousand transactions.
        Self { threads: cores.saturating_sub(1).max(1), waiting: 512, bytes: 64 << 20 }
    }
}

// === impl Turns ===

impl Turns {
    pub(super) fn new(limits: Limits) -> Self {
        Self(Arc::new(Mutex::new(State {
            limits,
            free: limits.threads,
            queued: 0,
            waiting: HashMap::new(),
            order: VecDeque::new(),
        })))
    }

    /// Returns a permit, if one is free. Then no job waits.
    pub(super) fn try_take(&self) -> Option<Turn> {
        let mut state = self.0.lock();
        state.free = state.free.checked_sub(1)?;
        Some(Turn(self.clone()))
    }

    /// Waits in the queue for a permit for a job on so many bytes. Returns `None` if the queue is full; a `patient` job waits
    /// before a full queue.
    pub(super) async fn take(&self, client: Option<Client>, bytes: usize, patient: bool) -> Option<Turn> {
        if let Some(turn) = self.try_take() {
            return Some(turn);
        }
        let (begin, begins) = oneshot::channel();
        let id = {
            let mut state = self.0.lock();
            let bytes = bytes.min(state.limits.bytes);
            if !patient && !state.has_room(client, bytes) {
                return None;
            }
            state.push(client, bytes, begin)
        };
        let _place = Place { turns: self, client, id };
        Some(begins.await.expect("a job in the queue keeps its sender"))
    }
}

// === impl State ===

impl State {
    /// Returns whether the queue has room for a job on so many bytes, and this client has not filled its part. A job that is
    /// too large for that waits alone.
    fn has_room(&self, client: Option<Client>, bytes: usize) -> bool {
        let Limits { waiting, bytes: most, .. } = self.limits;
        let fits = |count: usize, held: usize, part: usize| {
            count == 0 || (count < (waiting / part).max(1) && held + bytes <= most / part)
        };
        let (mut count, mut held) = (0, 0);
        for job in self.waiting.values().flatten() {
            (count, held) = (count + 1, held + job.bytes);
        }
        let own = self.waiting.get(&client);
        let own_bytes = own.map_or(0, |own| own.iter().map(|job| job.bytes).sum());
        let part = match client {
            Some(Client::Key(_) | Client::Address(_)) => CLIENT_PART,
            Some(Client::Shared(_)) | None => 1,
        };
        fits(count, held, 1) && fits(own.map_or(0, VecDeque::len), own_bytes, part)
    }

    fn push(&mut self, client: Option<Client>, bytes: usize, begin: oneshot::Sender<Turn>) -> u64 {
        self.queued += 1;
        let jobs = self.waiting.entry(client).or_default();
        if jobs.is_empty() {
            self.order.push_back(client);
        }
        jobs.push_back(Job { id: self.queued, bytes, begin });
        self.queued
    }

    /// Removes the oldest job of the next client, which then comes last.
    fn pop(&mut self) -> Option<Job> {
        let client = self.order.pop_front()?;
        let jobs = self.waiting.get_mut(&client)?;
        let job = jobs.pop_front();
        if jobs.is_empty() {
            self.waiting.remove(&client);
        } else {
            self.order.push_back(client);
        }
        job
    }
}

// === impl Turn ===

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        let next = state.pop();
        if next.is_none() {
            state.free += 1;
        }
        drop(state);
        if let Some(job) = next {
            // If the job was abandoned at this moment, its permit comes back, and is passed on.
            let _ = job.begin.send(Self(self.0.clone()));
        }
    }
}

// === impl Place ===

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.0.lock();
        let Some(jobs) = state.waiting.get_mut(&self.client) else { return };
        jobs.retain(|job| job.id != self.id);
        if jobs.is_empty() {
            state.waiting.remove(&self.client);
            state.order.retain(|client| *client != self.client);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { threads: 1, waiting: 16, bytes: 1 << 10 };

    fn key(number: u64) -> Option<Client> {
        Some(Client::Key(number))
    }

    #[test]
    fn one_client_cannot_fill_the_queue() {
        let turns = Turns::new(LIMITS);
        let _held = turns.try_take().unwrap();
        let waits = |client, bytes| {
            let mut waits = Box::pin(turns.take(client, bytes, false));
            waits.as_mut().now_or_never().is_none().then_some(waits)
        };
        let of_one: Vec<_> = (0..4).map(|_| waits(key(1), 1).unwrap()).collect();
        assert!(waits(key(1), 1).is_none(), "a quarter of the places");
        let large = waits(key(2), 1 << 9).unwrap();
        assert!(waits(key(2), 1).is_none(), "a quarter of the bytes");
        let shared: Vec<_> = (0..11).map(|_| waits(None, 1).unwrap()).collect();
        assert!(waits(key(3), 1).is_none(), "all places");
        drop((of_one, large, shared));
        assert!(waits(key(1), 1).is_some());
    }

    proptest! {
        /// Jobs that wait get permits client by client, and each client's in order, whichever of them are abandoned.
        #[test]
        fn clients_take_turns(
            jobs in prop::collection::vec((0_u64..4, prop::bool::weighted(0.8)), 1..40),
        ) {
            let turns = Turns::new(LIMITS);
            let held = turns.try_take().unwrap();
            let mut waiting: Vec<_> = Vec::new();
            for (at, (client, stays)) in jobs.iter().enumerate() {
                let turns = turns.clone();
                let client = *client;
                let mut waits = Box::pin(async move { (client, at, turns.take(key(client), 1, true).await) });
                prop_assert!(waits.as_mut().now_or_never().is_none());
                waiting.push((stays, waits));
            }
            let mut left: FuturesUnordered<_> =
                waiting.into_iter().filter(|(stays, _)| **stays).map(|(_, waits)| waits).collect();
            let mut expected: Vec<VecDeque<usize>> = vec![VecDeque::new(); 4];
            for (at, (client, stays)) in jobs.iter().enumerate() {
                if *stays {
                    expected[*client as usize].push_back(at);
                }
            }
            drop(held);
            let (mut round, mut last) = (Vec::new(), None);
            while !left.is_empty() {
                // The permit that the loop held before is free again only now.
                drop(last.take());
                let (client, at, turn) = left.next().now_or_never().flatten().expect("a permit is free");
                prop_assert_eq!(expected[client as usize].pop_front(), Some(at));
                if round.contains(&client) {
                    let others = (0..4).filter(|other| !round.contains(other));
                    prop_assert!(others.into_iter().all(|other| expected[other as usize].is_empty()));
                    round.clear();
                }
                round.push(client);
                last = turn;
            }
            drop(last);
            prop_assert!(turns.try_take().is_some(), "all permits came back");
            prop_assert!(turns.0.lock().order.is_empty());
        }
    }
}
