//! Closes a connection so that its last answer reaches the peer.
//!
//! The service may answer a request before it has read the body, for example because the body is too large or the
//! client sends too many requests. Over HTTP/1.1, the listener then closes the connection, unless the unread rest is
//! short. But the system resets a socket that is closed while its peer still sends, and the peer loses the answer that
//! explains the error. So the listener first reads and discards the rest of the request, for a limited time.

use std::{
    future::Future,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, ReadBuf},
    time::{self, Sleep},
};

/// Maximum time to linger. A client that has not read its answer by then probably never will.
const LINGER: Duration = Duration::from_secs(5);

/// Maximum number of bytes to discard: about three times the largest body that is accepted by default.
const LINGER_BYTES: usize = 16 << 20;

/// Maximum number of bytes to discard per read.
const SCRAP: usize = 16 * 1024;

/// Reads and discards the rest of a request.
pub(super) struct Linger {
    until: Pin<Box<Sleep>>,
    left: usize,
}

// === impl Linger ===

impl Linger {
    pub(super) fn new() -> Self {
        Self { until: Box::pin(time::sleep(LINGER)), left: LINGER_BYTES }
    }

    /// Resolves when the peer closes its side, or when the limit on time or bytes is reached.
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
    async fn linger_ends_when_the_peer_closes() {
        let (mut near, far) = duplex(64);
        let (lingered, ()) = tokio::join!(linger(far), async move {
            near.write_all(&[0; 1000]).await.unwrap();
            time::sleep(Duration::from_secs(1)).await;
        });
        assert_eq!(lingered.as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn linger_ends_after_a_limit() {
        let (_near, far) = duplex(64);
        assert_eq!(linger(far).await.as_secs(), LINGER.as_secs());
        assert_eq!(linger(tokio::io::repeat(0)).await, Duration::ZERO);
    }
}
