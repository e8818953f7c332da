//! Tracks the phase that a connection is in, and how long the phase has lasted.
//!
//! The connection only updates counters and flags, and never reads a clock. A watchdog samples them several times per
//! time-out. So all time-outs together cost a request only a few relaxed atomic operations; in exchange, the watchdog
//! may notice a time-out late, by at most half of its length.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
    time::{self, Instant},
};

use super::{Config, linger::Linger};

/// Time after which a connection with an unfinished request head no longer counts as busy, so that it is easier to
/// displace. A head is one or two packets, so a client that needs longer is slow or hostile.
const HEAD_GRACE: Duration = Duration::from_secs(1);

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
    has_read: AtomicBool,
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
    /// Whether the connection closes after the current answer, because too much of the request body is unread or
    /// because the request was refused.
    ends: AtomicBool,
    /// Whether all answers are sent and the connection only lingers until the peer closes its side.
    closing: AtomicBool,
    /// The phase at the watchdog's last sample, and the time when the watchdog first saw it.
    sampled: Mutex<Option<(Phase, Instant)>>,
    /// Whether the peer is a trusted proxy or has sent a valid key.
    is_trusted: AtomicBool,
    is_displaced: AtomicBool,
    /// Tells the connection to answer open requests and accept no others.
    finish: Notify,
    /// Tells the connection to close at once.
    cut_off: Notify,
}

/// How much harm it does to close a connection in favour of another; the least harmful class comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EvictionClass {
    /// The connection has neither an open request nor an unfinished request head.
    Idle,
    /// The head of a request has been incomplete for [`HEAD_GRACE`].
    Head,
    /// The connection answers a request, or has just begun to receive a head.
    Busy,
}

/// The phase of a connection. The counters in a phase change with each request, or whenever the peer reads. So if two
/// samples of the watchdog are equal, the connection was in the same phase all the time between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    FirstByte,
    Head { requests: u64 },
    Idle { requests: u64 },
    Busy { requests: u64 },
    Stalled { taken: u64 },
    Closing,
}

pin_project! {
    /// A socket that records its reads and writes in an [`Activity`].
    pub(super) struct Watched<IO> {
        #[pin]
        io: IO,
        activity: Arc<Activity>,
        linger: Option<Linger>,
    }
}

/// Counts a request as in flight from its head until its answer has been passed to hyper in full.
pub(super) struct RequestGuard(Arc<Activity>);

pin_project! {
    /// The body of an answer. Records whether its next part is ready to be sent to the peer.
    pub(super) struct WatchedBody<B> {
        #[pin]
        body: B,
        is_ready: bool,
        in_flight: RequestGuard,
    }

    impl<B> PinnedDrop for WatchedBody<B> {
        fn drop(this: Pin<&mut Self>) {
            if this.is_ready {
                this.in_flight.0.ready.fetch_sub(1, Relaxed);
            }
        }
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
    pub(super) fn new(is_trusted: bool) -> Self {
        Self { is_trusted: AtomicBool::new(is_trusted), ..Self::default() }
    }

    pub(super) fn begin_request(self: &Arc<Self>, version: http::Version) -> RequestGuard {
        self.requests.fetch_add(1, Relaxed);
        self.unread.store(false, Relaxed);
        self.ends.store(false, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
        if version == http::Version::HTTP_2 {
            self.multiplexed.store(true, Relaxed);
        }
        RequestGuard(self.clone())
    }

    /// Returns whether no request has arrived yet.
    pub(super) fn is_new(&self) -> bool {
        self.requests.load(Relaxed) == 0
    }

    /// Returns the number of requests so far.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Returns whether a request is being answered.
    pub(super) fn is_answering(&self) -> bool {
        self.in_flight.load(Relaxed) > 0
    }

    /// Records that the peer has sent a valid key.
    pub(super) fn trust(&self) {
        self.is_trusted.store(true, Relaxed);
    }

    /// Returns how much harm it does to close the connection, and how long its phase has lasted.
    pub(super) fn standing(&self) -> (EvictionClass, Duration) {
        let phase = self.phase();
        let sampled = self.sampled.lock().filter(|(sampled, _)| *sampled == phase);
        let age = sampled.map_or(Duration::ZERO, |(_, since)| since.elapsed());
        let standing = match phase {
            Phase::FirstByte | Phase::Idle { .. } | Phase::Closing => EvictionClass::Idle,
            Phase::Head { .. } if age >= HEAD_GRACE => EvictionClass::Head,
            Phase::Head { .. } | Phase::Stalled { .. } | Phase::Busy { .. } => EvictionClass::Busy,
        };
        (standing, age)
    }

    /// Closes the connection in favour of another. An idle HTTP/1.1 connection closes gracefully, so that a request
    /// that arrives at the same moment is still answered. All others are cut off; a graceful close over HTTP/2 would
    /// depend on the peer.
    pub(super) fn displace(&self) {
        self.is_displaced.store(true, Relaxed);
        match self.phase() {
            Phase::Idle { .. } if !self.multiplexed.load(Relaxed) => self.finish.notify_one(),
            _ => self.cut_off.notify_one(),
        }
    }

    pub(super) fn is_displaced(&self) -> bool {
        self.is_displaced.load(Relaxed)
    }

    /// Resolves when the connection must accept no more requests and only answer the open ones.
    pub(super) async fn finishing(&self) {
        self.finish.notified().await;
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
        let mut phase = self.phase();
        let mut since = Instant::now();
        loop {
            *self.sampled.lock() = Some((phase, since));
            tokio::select! {
                () = time::sleep(phase.tick(tick)) => {}
                () = self.cut_off.notified() => return Closed::Displaced,
            }
            let now = self.phase();
            if now != phase {
                (phase, since) = (now, Instant::now());
            }
            if let Some((limit, reason)) = phase.limit(config)
                && since.elapsed() >= limit
            {
                return reason;
            }
        }
    }

    fn phase(&self) -> Phase {
        let requests = self.requests.load(Relaxed);
        if self.closing.load(Relaxed) {
            Phase::Closing
        } else if self.write_blocked.load(Relaxed) || self.ready.load(Relaxed) > 0 {
            Phase::Stalled { taken: self.taken.load(Relaxed) }
        } else if self.in_flight.load(Relaxed) > 0 {
            Phase::Busy { requests }
        } else if self.multiplexed.load(Relaxed) {
            Phase::Idle { requests }
        } else if self.has_read.load(Relaxed) {
            Phase::Head { requests }
        } else if requests == 0 {
            Phase::FirstByte
        } else {
            Phase::Idle { requests }
        }
    }
}

// === impl Phase ===

impl Phase {
    /// Returns the time to the next sample. It is at most [`HEAD_GRACE`] during a head, because the age of a head
    /// counts from the first sample that sees it.
    fn tick(self, tick: Duration) -> Duration {
        if matches!(self, Self::Head { .. }) { tick.min(HEAD_GRACE) } else { tick }
    }

    fn limit(self, config: &Config) -> Option<(Duration, Closed)> {
        match self {
            Self::FirstByte => Some((config.first_byte_timeout, Closed::FirstByte)),
            Self::Head { .. } => Some((config.head_timeout, Closed::Head)),
            Self::Idle { .. } => Some((config.idle_timeout, Closed::Idle)),
            // Calls and lingering have deadlines of their own.
            Self::Busy { .. } | Self::Closing => None,
            Self::Stalled { .. } => Some((config.stall_timeout, Closed::Stalled)),
        }
    }
}

// === impl RequestGuard ===

impl RequestGuard {
    /// Records that the request was refused. The connection then closes after this answer, unless its peer is trusted.
    pub(super) fn refused(&self) {
        if self.0.is_trusted.load(Relaxed) {
            return;
        }
        if self.0.multiplexed.load(Relaxed) {
            self.0.finish.notify_one();
        } else {
            self.0.ends.store(true, Relaxed);
        }
    }

    /// Returns whether the connection closes after this answer. Always returns `false` over HTTP/2, where an answer
    /// cannot announce it.
    pub(super) fn ends_connection(&self) -> bool {
        self.0.ends.load(Relaxed)
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.has_read.store(false, Relaxed);
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

// === impl Watched ===

impl<IO> Watched<IO> {
    pub(super) fn new(io: IO, activity: Arc<Activity>) -> Self {
        Self { io, activity, linger: None }
    }
}

/// Records whether a write is blocked. Only a write that succeeds after a blocked one shows that the peer reads. Other
/// writes show nothing: while the send buffer has space, hyper even answers pings of an HTTP/2 peer that reads no
/// answers.
fn noted(activity: &Activity, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
    let was_blocked = activity.write_blocked.swap(written.is_pending(), Relaxed);
    if was_blocked && written.is_ready() {
        activity.taken.fetch_add(1, Relaxed);
    }
    written
}

impl<IO: AsyncRead> AsyncRead for Watched<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        let before = buf.filled().len();
        ready!(this.io.poll_read(cx, buf))?;
        if buf.filled().len() > before {
            this.activity.has_read.store(true, Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncRead + AsyncWrite> AsyncWrite for Watched<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.project();
        noted(this.activity, this.io.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        noted(this.activity, this.io.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().io.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut this = self.project();
        if this.linger.is_none() {
            ready!(this.io.as_mut().poll_shutdown(cx))?;
            // A displaced connection does not linger, because a newcomer may need its file descriptor.
            if !this.activity.unread.load(Relaxed) || this.activity.is_displaced() {
                return Poll::Ready(Ok(()));
            }
            this.activity.closing.store(true, Relaxed);
        }
        this.linger.get_or_insert_with(Linger::new).poll(this.io, cx).map(Ok)
    }
}

// === impl WatchedBody ===

impl<B> WatchedBody<B> {
    /// Wraps the body of an answer. It counts as ready at first, because the answer's head is ready to be sent.
    pub(super) fn new(body: B, in_flight: RequestGuard) -> Self {
        in_flight.0.ready.fetch_add(1, Relaxed);
        Self { body, is_ready: true, in_flight }
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
        let activity = &this.in_flight.0;
        let frame = this.body.poll_frame(cx);
        match (*this.is_ready, frame.is_ready()) {
            (false, true) => drop(activity.ready.fetch_add(1, Relaxed)),
            (true, false) => drop(activity.ready.fetch_sub(1, Relaxed)),
            _ => {}
        }
        *this.is_ready = frame.is_ready();
        // hyper polls for the next part once the peer has read enough of the earlier parts.
        activity.taken.fetch_add(1, Relaxed);
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
