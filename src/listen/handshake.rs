//! The TLS handshake of a connection.
//!
//! The handshake runs in the connection's own task, so it delays no other connection. [`Activity`] treats its bytes as
//! the start of a request head, so the time-out for heads also limits the handshake.

use std::{io, sync::Arc};

use tokio::{io::AsyncWriteExt, net::TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tracing::debug;

use super::{
    activity::Activity, handshake_failure::HandshakeFailure, metrics::Metrics, socket::Watched, tls::Tls,
};

/// Answer to a client that sends plain HTTP to a TLS listener.
const SPEAK_TLS: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
                         content-length: 41\r\nx-content-type-options: nosniff\r\n\
                         connection: close\r\n\r\nthis port requires TLS; retry with https\n";

/// Counts a handshake as failed if the guard is dropped before the handshake ends, when the flag is set.
struct HandshakeGuard<'a>(&'a Metrics, bool);

/// Performs the handshake. If it fails, logs and counts the failure and returns `None`.
pub(super) async fn secure(
    tcp: TcpStream,
    activity: Arc<Activity>,
    tls: &Tls,
    metrics: &Metrics,
) -> Option<TlsStream<Watched<TcpStream>>> {
    let mut under_way = HandshakeGuard(metrics, false);
    let secured = shake_hands(tcp, activity, tls).await;
    under_way.1 = true;
    secured
        .inspect_err(|(reason, error)| {
            let error = error.as_ref().map(tracing::field::display);
            debug!(reason = reason.as_str(), error, "TLS handshake failed");
            metrics.handshake_failed(*reason);
        })
        .ok()
}

async fn shake_hands(
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

// === impl HandshakeGuard ===

impl Drop for HandshakeGuard<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.handshake_failed(HandshakeFailure::Unfinished);
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
