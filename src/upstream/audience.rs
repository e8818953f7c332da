//! Tracks whether any client still waits for a fetch.
//!
//! The audience of a fetch is the clients that wait for it. A fetch runs in a task of its own, so that a client that
//! disconnects does not cancel it for other clients. Once no client waits, a call that was already sent may finish, but
//! Holdfast sends no further call for the fetch: no retry, no call to another endpoint, no follow-up call. Each call
//! carries its audience, so that the pool can check it before each attempt.

use std::{fmt, sync::Arc};

use tokio::{task::futures::TaskLocalFuture, task_local};

/// The clients that wait for a fetch. Clones share the same audience.
#[derive(Clone)]
pub struct Audience(Arc<dyn Fn() -> bool + Send + Sync>);

task_local! {
    /// The audience of the running future. It is task-local rather than an argument, because a follow-up call may be
    /// many function calls away from the start of the fetch.
    static CURRENT: Audience;
}

// === impl Audience ===

impl Audience {
    /// Creates an audience; `is_there` returns whether a client still waits.
    pub fn new(is_there: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_there))
    }

    /// Returns the audience of the running future; `None` outside [`attend`](Self::attend), for example in a future
    /// that is dropped when its client disconnects.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// Returns whether a client waits for the running future; `true` if the future has no audience.
    pub fn is_there_now() -> bool {
        Self::current().is_none_or(|audience| audience.is_there())
    }

    /// Runs `work` with this audience as its [`current`](Self::current) one.
    pub fn attend<F: Future>(self, work: F) -> TaskLocalFuture<Self, F> {
        CURRENT.scope(self, work)
    }

    /// Returns whether a client still waits.
    pub fn is_there(&self) -> bool {
        (self.0)()
    }

    /// Returns whether both are the audience of the same fetch.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Audience")
    }
}
