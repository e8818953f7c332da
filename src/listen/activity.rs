//! Tracks the phase that a connection is in, and how long the phase has lasted.
//!
//! The connection only updates counters and flags, and never reads a clock. A watchdog samples them several times per
//! time-out. So all time-outs together cost a request only a few relaxed atomic operations; in exchange, the watchdog
//! may notice a time-out late, by at most half of its length.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::{
    sync::Notify,
    time::{self, Instant},
};

use super::Config;

/// Why a connection was closed before its peer closed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Closed {
    /// The peer sent nothing after it connected.
    FirstByte,
    /// The peer did not finish a TLS handshake or the head of a request in time.
    Head,
    /// The peer sent no further request.
    Idle,
    /// The peer did not read an answer that was ready.
    Stalled,
    /// Another connection needed its slot or its file descriptor.
    Displaced,
}

/// A connection's counters and flags.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Number of requests so far.
    requests: AtomicU64,
    /// Number of requests whose answer has not been passed to hyper in full.
    in_flight: AtomicUsize,
    /// Whether bytes have arrived since the last request ended. Over HTTP/1.1, they are the start of the next
    /// request's head.
    pub(super) has_read: AtomicBool,
    /// Whether the socket accepts no more bytes until the peer reads.
    write_blocked: AtomicBool,
    /// Number of answers whose next part is ready to be sent to the peer.
    ready: AtomicUsize,
    /// Number of times that the peer has shown that it reads: a blocked write succeeded, or hyper asked for the next
    /// part of an answer.
    taken: AtomicU64,
    /// Whether the connection uses HTTP/2, where bytes between requests may be pings or window updates instead of a
    /// head.
    multiplexed: AtomicBool,
    /// Whether the last request was answered before all of its body was read.
    unread: AtomicBool,
    /// Whether the connection closes after the current answer, because too much of the request body is unread.
    ends: AtomicBool,
    /// Whether all answers are sent and the connection only lingers until the peer closes its side.
    closing: AtomicBool,
    /// Number of samples of the watchdog since the last request in which nothing had changed.
    pub(super) idle_ticks: AtomicU64,
    /// Whether the peer is a trusted proxy.
    is_proxy: bool,
    /// The first bytes of the hash of the last valid key that the peer has sent; 0 if none.
    pub(super) key: AtomicU64,
    pub(super) is_displaced: AtomicBool,
    /// Tells the connection to answer open requests, including those that were on their way, and accept no others.
    pub(super) finish: Notify,
    /// Tells the connection to close at once.
    pub(super) cut_off: Notify,
}

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing has arrived.
    FirstByte,
    /// A part of a request head has arrived.
    Head,
    Idle,
    Busy,
    /// A part of an answer is ready, and the peer has not read it.
    Stalled,
    Closing,
}

/// Counts a request as in flight from its head until its answer has been passed to hyper in full.
pub(super) struct RequestGuard {
    activity: Arc<Activity>,
    /// Whether the next part of the answer is ready to be sent to the peer.
    is_ready: bool,
}

pin_project! {
    /// The body of an answer. Records whether its next part is ready to be sent to the peer.
    pub(super) struct WatchedBody<B> {
        #[pin]
        body: B,
        in_flight: RequestGuard,
    }
}

// === impl Closed ===

impl Closed {
    pub(super) fn as_str(self) -> &'static str {
        self.into()
    }
}

// === impl Activity ===

impl Activity {
    pub(super) fn new(is_proxy: bool) -> Self {
        Self { is_proxy, ..Self::default() }
    }

    pub(super) fn begin_request(self: &Arc<Self>, version: http::Version) -> RequestGuard {
        self.requests.fetch_add(1, Relaxed);
        self.idle_ticks.store(0, Relaxed);
        self.unread.store(false, Relaxed);
        self.ends.store(false, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
        if version == http::Version::HTTP_2 {
            self.multiplexed.store(true, Relaxed);
        }
        RequestGuard { activity: self.clone(), is_ready: false }
    }

    /// Returns whether no request has arrived yet.
    pub(super) fn is_new(&self) -> bool {
        self.requests() == 0
    }

    /// Returns the number of requests so far.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Returns whether a request is being answered.
    pub(super) fn is_answering(&self) -> bool {
        self.in_flight.load(Relaxed) > 0
    }

    /// Returns the last valid key that the peer has sent; 0 if none.
    pub(super) fn key(&self) -> u64 {
        self.key.load(Relaxed)
    }

    /// Closes the connection in favour of another. If `may_finish`, an HTTP/1.1 connection without an open request
    /// closes gracefully, so that a request that arrives at the same moment is still answered. All others are cut off;
    /// a graceful close over HTTP/2 would depend on the peer.
    pub(super) fn displace(&self, may_finish: bool) {
        self.is_displaced.store(true, Relaxed);
        match self.phase() {
            Phase::Idle | Phase::Head if may_finish && !self.is_new() && !self.multiplexed.load(Relaxed) => {
                self.finish.notify_one();
            }
            _ => self.cut_off.notify_one(),
        }
    }

    /// Records that the service dropped a request's body before its end. Over HTTP/1.1, the connection then closes
    /// after the answer, unless the unread rest is short. Over HTTP/2, it stays open, because its other streams are
    /// not affected.
    pub(super) fn body_left_unread(&self, is_short: bool) {
        let concerns = !self.multiplexed.load(Relaxed);
        self.unread.store(concerns, Relaxed);
        self.ends.store(concerns && !is_short, Relaxed);
    }

    /// Runs the watchdog. Resolves when the connection must be closed, and returns the reason.
    pub(super) async fn expired(&self, config: &Config) -> Closed {
        let limits =
            [config.first_byte_timeout, config.head_timeout, config.idle_timeout, config.stall_timeout];
        let tick = limits.into_iter().min().unwrap_or_default() / 4;
        let (mut sample, mut since) = (self.sample(), Instant::now());
        loop {
            time::sleep(tick).await;
            let now = self.sample();
            if now == sample {
                self.idle_ticks.fetch_add(1, Relaxed);
            } else {
                (sample, since) = (now, Instant::now());
            }
            if let Some((limit, reason)) = sample.0.limit(config)
                && since.elapsed() >= limit
            {
                return reason;
            }
        }
    }

    /// Returns the phase, and a counter that changes with each request, or in a stall whenever the peer reads. So if
    /// two samples are equal, the connection was in the same phase all the time between them.
    fn sample(&self) -> (Phase, u64) {
        let phase = self.phase();
        let counter = if phase == Phase::Stalled { &self.taken } else { &self.requests };
        (phase, counter.load(Relaxed))
    }

    pub(super) fn phase(&self) -> Phase {
        if self.closing.load(Relaxed) {
            Phase::Closing
        } else if self.write_blocked.load(Relaxed) || self.ready.load(Relaxed) > 0 {
            Phase::Stalled
        } else if self.is_answering() {
            Phase::Busy
        } else if self.multiplexed.load(Relaxed) {
            Phase::Idle
        } else if self.has_read.load(Relaxed) {
            Phase::Head
        } else if self.is_new() {
            Phase::FirstByte
        } else {
            Phase::Idle
        }
    }

    /// Records whether a write is blocked. Only a write that succeeds after a blocked one shows that the peer reads.
    /// Other writes show nothing: while the send buffer has space, hyper even answers pings of an HTTP/2 peer that
    /// reads no answers.
    pub(super) fn write_polled(&self, is_blocked: bool) {
        if self.write_blocked.swap(is_blocked, Relaxed) && !is_blocked {
            self.taken.fetch_add(1, Relaxed);
        }
    }

    /// Returns whether the connection must read the rest of a request before it closes, and if so, records that it is
    /// closing. A displaced connection does not linger, because a newcomer may need its file descriptor.
    pub(super) fn begin_linger(&self) -> bool {
        let lingers = self.unread.load(Relaxed) && !self.is_displaced.load(Relaxed);
        self.closing.store(lingers, Relaxed);
        lingers
    }
}

// === impl Phase ===

impl Phase {
    fn limit(self, config: &Config) -> Option<(Duration, Closed)> {
        match self {
            Self::FirstByte => Some((config.first_byte_timeout, Closed::FirstByte)),
            Self::Head => Some((config.head_timeout, Closed::Head)),
            Self::Idle => Some((config.idle_timeout, Closed::Idle)),
            // Calls and lingering have deadlines of their own.
            Self::Busy | Self::Closing => None,
            Self::Stalled => Some((config.stall_timeout, Closed::Stalled)),
        }
    }
}

// === impl RequestGuard ===

impl RequestGuard {
    /// Returns whether the connection closes after this answer. A refused request ends it, unless its peer is a trusted
    /// proxy or has sent a valid key. Over HTTP/2, an answer cannot announce that, so the connection closes once the
    /// open streams are answered.
    pub(super) fn ends_connection(&self, is_refused: bool) -> bool {
        let activity = &self.activity;
        let is_refused = is_refused && !activity.is_proxy && activity.key() == 0;
        let is_multiplexed = activity.multiplexed.load(Relaxed);
        if is_refused && is_multiplexed {
            activity.finish.notify_one();
        }
        !is_multiplexed && (is_refused || activity.ends.load(Relaxed))
    }

    fn set_ready(&mut self, is_ready: bool) {
        match (std::mem::replace(&mut self.is_ready, is_ready), is_ready) {
            (false, true) => drop(self.activity.ready.fetch_add(1, Relaxed)),
            (true, false) => drop(self.activity.ready.fetch_sub(1, Relaxed)),
            _ => {}
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.set_ready(false);
        self.activity.has_read.store(false, Relaxed);
        self.activity.in_flight.fetch_sub(1, Relaxed);
    }
}

// === impl WatchedBody ===

impl<B> WatchedBody<B> {
    /// Wraps the body of an answer. It counts as ready at first, because the answer's head is ready to be sent.
    pub(super) fn new(body: B, mut in_flight: RequestGuard) -> Self {
        in_flight.set_ready(true);
        Self { body, in_flight }
    }
}

impl<B: Body> Body for WatchedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let frame = this.body.poll_frame(cx);
        this.in_flight.set_ready(frame.is_ready());
        // hyper polls for the next part once the peer has read enough of the earlier parts.
        this.in_flight.activity.taken.fetch_add(1, Relaxed);
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
