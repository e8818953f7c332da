//! Closes a connection so that its last answer is heard.
//!
//! A request can be answered before its body was read: it is too large, or there are too many
//! requests. HTTP/1.1 has to close the connection then; but a socket that is closed while its peer
//! still sends is reset, and the peer loses the very answer that says what is wrong. So what still
//! comes is read and thrown away for a while.

use std::{
    future::Future,
    mem::MaybeUninit,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::{
    io::{AsyncRead, ReadBuf},
    time::{self, Sleep},
};

use super::{Peer, activity::Activity};

/// A client that has not noticed its answer by then will not.
const LINGER: Duration = Duration::from_secs(5);

/// Nor one that has sent so much: it is thrice the largest body that is accepted by default.
const LINGER_BYTES: usize = 16 << 20;

/// What is thrown away at a time.
const SCRAP: usize = 16 * 1024;

/// What is no longer has most often come with the head: it is passed over, and the connection goes on.
const SHORT: u64 = 4096;

/// The body of a request, as it comes from the connection.
#[derive(Debug)]
pub struct RequestBody {
    body: Incoming,
    ended: bool,
    activity: Arc<Activity>,
    peer: Option<IpAddr>,
}

/// Reads what nobody wants.
pub(super) struct Linger {
    until: Pin<Box<Sleep>>,
    left: usize,
}

// === impl RequestBody ===

impl RequestBody {
    pub(super) fn new(body: Incoming, activity: Arc<Activity>, peer: Option<IpAddr>) -> Self {
        Self { body, ended: false, activity, peer }
    }
}

impl Peer for RequestBody {
    fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    fn authenticate(&self) {
        self.activity.trust();
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.ended = frame.is_none();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.ended && !self.body.is_end_stream() {
            let is_short = self.body.size_hint().upper().is_some_and(|left| left <= SHORT);
            self.activity.body_left_unread(is_short);
        }
    }
}

// === impl Linger ===

impl Linger {
    pub(super) fn new() -> Self {
        Self { until: Box::pin(time::sleep(LINGER)), left: LINGER_BYTES }
    }

    /// Resolves when the peer has ended, or it is enough.
    pub(super) fn poll<IO: AsyncRead>(&mut self, mut io: Pin<&mut IO>, cx: &mut Context<'_>) -> Poll<()> {
        if self.until.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut scrap = [MaybeUninit::uninit(); SCRAP];
        loop {
            let mut read = ReadBuf::uninit(&mut scrap);
            let ended = ready!(io.as_mut().poll_read(cx, &mut read)).is_err() || read.filled().is_empty();
            self.left = self.left.saturating_sub(read.filled().len());
            if ended || self.left == 0 {
                return Poll::Ready(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::{
        io::{AsyncWriteExt, duplex},
        time::Instant,
    };

    use super::*;

    async fn linger(mut io: impl AsyncRead + Unpin) -> Duration {
        let begun = Instant::now();
        let mut linger = Linger::new();
        poll_fn(|cx| linger.poll(Pin::new(&mut io), cx)).await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_with_the_peer() {
        let (mut near, far) = duplex(64);
        let (lingered, ()) = tokio::join!(linger(far), async move {
            near.write_all(&[0; 1000]).await.unwrap();
            time::sleep(Duration::from_secs(1)).await;
        });
        assert_eq!(lingered.as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_by_itself() {
        let (_near, far) = duplex(64);
        assert_eq!(linger(far).await.as_secs(), LINGER.as_secs());
        assert_eq!(linger(tokio::io::repeat(0)).await, Duration::ZERO);
    }
}
