//! Whether there has been a connection to a node all the time.
//!
//! A node that is replaced by another need not fail for it: its connections are closed while nobody asks anything, and
//! with the next call a client connects anew without a word. So a connection that is made while no other is in use is a
//! reason to ask who is there, before anything is believed that came over it.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{task_local, time::Instant};

use crate::backoff::Backoff;

/// Some close each connection after its answer. These are not asked each time who they are: twice at once, then after
/// this, then after twice as long each time, up to the last. A minute without makes up for it.
const FIRST: Duration = Duration::from_secs(1);
const LAST: Duration = Duration::from_secs(30);
const CALM: Duration = Duration::from_secs(60);

task_local! {
    /// Whom the caller is about to ask. Not an argument: in between is a client of HTTP.
    static ASKED: Asking;
}

/// One who asks, and whether it had to connect for it.
#[derive(Debug)]
struct Asking {
    contact: Arc<Contact>,
    connects: Cell<bool>,
}

/// The connections to one node.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Contact {
    in_use: AtomicUsize,
    /// Of these, how many were made for those who use them.
    made: AtomicUsize,
    /// How often none was left from before.
    renewals: AtomicU64,
    doubt: Mutex<Doubt>,
}

/// When a renewal is looked into.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    pending: bool,
    last: Option<Instant>,
    pause: Duration,
    backoff: Backoff,
}

/// In use until dropped.
pub(in crate::upstream) struct InUse<'a>(&'a Contact);

/// The caller makes a connection, since none is left for it to use.
pub(in crate::upstream) fn connects() {
    let _ = ASKED.try_with(Asking::connect);
}

// === impl Contact ===

impl Contact {
    /// Does what may make a connection. Whoever asks a node who it is does not: by its answer it is known who that is.
    pub(in crate::upstream) async fn noticing<T>(self: &Arc<Self>, asking: impl Future<Output = T>) -> T {
        ASKED.scope(Asking { contact: self.clone(), connects: Cell::new(false) }, asking).await
    }

    /// A connection is in use.
    pub(in crate::upstream) fn begin(&self) -> InUse<'_> {
        self.in_use.fetch_add(1, Relaxed);
        InUse(self)
    }

    /// How often none was left from before.
    pub(in crate::upstream) fn renewals(&self) -> u64 {
        self.renewals.load(Relaxed)
    }

    /// Is it time to ask who is there, since none was left? Whoever asks this does so.
    pub(in crate::upstream) fn is_doubtful(&self, now: Instant) -> bool {
        self.doubt.lock().is_due(now)
    }

    /// So many connections are made for those who use one now.
    fn renew(&self, made: usize) {
        // Whoever else is being asked is asked over a connection that is still there; this one is one more.
        if self.in_use.load(Relaxed) <= made {
            self.doubt.lock().pending = true;
            self.renewals.fetch_add(1, Relaxed);
        }
    }
}

// === impl Asking ===

impl Asking {
    fn connect(&self) {
        let made = &self.contact.made;
        let first = !self.connects.replace(true);
        let others = if first { made.fetch_add(1, Relaxed) } else { made.load(Relaxed) - 1 };
        self.contact.renew(others + 1);
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.connects.get() {
            self.contact.made.fetch_sub(1, Relaxed);
        }
    }
}

// === impl Doubt ===

impl Default for Doubt {
    fn default() -> Self {
        Self { pending: false, last: None, pause: Duration::ZERO, backoff: Backoff::new(FIRST, LAST) }
    }
}

impl Doubt {
    fn is_due(&mut self, now: Instant) -> bool {
        if !self.pending || self.last.is_some_and(|last| now < last + self.pause) {
            return false;
        }
        if self.last.is_none_or(|last| now >= last + CALM) {
            *self = Self::default();
        } else {
            self.pause = self.backoff.next_pause();
        }
        (self.pending, self.last) = (false, Some(now));
        true
    }
}

// === impl InUse ===

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.in_use.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_beside_others_is_no_renewal() {
        let contact = Arc::new(Contact::default());
        let _one = contact.begin();
        let _two = contact.begin();
        contact.noticing(async { connects() }).await;
        assert_eq!(contact.renewals(), 0);
        assert!(!contact.is_doubtful(Instant::now()));
        drop(_two);
        connects();
        assert_eq!(contact.renewals(), 0, "nobody is being asked");
        contact.noticing(async { connects() }).await;
        assert_eq!(contact.renewals(), 1);
        assert!(contact.is_doubtful(Instant::now()));
        assert!(!contact.is_doubtful(Instant::now()), "once is enough");
    }

    #[tokio::test]
    async fn those_who_connect_at_the_same_time_have_no_connection_from_before() {
        let contact = Arc::new(Contact::default());
        let [_one, _two] = [contact.begin(), contact.begin()];
        let connecting = || {
            contact.noticing(async {
                connects();
                tokio::task::yield_now().await;
            })
        };
        tokio::join!(connecting(), connecting());
        assert_eq!(contact.renewals(), 1, "when the second of them connected");
        // One that goes on to use what it made is none that connects.
        contact.noticing(async { connects() }).await;
        assert_eq!(contact.renewals(), 1);
        // Nor are two connections for one call two who ask.
        contact
            .noticing(async {
                connects();
                connects();
            })
            .await;
        assert_eq!(contact.renewals(), 1);
    }

    #[test]
    fn whoever_closes_each_connection_is_asked_now_and_then() {
        let begun = Instant::now();
        let mut doubt = Doubt::default();
        let mut times = Vec::new();
        for second in 0..300 {
            doubt.pending = true;
            if doubt.is_due(begun + Duration::from_secs(second)) {
                times.push(second);
            }
        }
        assert_eq!(times[..7], [0, 1, 2, 4, 8, 16, 32]);
        assert_eq!(times[7..], [62, 92, 122, 152, 182, 212, 242, 272]);
        // What was put off is not forgotten.
        assert!(!doubt.is_due(begun + Duration::from_secs(301)));
        assert!(doubt.is_due(begun + Duration::from_secs(302)));
        doubt.pending = true;
        assert!(doubt.is_due(begun + Duration::from_secs(400)));
        doubt.pending = true;
        assert!(doubt.is_due(begun + Duration::from_secs(401)), "it had calmed down");
    }
}
