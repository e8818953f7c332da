//! Whether there has been a connection to a node all the time.
//!
//! A node that is replaced by another need not fail for it: its connections are closed while nobody asks anything, and
//! with the next call a client connects anew without a word. So a connection that is made while no other is in use is a
//! reason to ask who is there, before anything is believed that came over it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    backoff::Backoff,
    context::{CallContext, ConnectionObserver},
};

/// Some close each connection after its answer. These are not asked each time who they are: twice at once, then after
/// this, then after twice as long each time, up to the last. A minute without makes up for it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);
const RESET_AFTER: Duration = Duration::from_secs(60);

/// One who asks, and whether it had to connect for it.
#[derive(Debug)]
struct MonitoredRequest {
    monitor: Arc<ConnectionMonitor>,
    has_connected: AtomicBool,
}

/// The connections to one node.
#[derive(Debug, Default)]
pub(in crate::upstream) struct ConnectionMonitor {
    in_use: AtomicUsize,
    /// Of these, how many were made for those who use them.
    opened: AtomicUsize,
    /// How often none was left from before.
    reconnects: AtomicU64,
    recheck: Mutex<RecheckSchedule>,
}

/// When a renewal is looked into.
#[derive(Clone, Copy, Debug)]
struct RecheckSchedule {
    pending: bool,
    last: Option<Instant>,
    pause: Duration,
    backoff: Backoff,
}

/// In use until dropped.
pub(in crate::upstream) struct InUseGuard<'a>(&'a ConnectionMonitor);

// === impl ConnectionMonitor ===

impl ConnectionMonitor {
    /// Does what may make a connection. Whoever asks a node who it is does not: by its answer it is known who that is.
    pub(in crate::upstream) async fn monitor_request<T>(
        self: &Arc<Self>,
        asking: impl Future<Output = T>,
    ) -> T {
        let request = MonitoredRequest { monitor: self.clone(), has_connected: AtomicBool::new(false) };
        let context = CallContext { connection: Some(Arc::new(request)), ..CallContext::current() };
        context.scope(asking).await
    }

    /// A connection is in use.
    pub(in crate::upstream) fn begin_request(&self) -> InUseGuard<'_> {
        self.in_use.fetch_add(1, Relaxed);
        InUseGuard(self)
    }

    /// How often none was left from before.
    pub(in crate::upstream) fn reconnects(&self) -> u64 {
        self.reconnects.load(Relaxed)
    }

    /// Is it time to ask who is there, since none was left? Whoever asks this does so.
    pub(in crate::upstream) fn take_due_recheck(&self, now: Instant) -> bool {
        self.recheck.lock().take_due(now)
    }

    /// So many connections are made for those who use one now.
    fn record_reconnect(&self, opened: usize) {
        // Whoever else is being asked is asked over a connection that is still there; this one is one more.
        if self.in_use.load(Relaxed) <= opened {
            self.recheck.lock().pending = true;
            self.reconnects.fetch_add(1, Relaxed);
        }
    }
}

// === impl MonitoredRequest ===

impl ConnectionObserver for MonitoredRequest {
    fn opening(&self) {
        let opened = &self.monitor.opened;
        let first = !self.has_connected.swap(true, Relaxed);
        let others = if first { opened.fetch_add(1, Relaxed) } else { opened.load(Relaxed) - 1 };
        self.monitor.record_reconnect(others + 1);
    }
}

impl Drop for MonitoredRequest {
    fn drop(&mut self) {
        if self.has_connected.load(Relaxed) {
            self.monitor.opened.fetch_sub(1, Relaxed);
        }
    }
}

// === impl RecheckSchedule ===

impl Default for RecheckSchedule {
    fn default() -> Self {
        Self {
            pending: false,
            last: None,
            pause: Duration::ZERO,
            backoff: Backoff::new(FIRST_PAUSE, MAX_PAUSE),
        }
    }
}

impl RecheckSchedule {
    fn take_due(&mut self, now: Instant) -> bool {
        if !self.pending || self.last.is_some_and(|last| now < last + self.pause) {
            return false;
        }
        if self.last.is_none_or(|last| now >= last + RESET_AFTER) {
            *self = Self::default();
        } else {
            self.pause = self.backoff.next_pause();
        }
        (self.pending, self.last) = (false, Some(now));
        true
    }
}

// === impl InUseGuard ===

impl Drop for InUseGuard<'_> {
    fn drop(&mut self) {
        self.0.in_use.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_beside_others_is_no_renewal() {
        let monitor = Arc::new(ConnectionMonitor::default());
        let _one = monitor.begin_request();
        let _two = monitor.begin_request();
        monitor.monitor_request(async { CallContext::report_connection() }).await;
        assert_eq!(monitor.reconnects(), 0);
        assert!(!monitor.take_due_recheck(Instant::now()));
        drop(_two);
        CallContext::report_connection();
        assert_eq!(monitor.reconnects(), 0, "nobody is being asked");
        monitor.monitor_request(async { CallContext::report_connection() }).await;
        assert_eq!(monitor.reconnects(), 1);
        assert!(monitor.take_due_recheck(Instant::now()));
        assert!(!monitor.take_due_recheck(Instant::now()), "once is enough");
    }

    #[tokio::test]
    async fn those_who_connect_at_the_same_time_have_no_connection_from_before() {
        let monitor = Arc::new(ConnectionMonitor::default());
        let [_one, _two] = [monitor.begin_request(), monitor.begin_request()];
        let connecting = || {
            monitor.monitor_request(async {
                CallContext::report_connection();
                tokio::task::yield_now().await;
            })
        };
        tokio::join!(connecting(), connecting());
        assert_eq!(monitor.reconnects(), 1, "when the second of them connected");
        // One that goes on to use what it made is none that connects.
        monitor.monitor_request(async { CallContext::report_connection() }).await;
        assert_eq!(monitor.reconnects(), 1);
        // Nor are two connections for one call two who ask.
        monitor
            .monitor_request(async {
                CallContext::report_connection();
                CallContext::report_connection();
            })
            .await;
        assert_eq!(monitor.reconnects(), 1);
    }

    #[test]
    fn whoever_closes_each_connection_is_asked_now_and_then() {
        let begun = Instant::now();
        let mut recheck = RecheckSchedule::default();
        let mut times = Vec::new();
        for second in 0..300 {
            recheck.pending = true;
            if recheck.take_due(begun + Duration::from_secs(second)) {
                times.push(second);
            }
        }
        assert_eq!(times[..7], [0, 1, 2, 4, 8, 16, 32]);
        assert_eq!(times[7..], [62, 92, 122, 152, 182, 212, 242, 272]);
        // What was put off is not forgotten.
        assert!(!recheck.take_due(begun + Duration::from_secs(301)));
        assert!(recheck.take_due(begun + Duration::from_secs(302)));
        recheck.pending = true;
        assert!(recheck.take_due(begun + Duration::from_secs(400)));
        recheck.pending = true;
        assert!(recheck.take_due(begun + Duration::from_secs(401)), "it had calmed down");
    }
}
