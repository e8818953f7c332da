//! Asks connections that nobody needs to make room.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::sync::Notify;

/// The wish of a newcomer for the place of a connection that is idle, or as good as idle.
///
/// It is a state and not a message: once fulfilled or withdrawn it is gone, whoever still hears of
/// it. A message that nobody took would strike the next connection to be idle, the newcomer itself.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    wanted: AtomicBool,
    heard: Notify,
}

// === impl Pressure ===

impl Pressure {
    /// Wants one such connection to go.
    pub(super) fn ask(&self) {
        self.wanted.store(true, Relaxed);
        self.heard.notify_one();
    }

    /// A place was found, by whatever means.
    pub(super) fn withdraw(&self) {
        self.wanted.store(false, Relaxed);
    }

    /// Resolves when somebody may want a place, for one of those who wait here.
    pub(super) async fn asked(&self) {
        self.heard.notified().await;
    }

    /// Takes the wish upon itself: who gets `true` has to go.
    pub(super) fn accept(&self) -> bool {
        self.wanted.swap(false, Relaxed)
    }

    /// Lets another hear of the wish.
    pub(super) fn decline(&self) {
        if self.wanted.load(Relaxed) {
            self.heard.notify_one();
        }
    }
}
