//! Asks connections to let go of what they hold, for requests that are turned away.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, time::Instant};

/// Those who hold what a request was turned away for go one by one: with one of them there may be room enough.
const ONE_EACH: Duration = Duration::from_millis(100);

/// So long it counts that a request was turned away: it, or the next one, comes back.
const REMEMBERED: Duration = Duration::from_secs(1);

/// The wish of requests that are turned away, for what is held by readers that hardly take what they asked for. An idle
/// connection holds nothing of that.
#[derive(Debug, Default)]
pub(super) struct Relief {
    state: Mutex<State>,
    wanted: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// When one was last turned away, if nobody has gone for it.
    wanted: Option<Instant>,
    /// When somebody last went.
    given: Option<Instant>,
}

// === impl Relief ===

impl Relief {
    /// A request was turned away: for the next one, somebody should go who holds what it needed.
    pub(super) fn want(&self) {
        let now = Instant::now();
        let mut state = self.state();
        state.wanted = Some(now);
        if state.given.is_none_or(|given| now >= given + ONE_EACH) {
            drop(state);
            self.wanted.notify_waiters();
        }
    }

    /// Resolves when a request is turned away.
    pub(super) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Has one been turned away just now, and nobody gone for it? Who gets `true` has to go.
    pub(super) fn accept(&self) -> bool {
        let now = Instant::now();
        let mut state = self.state();
        let is_due = state.wanted.is_some_and(|wanted| now < wanted + REMEMBERED)
            && state.given.is_none_or(|given| now >= given + ONE_EACH);
        if is_due {
            *state = State { wanted: None, given: Some(now) };
        }
        is_due
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
