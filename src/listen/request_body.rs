//! The body of a request, as a listener hands it to its service.

use std::{
    net::IpAddr,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;

use super::activity::Activity;

/// If at most this many bytes of a request body are unread, the connection stays open. So short a rest has usually
/// arrived together with the head, and hyper can skip it.
const SHORT: u64 = 4096;

/// A request body that knows the address of its peer.
///
/// Bodies implement this trait because they belong to a connection anyway. A request extension would cost two
/// allocations per request.
pub trait Peer {
    /// Returns the peer's address; `None` if there is no connection.
    fn peer(&self) -> Option<IpAddr>;

    /// Records that the client has sent a valid key: the first bytes of its hash. Refused requests then no longer close
    /// the connection, and only connections with a key displace it.
    fn authenticate(&self, key: u64);
}

/// The body of a request, as it comes from the connection.
#[derive(Debug)]
pub struct RequestBody {
    body: Incoming,
    ended: bool,
    activity: Arc<Activity>,
    peer: IpAddr,
}

// === impl RequestBody ===

impl RequestBody {
    pub(super) fn new(body: Incoming, activity: Arc<Activity>, peer: IpAddr) -> Self {
        Self { body, ended: false, activity, peer }
    }
}

impl Peer for RequestBody {
    fn peer(&self) -> Option<IpAddr> {
        Some(self.peer)
    }

    fn authenticate(&self, key: u64) {
        self.activity.key.store(key.max(1), Relaxed);
    }
}

/// The body of a request that Holdfast itself creates, without a connection.
impl<D> Peer for Full<D> {
    fn peer(&self) -> Option<IpAddr> {
        None
    }

    fn authenticate(&self, _: u64) {}
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
