//! The response future of a refused request.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::Response;

use super::body::RpcBody;
use crate::http::error::HttpError;

/// Resolves at once to the reason for the refusal.
///
/// `std::future::Ready` would work, too, but it has the size of a whole response. It would enlarge the future of every
/// request, which moves through all layers.
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
        Poll::Ready(Err(self.0.take().expect("future polled after completion")))
    }
}
