//! A request that is refused, as the future of its answer.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::Response;

use super::body::RpcBody;
use crate::http::error::HttpError;

/// Resolves to why it is refused, at once.
///
/// What is ready with a response would do as well, but takes the room of one in the future of every request, and that is
/// moved through all layers.
#[derive(Debug)]
pub(in crate::http) struct RefusedFuture(Option<HttpError>);

// === impl RefusedFuture ===

impl RefusedFuture {
    pub(in crate::http) fn new(reason: HttpError) -> Self {
        Self(Some(reason))
    }
}

impl Future for RefusedFuture {
    type Output = Result<Response<RpcBody>, HttpError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Err(self.0.take().expect("a future is not polled after it is ready")))
    }
}
