//! What a connection is doing, and when that has gone on for too long.
//!
//! The connection notes its doings in counters, without looking at a clock; a watchdog samples
//! them a few times per time-out. So a request pays a few relaxed atomic operations for all the
//! time-outs together, and a peer is found out at most half a time-out late.

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

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
    time::{self, Instant},
};

use super::Config;

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
    /// It was idle, and another wanted its place.
    Displaced,
}

/// A connection's counters.
#[derive(Debug, Default)]
pub(super) struct Activity {
    reads: AtomicU64,
    writes: AtomicU64,
    write_blocked: AtomicBool,
    /// Requests whose answer has not been taken whole.
    in_flight: AtomicUsize,
    requests: AtomicU64,
    /// `reads` when the last request ended: more since then is the start of another head.
    reads_at_end: AtomicU64,
    /// Answers that wait for the peer to take what is ready.
    on_reader: AtomicUsize,
    frames: AtomicU64,
    /// Frames between requests are no heads: HTTP/2 pings and settles windows there.
    multiplexed: AtomicBool,
}

/// What the watchdog compares between samples: unchanged means it has gone on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    FirstByte,
    Head { requests: u64 },
    Idle { requests: u64 },
    Busy,
    Stalled { writes: u64, frames: u64 },
}

pin_project! {
    /// A socket that notes what passes through it.
    pub(super) struct Watched<IO> {
        #[pin]
        io: IO,
        activity: Arc<Activity>,
    }
}

/// Counts a request from its head until its answer has been taken.
pub(super) struct InFlight {
    activity: Arc<Activity>,
}

pin_project! {
    /// An answer's body that notes whose turn it is: the reader's, or its own maker's.
    pub(super) struct WatchedBody<B> {
        #[pin]
        body: B,
        on_reader: bool,
        in_flight: InFlight,
    }

    impl<B> PinnedDrop for WatchedBody<B> {
        fn drop(this: Pin<&mut Self>) {
            if this.on_reader {
                this.in_flight.activity.on_reader.fetch_sub(1, Relaxed);
            }
        }
    }
}

// === impl Closed ===

impl Closed {
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
    pub(super) fn begin_request(self: &Arc<Self>, version: http::Version) -> InFlight {
        self.requests.fetch_add(1, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
        if version == http::Version::HTTP_2 {
            self.multiplexed.store(true, Relaxed);
        }
        InFlight { activity: self.clone() }
    }

    /// Resolves when the connection should be closed, and says why.
    pub(super) async fn expired(&self, config: &Config, pressure: &Notify) -> Closed {
        let limits =
            [config.first_byte_timeout, config.head_timeout, config.idle_timeout, config.stall_timeout];
        let tick = limits.into_iter().min().unwrap_or_default() / 4;
        let mut phase = self.phase();
        let mut since = Instant::now();
        loop {
            let displaced = tokio::select! {
                () = time::sleep(tick) => false,
                () = pressure.notified(), if phase.is_idle() => true,
            };
            let now = self.phase();
            if displaced {
                if now.is_idle() {
                    return Closed::Displaced;
                }
                // Busy since it was last looked at: let another make room.
                pressure.notify_one();
            }
            if now != phase {
                (phase, since) = (now, Instant::now());
            } else if let Some((limit, reason)) = phase.limit(config)
                && since.elapsed() >= limit
            {
                return reason;
            }
        }
    }

    fn phase(&self) -> Phase {
        let requests = self.requests.load(Relaxed);
        let reads = self.reads.load(Relaxed);
        if self.write_blocked.load(Relaxed) || self.on_reader.load(Relaxed) > 0 {
            Phase::Stalled { writes: self.writes.load(Relaxed), frames: self.frames.load(Relaxed) }
        } else if self.in_flight.load(Relaxed) > 0 {
            Phase::Busy
        } else if reads == 0 {
            Phase::FirstByte
        } else if reads > self.reads_at_end.load(Relaxed) && !self.multiplexed.load(Relaxed) {
            Phase::Head { requests }
        } else {
            Phase::Idle { requests }
        }
    }
}

// === impl Phase ===

impl Phase {
    fn is_idle(self) -> bool {
        matches!(self, Self::FirstByte | Self::Idle { .. })
    }

    fn limit(self, config: &Config) -> Option<(Duration, Closed)> {
        match self {
            Self::FirstByte => Some((config.first_byte_timeout, Closed::FirstByte)),
            Self::Head { .. } => Some((config.head_timeout, Closed::Head)),
            Self::Idle { .. } => Some((config.idle_timeout, Closed::Idle)),
            // A request being answered has its own deadlines.
            Self::Busy => None,
            Self::Stalled { .. } => Some((config.stall_timeout, Closed::Stalled)),
        }
    }
}

// === impl InFlight ===

impl Drop for InFlight {
    fn drop(&mut self) {
        self.activity.reads_at_end.store(self.activity.reads.load(Relaxed), Relaxed);
        self.activity.in_flight.fetch_sub(1, Relaxed);
    }
}

// === impl Watched ===

impl<IO> Watched<IO> {
    pub(super) fn new(io: IO, activity: Arc<Activity>) -> Self {
        Self { io, activity }
    }
}

/// Notes how a write went.
fn noted(activity: &Activity, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
    activity.write_blocked.store(written.is_pending(), Relaxed);
    if let Poll::Ready(Ok(count)) = &written {
        activity.writes.fetch_add(*count as u64, Relaxed);
    }
    written
}

impl<IO: AsyncRead> AsyncRead for Watched<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        let before = buf.filled().len();
        ready!(this.io.poll_read(cx, buf))?;
        this.activity.reads.fetch_add((buf.filled().len() - before) as u64, Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite> AsyncWrite for Watched<IO> {
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
        self.project().io.poll_shutdown(cx)
    }
}

// === impl WatchedBody ===

impl<B> WatchedBody<B> {
    /// The head of the answer is ready: from here it is the reader's turn.
    pub(super) fn new(body: B, in_flight: InFlight) -> Self {
        in_flight.activity.on_reader.fetch_add(1, Relaxed);
        Self { body, on_reader: true, in_flight }
    }
}

impl<B: Body<Data: Buf>> Body for WatchedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let activity = &this.in_flight.activity;
        let frame = this.body.poll_frame(cx);
        if frame.is_pending() == *this.on_reader {
            *this.on_reader = !*this.on_reader;
            if *this.on_reader {
                activity.on_reader.fetch_add(1, Relaxed);
            } else {
                activity.on_reader.fetch_sub(1, Relaxed);
            }
        }
        activity.frames.fetch_add(1, Relaxed);
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
mod tests {
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn config() -> Config {
        Config::default()
    }

    async fn closes_after(activity: &Activity, config: &Config) -> (Closed, Duration) {
        let start = Instant::now();
        let reason = activity.expired(config, &Notify::new()).await;
        (reason, start.elapsed())
    }

    fn assert_about(elapsed: Duration, limit: Duration) {
        assert!(
            elapsed >= limit && elapsed <= limit + limit / 2 + Duration::from_secs(5),
            "{elapsed:?} for {limit:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_says_nothing_is_closed() {
        let (reason, elapsed) = closes_after(&Activity::default(), &config()).await;
        assert_eq!(reason, Closed::FirstByte);
        assert_about(elapsed, config().first_byte_timeout);
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_dribbles_is_closed() {
        let activity = Arc::new(Activity::default());
        let (mut near, far) = tokio::io::duplex(64);
        let mut watched = Watched::new(far, activity.clone());
        let dribble = async {
            loop {
                near.write_all(b"x").await.unwrap();
                watched.read_u8().await.unwrap();
                time::sleep(Duration::from_secs(1)).await;
            }
        };
        let config = config();
        tokio::select! {
            () = dribble => unreachable!(),
            (reason, elapsed) = closes_after(&activity, &config) => {
                assert_eq!(reason, Closed::Head);
                assert_about(elapsed, config.head_timeout);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_lasts_longer_than_a_head() {
        let activity = Arc::new(Activity::default());
        activity.reads.store(10, Relaxed);
        drop(activity.begin_request(http::Version::HTTP_11));
        let (reason, elapsed) = closes_after(&activity, &config()).await;
        assert_eq!(reason, Closed::Idle);
        assert_about(elapsed, config().idle_timeout);
    }

    #[tokio::test(start_paused = true)]
    async fn pings_do_not_keep_an_idle_connection_nor_look_like_a_head() {
        let activity = Arc::new(Activity::default());
        drop(activity.begin_request(http::Version::HTTP_2));
        let config = config();
        let pings = async {
            loop {
                time::sleep(Duration::from_secs(1)).await;
                activity.reads.fetch_add(17, Relaxed);
            }
        };
        tokio::select! {
            () = pings => unreachable!(),
            (reason, elapsed) = closes_after(&activity, &config) => {
                assert_eq!(reason, Closed::Idle);
                assert_about(elapsed, config.idle_timeout);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_being_answered_is_not_closed() {
        let activity = Arc::new(Activity::default());
        let _in_flight = activity.begin_request(http::Version::HTTP_11);
        let config = config();
        let watch = time::timeout(Duration::from_secs(3600), closes_after(&activity, &config));
        assert!(watch.await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_takes_is_given_up() {
        let activity = Arc::new(Activity::default());
        let in_flight = activity.begin_request(http::Version::HTTP_2);
        let _body = WatchedBody::new(Full::<bytes::Bytes>::default(), in_flight);
        let (reason, elapsed) = closes_after(&activity, &config()).await;
        assert_eq!(reason, Closed::Stalled);
        assert_about(elapsed, config().stall_timeout);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_does_not_move_is_given_up() {
        let activity = Arc::new(Activity::default());
        let (_near, far) = tokio::io::duplex(64);
        let mut watched = Watched::new(far, activity.clone());
        let config = config();
        tokio::select! {
            _ = watched.write_all(&[0; 100]) => unreachable!(),
            (reason, _) = closes_after(&activity, &config) => assert_eq!(reason, Closed::Stalled),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_makes_room_when_asked() {
        let idle = Activity::default();
        let pressure = Notify::new();
        let config = config();
        let (reason, ()) = tokio::join!(idle.expired(&config, &pressure), async { pressure.notify_one() });
        assert_eq!(reason, Closed::Displaced);
    }
}
