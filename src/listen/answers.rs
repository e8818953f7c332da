//! The answers that are on their way over a connection, where there can be several at a time.
//!
//! A peer can take one of them and leave the others: what it takes of each is counted apart.

use std::{collections::HashMap, sync::Arc};

use bytes::Buf;
use parking_lot::{Mutex, MutexGuard};

use super::activity::Activity;

/// What has been taken of each answer that is not taken whole.
#[derive(Debug, Default)]
pub(super) struct Answers(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    begun: u64,
    on_their_way: HashMap<u64, Progress>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    taken: u64,
    /// What is ready to be taken: parts that were handed over, and the one to come, unless its maker takes its time.
    ready: usize,
}

/// What had been taken at a moment of each that was ready to be.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken(HashMap<u64, u64>);

/// One answer, until all of it has been taken.
#[derive(Debug)]
pub(super) struct Untaken {
    activity: Arc<Activity>,
    id: u64,
}

/// A part of an answer that notes what is taken of it.
#[derive(Debug)]
pub(super) struct WatchedData<D> {
    data: D,
    /// `None` where there is one at a time, and the connection tells it all.
    of: Option<Arc<Untaken>>,
}

// === impl Answers ===

impl Answers {
    /// Is there one that the peer could take more of?
    pub(super) fn is_any_ready(&self) -> bool {
        self.lock().on_their_way.values().any(|progress| progress.ready > 0)
    }

    /// What has been taken by now of each that is ready to be.
    pub(super) fn taken(&self) -> Taken {
        let answers = self.lock();
        let ready = answers.on_their_way.iter().filter(|(_, progress)| progress.ready > 0);
        Taken(ready.map(|(id, progress)| (*id, progress.taken)).collect())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }
}

// === impl Taken ===

impl Taken {
    /// Of those that were waiting before, is less than its part of so many bytes taken since of at least a half? Several
    /// share what a line can carry, and not evenly; and behind one connection there may be many people, of whom one
    /// leaves an answer lying.
    pub(super) fn is_half_left(&self, before: &Self, enough: u128) -> bool {
        const UNEVEN: u128 = 4;
        let waiting = || self.0.iter().filter_map(|(id, now)| Some(now - before.0.get(id)?));
        let count = waiting().count();
        let part = enough / (UNEVEN * (count as u128).max(1));
        let left = waiting().filter(|taken| u128::from(*taken) < part.max(1)).count();
        left > 0 && 2 * left >= count
    }
}

// === impl Untaken ===

impl Untaken {
    pub(super) fn new(activity: Arc<Activity>) -> Self {
        let id = {
            let mut answers = activity.answers.lock();
            answers.begun += 1;
            let id = answers.begun;
            answers.on_their_way.insert(id, Progress::default());
            id
        };
        Self { activity, id }
    }

    /// More of it is ready to be taken, or less.
    pub(super) fn set_ready(&self, is_ready: bool) {
        self.change(|progress| {
            progress.ready = if is_ready { progress.ready + 1 } else { progress.ready.saturating_sub(1) };
        });
    }

    fn take(&self, bytes: usize) {
        self.change(|progress| progress.taken += bytes as u64);
        self.activity.take(bytes);
    }

    fn change(&self, change: impl FnOnce(&mut Progress)) {
        if let Some(progress) = self.activity.answers.lock().on_their_way.get_mut(&self.id) {
            change(progress);
        }
    }
}

impl Drop for Untaken {
    fn drop(&mut self) {
        self.activity.answers.lock().on_their_way.remove(&self.id);
    }
}

// === impl WatchedData ===

impl<D> WatchedData<D> {
    pub(super) fn new(data: D, of: Option<Arc<Untaken>>) -> Self {
        if let Some(of) = &of {
            of.set_ready(true);
        }
        Self { data, of }
    }
}

impl<D> Drop for WatchedData<D> {
    fn drop(&mut self) {
        if let Some(of) = &self.of {
            of.set_ready(false);
        }
    }
}

impl<D: Buf> Buf for WatchedData<D> {
    fn remaining(&self) -> usize {
        self.data.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.data.chunk()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [std::io::IoSlice<'a>]) -> usize {
        self.data.chunks_vectored(slices)
    }

    fn advance(&mut self, count: usize) {
        self.data.advance(count);
        if let Some(of) = &self.of {
            of.take(count);
        }
    }
}
