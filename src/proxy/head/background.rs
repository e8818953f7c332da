//! Runs one background task at a time, with bounded waits for its end.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::timeout::timeout;

/// Runs at most one task at a time.
#[derive(Debug, Default)]
pub(crate) struct SingleTask(Mutex<Option<RunningTask>>);

/// A running task, started by this call of [`SingleTask::begin`] or by another.
#[derive(Clone, Debug)]
pub(crate) struct RunningTask {
    begun: Instant,
    end: Arc<TaskEnd>,
    /// Whether this call started the task.
    pub(crate) is_ours: bool,
}

/// The end of a task. Wakes the callers that wait for it in the order in which they came; a `watch` channel would wake them
/// in random order.
#[derive(Debug, Default)]
struct TaskEnd {
    has_come: AtomicBool,
    waiters: Notify,
}

/// Reports the end of a task when dropped, so even if the task panics.
struct EndOnDrop(Arc<TaskEnd>);

// === impl EndOnDrop ===

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.has_come.store(true, Release);
        self.0.waiters.notify_waiters();
    }
}

// === impl SingleTask ===

impl SingleTask {
    /// Starts `work` in its own task, unless a task is running. Returns the running task.
    pub(crate) fn begin<F>(&self, work: impl FnOnce() -> F) -> RunningTask
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut under_way = self.0.lock();
        if let Some(theirs) = under_way.as_ref().filter(|it| !it.has_ended()) {
            return RunningTask { is_ours: false, ..theirs.clone() };
        }
        let end = Arc::new(TaskEnd::default());
        let ends = EndOnDrop(end.clone());
        let work = work();
        tokio::spawn(async move {
            let _ends = ends;
            work.await;
        });
        under_way.insert(RunningTask { begun: Instant::now(), end, is_ours: true }).clone()
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.0.lock().as_ref().is_some_and(|it| !it.has_ended())
    }
}

// === impl RunningTask ===

impl RunningTask {
    fn has_ended(&self) -> bool {
        self.end.has_come.load(Acquire)
    }

    /// Waits until the task ends, but at most until `patience` after its start. If the task hangs, later callers
    /// therefore do not wait as long as the first caller.
    pub(crate) async fn wait(self, patience: Duration) {
        let left = patience.saturating_sub(self.begun.elapsed());
        // Before the check, so that an end between the check and the wait is not lost.
        let ended = self.end.waiters.notified();
        if !self.has_ended() {
            let _ = timeout(left, ended).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::{sync::Semaphore, time};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn hanging_task_delays_waiters_once() {
        let single = SingleTask::default();
        let begun = Instant::now();
        let first = single.begin(std::future::pending);
        assert!(first.is_ours && single.is_under_way());
        time::sleep(PATIENCE / 2).await;
        let second = single.begin(|| async { unreachable!("a task is running") });
        assert!(!second.is_ours);
        second.wait(PATIENCE).await;
        first.wait(PATIENCE).await;
        single.begin(|| async { unreachable!("a task is running") }).wait(PATIENCE).await;
        assert_eq!(begun.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn next_task_starts_after_a_panic() {
        let (single, done) = (SingleTask::default(), Arc::new(Semaphore::new(0)));
        single.begin(|| async { panic!("on purpose") }).wait(PATIENCE).await;
        let does = done.clone();
        let next = single.begin(|| async move { does.add_permits(1) });
        assert!(next.is_ours);
        next.wait(PATIENCE).await;
        assert_eq!(done.available_permits(), 1);
        assert!(!single.is_under_way());
    }
}
