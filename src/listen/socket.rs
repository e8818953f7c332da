//! The socket of a connection. Records reads and writes, and closes so that the last answer reaches the peer.
//!
//! The service may answer a request before it has read the body, for example because the body is too large or the
//! client sends too many requests. Over HTTP/1.1, the listener then closes the connection, unless the unread rest is
//! short. But the system resets a socket that is closed while its peer still sends, and the peer loses the answer that
//! explains the error. So the listener first reads and discards the rest of the request, for a limited time.

use std::{
    cell::RefCell,
    future::Future,
    io,
    mem::MaybeUninit,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{self, Sleep},
};

use super::activity::Activity;

/// Maximum time to linger. A client that has not read its answer by then probably never will.
const LINGER: Duration = Duration::from_secs(5);

/// Maximum number of bytes to discard: about three times the largest body that is accepted by default.
const LINGER_BYTES: usize = 16 << 20;

/// Maximum number of bytes to discard per read.
const SCRAP: usize = 16 * 1024;

/// If the buffers of a vectored write hold at most this many bytes in total, they are copied into one buffer: a plain
/// write of so few bytes costs less.
const JOINED: usize = 4 << 10;

thread_local! {
    /// The buffer that small buffers are copied into. Its content is used only during the call.
    static JOINT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pin_project! {
    /// A socket that records its reads and writes in an [`Activity`].
    pub(super) struct Watched<IO> {
        #[pin]
        io: IO,
        activity: Arc<Activity>,
        linger: Option<Pin<Box<Sleep>>>,
        left: usize,
    }
}

// === impl Watched ===

impl<IO> Watched<IO> {
    pub(super) fn new(io: IO, activity: Arc<Activity>) -> Self {
        Self { io, activity, linger: None, left: LINGER_BYTES }
    }
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
        self.poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        let is_small = bufs.iter().map(|buf| buf.len()).sum::<usize>() <= JOINED;
        let written = match bufs {
            [buf] => this.io.poll_write(cx, buf),
            _ if is_small => JOINT.with_borrow_mut(|joint| {
                joint.clear();
                bufs.iter().for_each(|buf| joint.extend_from_slice(buf));
                this.io.poll_write(cx, joint)
            }),
            _ => this.io.poll_write_vectored(cx, bufs),
        };
        this.activity.write_polled(written.is_pending());
        written
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
            if !this.activity.begin_linger() {
                return Poll::Ready(Ok(()));
            }
        }
        let linger = this.linger.get_or_insert_with(|| Box::pin(time::sleep(LINGER)));
        // Ends when the peer closes its side, or at the limit on time or bytes.
        let mut is_done = linger.as_mut().poll(cx).is_ready();
        let mut scrap = [MaybeUninit::uninit(); SCRAP];
        while !is_done {
            let mut read = ReadBuf::uninit(&mut scrap);
            is_done = ready!(this.io.as_mut().poll_read(cx, &mut read)).is_err() || read.filled().is_empty();
            *this.left = this.left.saturating_sub(read.filled().len());
            is_done |= *this.left == 0;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
