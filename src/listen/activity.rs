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
use parking_lot::{Mutex, MutexGuard};
use pin_project_lite::pin_project;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
    time::{self, Instant},
};

use super::{
    Config,
    answers::{Answers, Taken, Untaken, WatchedData},
    linger::Linger,
    relief::Relief,
};

/// How long a head may be under way before it has to make room for others: a head is a packet or two,
/// and whoever needs longer for it is slow or means harm.
const HEAD_GRACE: Duration = Duration::from_secs(1);

/// This part of the time after which a reader that takes nothing is closed, it and those who take next to nothing are
/// left alone; then they have to make room for others.
const STALL_GRACE: u32 = 6;

/// Whoever takes so many bytes a second is no such reader: it takes what it can.
const ENOUGH: u64 = 16 * 1024;

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
    /// The listener was full, and its address held the most connections; or it hardly took an answer that held bytes for
    /// which other requests were turned away.
    Displaced,
}

/// A connection's counters.
#[derive(Debug, Default)]
pub(super) struct Activity {
    reads: AtomicU64,
    writes: AtomicU64,
    /// Of answers, where there can be several at a time: a peer that pings has what answers that written, too.
    taken: AtomicU64,
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
    /// The last request was answered before all of its body was read.
    unread: AtomicBool,
    /// The connection ends with this answer: too much of the body is left, or the request was refused.
    ends: AtomicBool,
    /// All has been said, and the peer is left some time to hear it.
    closing: AtomicBool,
    /// Those that are on their way, where there can be several at a time.
    pub(super) answers: Answers,
    relief: Arc<Relief>,
    /// The phase that the watchdog saw last.
    sampled: Mutex<Option<Sample>>,
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
pub(super) enum Standing {
    /// No request is open.
    Idle,
    /// The head of a request has been on its way for [`HEAD_GRACE`].
    Head,
    /// The peer takes next to nothing of an answer.
    Slow,
    Busy,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    phase: Phase,
    since: Instant,
    is_slow: bool,
}

/// What the watchdog compares between samples: unchanged means it has gone on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    FirstByte,
    Head { requests: u64 },
    Idle { requests: u64 },
    Busy { requests: u64 },
    Stalled { writes: Option<u64>, frames: u64 },
    Closing,
}

/// How fast a peer takes what is ready for it.
#[derive(Clone, Debug)]
struct Pace {
    /// From when on, and what had been written by then, in all and of each answer.
    since: Instant,
    writes: u64,
    taken: Taken,
    /// Was it next to nothing, when last reckoned?
    is_slow: bool,
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

/// Counts a request from its head until its answer has been taken.
pub(super) struct InFlight {
    activity: Arc<Activity>,
    version: http::Version,
}

pin_project! {
    /// An answer's body that notes whose turn it is: the reader's, or its own maker's.
    pub(super) struct WatchedBody<B> {
        #[pin]
        body: B,
        on_reader: bool,
        in_flight: InFlight,
        untaken: Option<Arc<Untaken>>,
    }

    impl<B> PinnedDrop for WatchedBody<B> {
        fn drop(this: Pin<&mut Self>) {
            if this.on_reader {
                hand_over(&this.in_flight.activity, this.untaken.as_deref(), false);
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
    pub(super) fn new(relief: Arc<Relief>, is_trusted: bool) -> Self {
        Self { relief, is_trusted: AtomicBool::new(is_trusted), ..Self::default() }
    }

    pub(super) fn begin_request(self: &Arc<Self>, version: http::Version) -> InFlight {
        self.requests.fetch_add(1, Relaxed);
        self.unread.store(false, Relaxed);
        self.ends.store(false, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
        if version == http::Version::HTTP_2 {
            self.multiplexed.store(true, Relaxed);
        }
        InFlight { activity: self.clone(), version }
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
    pub(super) fn standing(&self) -> (Standing, Duration) {
        let phase = self.phase();
        let sample = self.sampled().filter(|sample| sample.phase == phase);
        let age = sample.map_or(Duration::ZERO, |sample| sample.since.elapsed());
        let standing = match phase {
            Phase::FirstByte | Phase::Idle { .. } | Phase::Closing => Standing::Idle,
            Phase::Head { .. } if age >= HEAD_GRACE => Standing::Head,
            // Each byte that is taken is another phase, and the pace stays what it was.
            Phase::Stalled { .. } if self.sampled().is_some_and(|sample| sample.is_slow) => Standing::Slow,
            Phase::Head { .. } | Phase::Stalled { .. } | Phase::Busy { .. } => Standing::Busy,
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

    fn sampled(&self) -> Option<Sample> {
        *self.sample()
    }

    fn sample(&self) -> MutexGuard<'_, Option<Sample>> {
        self.sampled.lock()
    }

    /// So many bytes of an answer have been taken.
    pub(super) fn take(&self, bytes: usize) {
        self.taken.fetch_add(bytes as u64, Relaxed);
        self.frames.fetch_add(1, Relaxed);
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
        let relief = &self.relief;
        let limits =
            [config.first_byte_timeout, config.head_timeout, config.idle_timeout, config.stall_timeout];
        let tick = limits.into_iter().min().unwrap_or_default() / 4;
        let grace = config.stall_timeout / STALL_GRACE;
        let mut phase = self.phase();
        let mut since = Instant::now();
        let mut pace = self.pace();
        loop {
            let is_slow = matches!(phase, Phase::Stalled { .. }) && pace.is_slow;
            *self.sample() = Some(Sample { phase, since, is_slow });
            if is_slow && relief.accept() {
                return Closed::Displaced;
            }
            tokio::select! {
                () = time::sleep(phase.tick(tick, grace)) => {}
                () = self.cut_off.notified() => return Closed::Displaced,
                () = relief.wanted(), if is_slow => {}
            }
            let now = self.phase();
            if now != phase {
                (phase, since) = (now, Instant::now());
            }
            if !matches!(phase, Phase::Stalled { .. }) {
                pace = self.pace();
            } else if pace.since.elapsed() >= grace {
                pace = self.pace_after(&pace);
            }
            if let Some((limit, reason)) = phase.limit(config)
                && since.elapsed() >= limit
            {
                return reason;
            }
        }
    }

    /// To be reckoned from now on.
    fn pace(&self) -> Pace {
        let writes = if self.multiplexed.load(Relaxed) { &self.taken } else { &self.writes };
        let (writes, taken) = (writes.load(Relaxed), self.answers.taken());
        Pace { since: Instant::now(), writes, taken, is_slow: false }
    }

    /// What it was, to be reckoned anew from now on.
    fn pace_after(&self, before: &Pace) -> Pace {
        let now = self.pace();
        let enough = u128::from(ENOUGH) * (now.since - before.since).as_millis() / 1000;
        let is_slow = u128::from(now.writes.saturating_sub(before.writes)) < enough
            || now.taken.is_half_left(&before.taken, enough);
        Pace { is_slow, ..now }
    }

    fn phase(&self) -> Phase {
        let requests = self.requests.load(Relaxed);
        let reads = self.reads.load(Relaxed);
        let blocked = self.write_blocked.load(Relaxed);
        if self.closing.load(Relaxed) {
            Phase::Closing
        } else if blocked || self.on_reader.load(Relaxed) > 0 || self.answers.is_any_ready() {
            // While the socket is free, an HTTP/2 peer that takes nothing of its answers can have its
            // pings answered: bytes count only where they are what is waited for.
            let writes = blocked.then(|| self.writes.load(Relaxed));
            Phase::Stalled { writes, frames: self.frames.load(Relaxed) }
        } else if self.in_flight.load(Relaxed) > 0 {
            Phase::Busy { requests }
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
    /// When to look again, if no later than `tick`: a head or a slow reader can be displaced only once it is known for it.
    fn tick(self, tick: Duration, grace: Duration) -> Duration {
        match self {
            Self::Head { .. } => tick.min(HEAD_GRACE),
            Self::Stalled { .. } => tick.min(grace),
            _ => tick,
        }
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

// === impl InFlight ===

impl InFlight {
    /// The request was turned away for want of what others hold.
    pub(super) fn turned_away(&self) {
        self.activity.relief.want();
    }

    /// The request was refused: the connection ends with this answer, unless its peer is trusted.
    pub(super) fn refused(&self) {
        if self.activity.is_trusted.load(Relaxed) {
            return;
        }
        if self.version == http::Version::HTTP_2 {
            self.activity.finish.notify_one();
        } else {
            self.activity.ends.store(true, Relaxed);
        }
    }

    /// Returns whether the connection ends with this answer.
    pub(super) fn ends_connection(&self) -> bool {
        self.activity.ends.load(Relaxed)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.activity.reads_at_end.store(self.activity.reads.load(Relaxed), Relaxed);
        self.activity.in_flight.fetch_sub(1, Relaxed);
    }
}

// === impl Watched ===

impl<IO> Watched<IO> {
    pub(super) fn new(io: IO, activity: Arc<Activity>) -> Self {
        Self { io, activity, linger: None }
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

/// Notes that it is the reader's turn, or no longer.
fn hand_over(activity: &Activity, untaken: Option<&Untaken>, to_reader: bool) {
    if to_reader {
        activity.on_reader.fetch_add(1, Relaxed);
    } else {
        activity.on_reader.fetch_sub(1, Relaxed);
    }
    if let Some(untaken) = untaken {
        untaken.set_ready(to_reader);
    }
}

impl<B> WatchedBody<B> {
    /// The head of the answer is ready: from here it is the reader's turn.
    pub(super) fn new(body: B, in_flight: InFlight) -> Self {
        let is_one_of_several = in_flight.version == http::Version::HTTP_2;
        let untaken = is_one_of_several.then(|| Arc::new(Untaken::new(in_flight.activity.clone())));
        hand_over(&in_flight.activity, untaken.as_deref(), true);
        Self { body, on_reader: true, in_flight, untaken }
    }
}

impl<B: Body<Data: Buf>> Body for WatchedBody<B> {
    type Data = WatchedData<B::Data>;
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
            hand_over(activity, this.untaken.as_deref(), *this.on_reader);
        }
        activity.frames.fetch_add(1, Relaxed);
        let untaken = &*this.untaken;
        frame.map_ok(|frame| frame.map_data(|data| WatchedData::new(data, untaken.clone())))
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
