//! Which endpoint the view of the chain follows.
//!
//! Two nodes need not be on one branch, nor equally far. So the view follows one of them, and whatever depends on
//! the branch is asked of that one. It is waited for while it is at its rate or has asked for a pause, as long as a
//! call waits at all. It is left for another when it fails, when it shows a head behind the one it showed before, when
//! it is taken away, and when it wants to be left alone for longer than a call waits. What another is asked for besides,
//! since it may have it or say it better, does not make it the one that is followed.
//!
//! Once the first in order does well again it is followed again: whoever named an order meant it, and a spare may be
//! billed. So that two that fail by turns do not have the view swing between them, that is looked into at most
//! once in [`LOOK_BACK`], beside a refresh of the head and without anybody waiting for it; and the first is followed
//! only if the head that it shows is not behind the other's.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::endpoint::EndpointId;

/// Between a change, or a look at those that come first, and the next look. Long beside what a node needs to come back
/// and be gone again, short beside what a spare may cost.
const LOOK_BACK: Duration = Duration::from_secs(60);

/// The one that is followed, shared by all calls.
#[derive(Debug, Default)]
pub(super) struct Followed(Mutex<State>);

/// Held while one is chosen, so that two calls do not choose two.
#[derive(Debug, Default)]
pub(super) struct State {
    endpoint: Option<EndpointId>,
    /// When it changed, or those that come before it were last looked at.
    settled: Option<Instant>,
}

// === impl Followed ===

impl Followed {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    /// The one that is followed.
    pub(super) fn endpoint(&self) -> Option<EndpointId> {
        self.endpoint
    }

    /// From here on this one is; returns the one before, if it was another.
    pub(super) fn follow(&mut self, endpoint: EndpointId, now: Instant) -> Option<EndpointId> {
        let before = self.endpoint.replace(endpoint).filter(|before| *before != endpoint);
        self.settled = Some(now);
        before
    }

    /// Is it time to look at those that come before it? Whoever asks this looks.
    pub(super) fn looks_back(&mut self, now: Instant) -> bool {
        let is_due = self.settled.is_some_and(|settled| now >= settled + LOOK_BACK);
        if is_due {
            self.settled = Some(now);
        }
        is_due
    }
}
