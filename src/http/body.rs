//! The body of an answer.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use super::in_flight::Permit;
use crate::{budget::Lease, jsonrpc::Rope};
use bytes::Bytes;
use http::Version;
use http_body::{Body, Frame, SizeHint};

/// What HTTP/2 is handed at a time: it buffers a piece whole, however little of it the peer takes, and
/// only the next one shows that the peer takes anything. As large as its frames are.
const PIECE: usize = 16 * 1024;

/// Bytes of an answer, with the permits they were made under.
///
/// Over HTTP/1.1 it is one frame, written with one vectored write.
#[derive(Debug, Default)]
pub struct RpcBody {
    rope: Rope,
    piecewise: bool,
    /// A request is in flight until its answer has been taken.
    _permit: Option<Permit>,
    /// And so are its bytes.
    _lease: Option<Lease>,
}

// === impl RpcBody ===

impl RpcBody {
    pub(super) fn new(rope: Rope, version: Version) -> Self {
        Self { rope, piecewise: version == Version::HTTP_2, ..Self::default() }
    }

    /// How much there is to send.
    pub(super) fn len(&self) -> usize {
        self.rope.len()
    }

    pub(super) fn with_lease(self, lease: Lease) -> Self {
        Self { _lease: Some(lease), ..self }
    }

    pub(super) fn with_permit(self, permit: Permit) -> Self {
        Self { _permit: Some(permit), ..self }
    }
}

impl From<Bytes> for RpcBody {
    fn from(bytes: Bytes) -> Self {
        Self { rope: bytes.into(), ..Self::default() }
    }
}

impl Body for RpcBody {
    type Data = Rope;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Rope>, Infallible>>> {
        if self.rope.is_empty() {
            return Poll::Ready(None);
        }
        let data =
            if self.piecewise { self.rope.take_piece(PIECE).into() } else { std::mem::take(&mut self.rope) };
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.rope.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rope.len() as u64)
    }
}
