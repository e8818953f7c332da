//! Asks connections to make room for others.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::sync::Notify;

use super::relief::Relief;

/// The wish of a newcomer for the place of a connection that is idle, or as good as idle; and if there is none, of one
/// whose peer hardly takes what it asked for.
///
/// It is a state and not a message: once fulfilled or withdrawn it is gone, whoever still hears of
/// it. A message that nobody took would strike the next connection to be idle, the newcomer itself.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    wanted: AtomicBool,
    heard: [Notify; 2],
    /// For what a connection holds, rather than for its place.
    pub(super) relief: Relief,
}

/// Who goes before whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing is lost with it.
    First,
    /// An answer is lost with it.
    Last,
}

// === impl Pressure ===

impl Pressure {
    /// Wants a connection to go that nobody needs.
    pub(super) fn ask(&self) {
        self.wanted.store(true, Relaxed);
        self.heard(Turn::First).notify_one();
    }

    /// Still wants one, and there was none that nobody needs.
    pub(super) fn insist(&self) {
        self.heard(Turn::Last).notify_one();
    }

    /// A place was found, by whatever means.
    pub(super) fn withdraw(&self) {
        self.wanted.store(false, Relaxed);
    }

    /// Resolves when somebody may want a place, for one of those who wait here for their turn.
    pub(super) async fn asked(&self, turn: Turn) {
        self.heard(turn).notified().await;
    }

    /// Takes the wish upon itself: who gets `true` has to go.
    pub(super) fn accept(&self) -> bool {
        self.wanted.swap(false, Relaxed)
    }

    /// Lets another hear of the wish.
    pub(super) fn decline(&self, turn: Turn) {
        if self.wanted.load(Relaxed) {
            self.heard(turn).notify_one();
        }
    }

    fn heard(&self, turn: Turn) -> &Notify {
        &self.heard[turn as usize]
    }
}
