//! The body of an admin response: whole, or a stream of events.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Frame, SizeHint};
use http_body_util::Full;

/// The body of a response.
pub enum Body {
    /// A body that is complete.
    Whole(Full<Bytes>),
    /// A stream of pieces, which ends when the [`Ticker`](super::Ticker) is dropped.
    Streamed(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

// === impl Body ===

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Whole(Full::from(text))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(whole) => Pin::new(whole).poll_frame(cx),
            Self::Streamed(pieces) => {
                pieces.as_mut().poll_next(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_end_stream(),
            Self::Streamed(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => whole.size_hint(),
            Self::Streamed(_) => SizeHint::default(),
        }
    }
}
