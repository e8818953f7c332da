//! Asks connections to make room for others.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// Those who hold what a request was turned away for go one by one: with one of them there may be room enough.
const ONE_EACH: Duration = Duration::from_millis(100);

/// So long it counts that a request was turned away: it, or the next one, comes back.
const REMEMBERED: Duration = Duration::from_secs(1);

/// The wish of a newcomer for the place of a connection that is idle, or as good as idle; and if there is none, of one
/// whose peer hardly takes what it asked for.
///
/// It is a state and not a message: once fulfilled or withdrawn it is gone, whoever still hears of
/// it. A message that nobody took would strike the next connection to be idle, the newcomer itself.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    wanted: AtomicBool,
    heard: [Notify; 2],
    relief: Mutex<Relief>,
    relief_wanted: Notify,
}

/// The wish of requests that are turned away, for what is held by readers that hardly take what they asked for. An idle
/// connection holds nothing of that.
#[derive(Debug, Default)]
struct Relief {
    /// When one was last turned away, if nobody has gone for it.
    wanted: Option<Instant>,
    /// When somebody last went.
    given: Option<Instant>,
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

    /// A request was turned away: for the next one, somebody should go who holds what it needed.
    pub(super) fn turned_away(&self) {
        let now = Instant::now();
        let mut relief = self.relief();
        relief.wanted = Some(now);
        if relief.given.is_none_or(|given| now >= given + ONE_EACH) {
            drop(relief);
            self.relief_wanted.notify_waiters();
        }
    }

    /// Resolves when a request is turned away.
    pub(super) async fn relief_wanted(&self) {
        self.relief_wanted.notified().await;
    }

    /// Has one been turned away just now, and nobody gone for it? Who gets `true` has to go.
    pub(super) fn relieve(&self) -> bool {
        let now = Instant::now();
        let mut relief = self.relief();
        let is_due = relief.wanted.is_some_and(|wanted| now < wanted + REMEMBERED)
            && relief.given.is_none_or(|given| now >= given + ONE_EACH);
        if is_due {
            *relief = Relief { wanted: None, given: Some(now) };
        }
        is_due
    }

    fn relief(&self) -> MutexGuard<'_, Relief> {
        self.relief.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self, turn: Turn) -> &Notify {
        &self.heard[turn as usize]
    }
}
