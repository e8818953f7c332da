//! The body of a response.

use std::{
    convert::Infallible,
    io::IoSlice,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http::Version;
use http_body::{Body, Frame, SizeHint};

use crate::{budget::ByteLease, http::permit::Permit, jsonrpc::Rope};

/// Size of the pieces of an HTTP/2 body, which is the size of an HTTP/2 frame. hyper buffers a whole piece, even if the
/// peer reads little of it. So only hyper's request for the next piece shows that the peer is reading.
const PIECE: usize = 16 * 1024;

/// The body of a response, with the request's permit and byte lease, which are released once the body is sent.
///
/// Over HTTP/1.1 the body is one portion, written with one vectored write.
#[derive(Debug, Default)]
pub struct RpcBody {
    rope: Rope,
    piecewise: bool,
    reservation: Reservation,
}

/// A part of a response on its way to the socket. The last portion takes over the body's permit and lease, because a
/// connection drops the body once it has received all portions, but drops a portion only once it is sent.
#[derive(Debug)]
pub struct Portion {
    rope: Rope,
    _reservation: Reservation,
}

/// The resources that a response holds until it is sent.
#[derive(Debug, Default)]
struct Reservation {
    /// The request's permit.
    permit: Option<Permit>,
    /// Lease on the bytes of a large answer. It is boxed, because most answers are small.
    lease: Option<Box<ByteLease>>,
}

// === impl RpcBody ===

impl RpcBody {
    pub(in crate::http) fn new(rope: Rope, version: Version) -> Self {
        Self { rope, piecewise: version == Version::HTTP_2, ..Self::default() }
    }

    /// Returns the number of bytes left to send.
    pub(in crate::http) fn len(&self) -> usize {
        self.rope.len()
    }

    /// Holds this lease until the body is sent.
    pub(in crate::http) fn hold(&mut self, lease: ByteLease) {
        self.reservation.lease = Some(Box::new(lease));
    }

    /// Holds the request's permit until the body is sent.
    pub(in crate::http) fn keep(&mut self, permit: Option<Permit>) {
        self.reservation.permit = permit;
    }
}

impl From<Bytes> for RpcBody {
    fn from(bytes: Bytes) -> Self {
        Self { rope: bytes.into(), ..Self::default() }
    }
}

impl Body for RpcBody {
    type Data = Portion;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Portion>, Infallible>>> {
        if self.rope.is_empty() {
            return Poll::Ready(None);
        }
        let rope =
            if self.piecewise { self.rope.take_piece(PIECE).into() } else { std::mem::take(&mut self.rope) };
        let reservation =
            if self.rope.is_empty() { std::mem::take(&mut self.reservation) } else { Reservation::default() };
        Poll::Ready(Some(Ok(Frame::data(Portion { rope, _reservation: reservation }))))
    }

    fn is_end_stream(&self) -> bool {
        self.rope.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rope.len() as u64)
    }
}

// === impl Portion ===

impl Buf for Portion {
    fn remaining(&self) -> usize {
        self.rope.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.rope.chunk()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.rope.chunks_vectored(slices)
    }

    fn advance(&mut self, count: usize) {
        self.rope.advance(count);
    }
}
