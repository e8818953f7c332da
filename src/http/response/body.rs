//! The body of an answer.

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

/// What HTTP/2 is handed at a time: it buffers a piece whole, however little of it the peer takes, and
/// only the next one shows that the peer takes anything. As large as its frames are.
const PIECE: usize = 16 * 1024;

/// An answer, with what it holds until it has been taken.
///
/// Over HTTP/1.1 it is one portion, written with one vectored write.
#[derive(Debug, Default)]
pub struct RpcBody {
    rope: Rope,
    piecewise: bool,
    reservation: Reservation,
}

/// A part of an answer on its way to the socket. The last one takes along what the answer holds: a connection lets go of
/// the body as soon as it has been handed all of it, and of a portion when that has been sent.
#[derive(Debug)]
pub struct Portion {
    rope: Rope,
    _reservation: Reservation,
}

/// What is not free for others before an answer has been taken.
#[derive(Debug, Default)]
struct Reservation {
    /// The request's place.
    permit: Option<Permit>,
    /// The bytes, if they are many. On the heap, as most answers have none.
    lease: Option<Box<ByteLease>>,
}

// === impl RpcBody ===

impl RpcBody {
    pub(in crate::http) fn new(rope: Rope, version: Version) -> Self {
        Self { rope, piecewise: version == Version::HTTP_2, ..Self::default() }
    }

    /// How much there is to send.
    pub(in crate::http) fn len(&self) -> usize {
        self.rope.len()
    }

    /// Holds these bytes until it has been taken.
    pub(in crate::http) fn hold(&mut self, lease: ByteLease) {
        self.reservation.lease = Some(Box::new(lease));
    }

    /// Keeps a request's place until it has been taken.
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
