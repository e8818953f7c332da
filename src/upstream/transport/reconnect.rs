//! Detects that Holdfast has reconnected to a node while no older connection was in use.
//!
//! A node can be replaced without any failed call: its connections close while idle, and the next call silently opens
//! a new one. So if a connection is opened while no other is in use, Holdfast checks the identity before it accepts
//! any answer that came over this connection.

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

/// Some nodes close each connection after one answer. To avoid an identity check each time, the first two checks
/// run at once, and the pauses before further ones double from `FIRST_PAUSE` to `MAX_PAUSE`. A minute without a
/// check resets the pauses.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);
const RESET_AFTER: Duration = Duration::from_secs(60);

/// A request, and whether it opened a connection.
#[derive(Debug)]
struct MonitoredRequest {
    monitor: Arc<ConnectionMonitor>,
    has_connected: AtomicBool,
}

/// The connections to one node.
#[derive(Debug, Default)]
pub(in crate::upstream) struct ConnectionMonitor {
    in_use: AtomicUsize,
    /// Number of requests in progress that opened a connection.
    opened: AtomicUsize,
    /// Number of connections opened while no older one was in use.
    reconnects: AtomicU64,
    recheck: Mutex<RecheckSchedule>,
}

/// Schedule of the identity checks after reconnects.
#[derive(Clone, Copy, Debug)]
struct RecheckSchedule {
    pending: bool,
    last: Option<Instant>,
    pause: Duration,
    backoff: Backoff,
}

/// Counts a request as in progress until dropped.
pub(in crate::upstream) struct InUseGuard<'a>(&'a ConnectionMonitor);

// === impl ConnectionMonitor ===

impl ConnectionMonitor {
    /// Runs a request that may open a connection. Identity checks do not run in here, because their answers themselves
    /// show which chain the node serves.
    pub(in crate::upstream) async fn monitor_request<T>(
        self: &Arc<Self>,
        asking: impl Future<Output = T>,
    ) -> T {
        let request = MonitoredRequest { monitor: self.clone(), has_connected: AtomicBool::new(false) };
        let context = CallContext { connection: Some(Arc::new(request)), ..CallContext::current() };
        context.scope(asking).await
    }

    /// Counts a request as in progress until the guard is dropped.
    pub(in crate::upstream) fn begin_request(&self) -> InUseGuard<'_> {
        self.in_use.fetch_add(1, Relaxed);
        InUseGuard(self)
    }

    /// Returns the number of connections opened while no older one was in use.
    pub(in crate::upstream) fn reconnects(&self) -> u64 {
        self.reconnects.load(Relaxed)
    }

    /// Returns whether an identity check is due after a reconnect. If so, the caller must check the identity.
    pub(in crate::upstream) fn take_due_recheck(&self, now: Instant) -> bool {
        self.recheck.lock().take_due(now)
    }

    /// Records that a request opens a connection. `opened` requests in progress have opened one, including this
    /// request.
    fn record_reconnect(&self, opened: usize) {
        // If more requests are in progress, the others use older connections, and this one is an additional connection.
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
    async fn additional_connection_is_no_reconnect() {
        let monitor = Arc::new(ConnectionMonitor::default());
        let _one = monitor.begin_request();
        let _two = monitor.begin_request();
        monitor.monitor_request(async { CallContext::report_connection() }).await;
        assert_eq!(monitor.reconnects(), 0);
        assert!(!monitor.take_due_recheck(Instant::now()));
        drop(_two);
        CallContext::report_connection();
        assert_eq!(monitor.reconnects(), 0, "no request is monitored");
        monitor.monitor_request(async { CallContext::report_connection() }).await;
        assert_eq!(monitor.reconnects(), 1);
        assert!(monitor.take_due_recheck(Instant::now()));
        assert!(!monitor.take_due_recheck(Instant::now()), "one check per reconnect");
    }

    #[tokio::test]
    async fn simultaneous_connections_count_as_one_reconnect() {
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
        // A finished request no longer counts as one that opened a connection.
        monitor.monitor_request(async { CallContext::report_connection() }).await;
        assert_eq!(monitor.reconnects(), 1);
        // Two connections for one call count as one request.
        monitor
            .monitor_request(async {
                CallContext::report_connection();
                CallContext::report_connection();
            })
            .await;
        assert_eq!(monitor.reconnects(), 1);
    }

    #[test]
    fn rechecks_back_off_if_every_connection_is_closed() {
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
        // A postponed check is not lost.
        assert!(!recheck.take_due(begun + Duration::from_secs(301)));
        assert!(recheck.take_due(begun + Duration::from_secs(302)));
        recheck.pending = true;
        assert!(recheck.take_due(begun + Duration::from_secs(400)));
        recheck.pending = true;
        assert!(recheck.take_due(begun + Duration::from_secs(401)), "the pauses were reset");
    }
}
