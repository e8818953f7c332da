//! Tracks the phase of a connection and the time that it has lasted.
//!
//! The connection updates counters and flags without reading a clock; a watchdog samples them a few times per time-out. So
//! a request pays a few relaxed atomic operations for all time-outs together, and a time-out is noticed at most half of its
//! length late.

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

/// Age from which a connection with an unfinished request head can be displaced. A head is a packet or two: a client that
/// needs longer is slow or hostile.
const HEAD_GRACE: Duration = Duration::from_secs(1);

/// Why a connection was closed before its peer closed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Closed {
    /// Nothing came after it was opened.
    FirstByte,
    /// A request began and its head did not end.
    Head,
    /// No next request came.
    Idle,
    /// An answer was ready and was not taken.
    Stalled,
    /// The listener was full, and the connection's address held the most connections.
    Displaced,
}

/// A connection's counters and flags.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Number of requests so far.
    requests: AtomicU64,
    /// Requests whose answer is not yet handed over whole.
    in_flight: AtomicUsize,
    /// Bytes came since the last request ended: the start of another head.
    has_read: AtomicBool,
    /// The socket takes no more: the peer has to read first.
    write_blocked: AtomicBool,
    /// Answers of which a part is ready for the peer.
    ready: AtomicUsize,
    /// Counts up whenever the peer takes a part of an answer.
    taken: AtomicU64,
    /// Frames between requests are no heads: HTTP/2 pings and settles windows there.
    multiplexed: AtomicBool,
    /// The last request was answered before all of its body was read.
    unread: AtomicBool,
    /// The connection ends with this answer: too much of the body is left, or the request was refused.
    ends: AtomicBool,
    /// All has been said, and the peer is left some time to hear it.
    closing: AtomicBool,
    /// The phase that the watchdog saw last, and since when.
    sampled: Mutex<Option<(Phase, Instant)>>,
    /// The peer is a trusted proxy, or has shown a valid key.
    is_trusted: AtomicBool,
    is_displaced: AtomicBool,
    /// Open requests are to be answered, and no others.
    finish: Notify,
    /// The connection is to be closed at once.
    cut_off: Notify,
}

/// How little is lost if a connection is closed for another. The first goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EvictionClass {
    /// No request is open.
    Idle,
    /// The head of a request has been on its way for [`HEAD_GRACE`].
    Head,
    /// A request is being answered.
    Busy,
}

/// Compared between samples of the watchdog: an equal phase has lasted since the first of them.
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
    /// A socket that notes what passes through it.
    pub(super) struct Watched<IO> {
        #[pin]
        io: IO,
        activity: Arc<Activity>,
        linger: Option<Linger>,
    }
}

/// Counts a request from its head until its answer is handed over whole.
pub(super) struct RequestGuard(Arc<Activity>);

pin_project! {
    /// The body of an answer. Records whether a part of it is ready for the peer.
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
    pub(super) const ALL: [Self; 5] =
        [Self::FirstByte, Self::Head, Self::Idle, Self::Stalled, Self::Displaced];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::FirstByte => "first_byte",
            Self::Head => "head",
            Self::Idle => "idle",
            Self::Stalled => "stalled",
            Self::Displaced => "displaced",
        }
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

    /// Returns whether no request has come yet.
    pub(super) fn is_new(&self) -> bool {
        self.requests.load(Relaxed) == 0
    }

    /// Number of requests that have come.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Returns whether a request is being answered.
    pub(super) fn is_answering(&self) -> bool {
        self.in_flight.load(Relaxed) > 0
    }

    /// Records that the peer has shown a valid key.
    pub(super) fn trust(&self) {
        self.is_trusted.store(true, Relaxed);
    }

    /// Returns how little is lost if the connection is closed, and for how long that has been so.
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

    /// Closes the connection for another. A request that comes at the same moment is still answered; not over HTTP/2, where
    /// the peer would have to take part in the end.
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

    /// Resolves when open requests are to be answered, and no others.
    pub(super) async fn finishing(&self) {
        self.finish.notified().await;
    }

    /// A request's body was dropped before its end. What is left of it ends the connection, unless it is short; with HTTP/2 it
    /// concerns no other stream.
    pub(super) fn body_left_unread(&self, is_short: bool) {
        let concerns = !self.multiplexed.load(Relaxed);
        self.unread.store(concerns, Relaxed);
        self.ends.store(concerns && !is_short, Relaxed);
    }

    /// Resolves when the connection should be closed, and says why.
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
    /// Returns when to sample again: a head can be displaced only once it is known to last.
    fn tick(self, tick: Duration) -> Duration {
        if matches!(self, Self::Head { .. }) { tick.min(HEAD_GRACE) } else { tick }
    }

    fn limit(self, config: &Config) -> Option<(Duration, Closed)> {
        match self {
            Self::FirstByte => Some((config.first_byte_timeout, Closed::FirstByte)),
            Self::Head { .. } => Some((config.head_timeout, Closed::Head)),
            Self::Idle { .. } => Some((config.idle_timeout, Closed::Idle)),
            // A request being answered has its own deadlines, and so has lingering.
            Self::Busy { .. } | Self::Closing => None,
            Self::Stalled { .. } => Some((config.stall_timeout, Closed::Stalled)),
        }
    }
}

// === impl RequestGuard ===

impl RequestGuard {
    /// The request was refused: the connection ends with this answer, unless its peer is trusted.
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

    /// Returns whether the connection ends with this answer.
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

/// Records whether the socket takes more. Only a write after a blocked one shows that the peer has read: while the socket is
/// free, an HTTP/2 peer that takes nothing of its answers can have its pings answered.
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
            // One that makes room for another does not hold its place until its peer has heard everything.
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
    /// The head of the answer is ready.
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
        // The connection asks for the next part once the peer has taken enough of those before.
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
