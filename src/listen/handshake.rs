//! The TLS handshake of a connection.
//!
//! The handshake runs in the connection's own task, so it delays no other connection. [`Activity`] treats its bytes as
//! the start of a request head, so the time-out for heads also limits the handshake.

use std::{
    cell::RefCell,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tracing::debug;

use super::{
    activity::{Activity, Watched},
    handshake_failure::HandshakeFailure,
    metrics::Metrics,
    tls::Tls,
};

/// Answer to a client that sends plain HTTP to a TLS listener.
const SPEAK_TLS: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
                         content-length: 41\r\nx-content-type-options: nosniff\r\n\
                         connection: close\r\n\r\nthis port requires TLS; retry with https\n";

/// If the buffers of a vectored write hold at most this many bytes in total, they are copied into one buffer: a plain
/// write of so few bytes costs less.
const JOINED: usize = 4 << 10;

thread_local! {
    /// The buffer that [`poll_write_joined`] copies into. Its content is used only during the call.
    static JOINT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A connection, plain or over TLS.
pub(super) enum Stream {
    Plain(Watched<TcpStream>),
    Tls(Box<TlsStream<Watched<TcpStream>>>),
}

/// Counts a handshake as failed if the guard is dropped before the handshake ends.
struct HandshakeGuard<'a> {
    metrics: &'a Metrics,
    ended: bool,
}

// === impl Stream ===

impl Stream {
    /// Returns a plain connection.
    pub(super) fn plain(tcp: TcpStream, activity: Arc<Activity>) -> Self {
        Self::Plain(Watched::new(tcp, activity))
    }

    /// Performs the handshake. If it fails, logs and counts the failure and returns `None`.
    pub(super) async fn secure(
        tcp: TcpStream,
        activity: Arc<Activity>,
        tls: &Tls,
        metrics: &Metrics,
    ) -> Option<Self> {
        let mut under_way = HandshakeGuard { metrics, ended: false };
        let secured = secure(tcp, activity, tls).await;
        under_way.ended = true;
        match secured {
            Ok(stream) => Some(Self::Tls(Box::new(stream))),
            Err((reason, error)) => {
                let error = error.map(tracing::field::display);
                debug!(reason = reason.as_str(), error, "TLS handshake failed");
                metrics.handshake_failed(reason);
                None
            }
        }
    }
}

async fn secure(
    tcp: TcpStream,
    activity: Arc<Activity>,
    tls: &Tls,
) -> Result<TlsStream<Watched<TcpStream>>, (HandshakeFailure, Option<io::Error>)> {
    let failed = |error: io::Error| (HandshakeFailure::of(&error), Some(error));
    let mut first = [0];
    tcp.peek(&mut first).await.map_err(failed)?;
    let mut io = Watched::new(tcp, activity.clone());
    // A TLS record begins with a control byte, an HTTP request with the name of a method.
    if first[0].is_ascii_alphabetic() {
        // Marks the request as unread, so that `Linger` reads and discards it. Otherwise the client might lose the
        // answer.
        activity.body_left_unread(false);
        let _ = io.write_all(SPEAK_TLS.as_bytes()).await;
        let _ = io.shutdown().await;
        return Err((HandshakeFailure::PlainHttp, None));
    }
    TlsAcceptor::from(tls.server()).accept(io).await.map_err(failed)
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_read(cx, buf),
            Self::Tls(io) => Pin::new(io).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write(cx, buf),
            Self::Tls(io) => Pin::new(io).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) if bufs.len() > 1 && is_small(bufs) => poll_write_joined(Pin::new(io), cx, bufs),
            Self::Plain(io) => Pin::new(io).poll_write_vectored(cx, bufs),
            Self::Tls(io) => Pin::new(io).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(io) => io.is_write_vectored(),
            Self::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_flush(cx),
            Self::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Self::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}

fn is_small(bufs: &[io::IoSlice<'_>]) -> bool {
    bufs.iter().map(|buf| buf.len()).sum::<usize>() <= JOINED
}

fn poll_write_joined(
    io: Pin<&mut impl AsyncWrite>,
    cx: &mut Context<'_>,
    bufs: &[io::IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    JOINT.with_borrow_mut(|joint| {
        joint.clear();
        bufs.iter().for_each(|buf| joint.extend_from_slice(buf));
        io.poll_write(cx, joint)
    })
}

// === impl HandshakeGuard ===

impl Drop for HandshakeGuard<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.metrics.handshake_failed(HandshakeFailure::Unfinished);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_to_plain_http_has_the_right_content_length() {
        let (head, body) = SPEAK_TLS.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{}", body.len());
    }
}
