//! Lets a call find out whether it waits for a proof thread, directly or through other tasks.
//!
//! A call that reaches its deadline fails with a different error if the answer has arrived and only the proof is
//! missing. The fetch that waits for the proof runs in its own task, so the call cannot observe that wait directly.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::{task::futures::TaskLocalFuture, task_local};

/// Records whether a piece of work, such as a call or a fetch, waits for a proof thread. Clones share the record.
#[derive(Clone, Debug, Default)]
pub struct ProofWait(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Number of proofs of this work that wait for a thread.
    own: AtomicUsize,
    /// Other work that this work waits for.
    followed: Mutex<SmallVec<[ProofWait; 1]>>,
}

task_local! {
    /// The record of the current task. It is not an argument, because many functions lie between the code that sets the
    /// deadline and the code that starts a proof.
    static CURRENT: ProofWait;
}

/// Records a waiting proof until this guard is dropped.
pub(super) struct Waiting(Option<ProofWait>);

/// Records that work waits for other work, until this guard is dropped.
#[derive(Debug)]
pub struct Following {
    follower: ProofWait,
    followed: ProofWait,
}

// === impl ProofWait ===

impl ProofWait {
    /// Returns the `ProofWait` that [watches](Self::watch) the current task.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// Watches `work`: records the proofs that `work` waits for.
    pub fn watch<F: Future>(&self, work: F) -> TaskLocalFuture<Self, F> {
        CURRENT.scope(self.clone(), work)
    }

    /// Returns whether the work, or other work that it waits for, waits for a proof thread.
    pub fn is_waiting(&self) -> bool {
        // The list is cloned, so that no lock is held while the recursion takes another lock.
        let followed = || self.0.followed.lock().clone();
        self.0.own.load(Relaxed) > 0 || followed().iter().any(Self::is_waiting)
    }

    /// Records that this work waits for other work, such as a shared fetch.
    pub fn follow(&self, other: &Self) -> Following {
        self.0.followed.lock().push(other.clone());
        Following { follower: self.clone(), followed: other.clone() }
    }
}

// === impl Waiting ===

impl Waiting {
    /// Records that a proof of the current work waits, if the work is watched.
    pub(super) fn begin() -> Self {
        let current = ProofWait::current();
        if let Some(current) = &current {
            current.0.own.fetch_add(1, Relaxed);
        }
        Self(current)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(wait) = &self.0 {
            wait.0.own.fetch_sub(1, Relaxed);
        }
    }
}

// === impl Following ===

impl Drop for Following {
    fn drop(&mut self) {
        let mut followed = self.follower.0.followed.lock();
        if let Some(at) = followed.iter().position(|other| Arc::ptr_eq(&other.0, &self.followed.0)) {
            followed.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wait_is_visible_to_all_followers() {
        let [call, fetch, nested] = [(); 3].map(|()| ProofWait::default());
        let follows = call.follow(&fetch);
        let _follows = fetch.follow(&nested);
        assert!(!call.is_waiting());
        let waiting = nested.watch(async { Waiting::begin() }).await;
        assert!(call.is_waiting() && fetch.is_waiting() && nested.is_waiting());
        drop(follows);
        assert!(!call.is_waiting() && fetch.is_waiting());
        drop(waiting);
        assert!(!fetch.is_waiting());
    }

    #[tokio::test]
    async fn unwatched_work_may_wait() {
        drop(Waiting::begin());
        assert!(ProofWait::current().is_none());
    }

    #[tokio::test]
    async fn end_of_one_wait_leaves_the_others() {
        let [call, waiting, idle] = [(); 3].map(|()| ProofWait::default());
        let _follows = call.follow(&waiting);
        let second = call.follow(&idle);
        let _waiting = waiting.watch(async { Waiting::begin() }).await;
        drop(second);
        assert!(call.is_waiting());
    }
}
