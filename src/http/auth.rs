//! Finds out who makes a request, and whether they may.

use std::{
    future::{Ready, ready},
    net::IpAddr,
    task::{Context, Poll},
};

use futures_util::future::Either;
use http::{Request, Response};
use tower::{Layer, Service};

use super::{Access, HttpError, RpcBody};
use crate::{listen::Peer, proxy::Caller};

/// Puts an [`Auth`] around a service.
#[derive(Clone, Debug)]
pub(super) struct AuthLayer {
    access: Access,
    is_loopback: bool,
}

/// Lets requests in that the rules in force allow, before anything of their bodies is read.
#[derive(Clone, Debug)]
pub(super) struct Auth<S> {
    inner: S,
    access: Access,
    is_loopback: bool,
}

/// A request that may come in.
#[derive(Debug)]
pub(super) struct Admitted<B> {
    pub(super) request: Request<B>,
    /// Who makes it.
    pub(super) caller: Caller,
}

// === impl AuthLayer ===

impl AuthLayer {
    /// For requests to a listener on this address, if there is one.
    pub(super) fn new(access: Access, listener: Option<IpAddr>) -> Self {
        Self { access, is_loopback: listener.is_some_and(|address| address.to_canonical().is_loopback()) }
    }
}

impl<S> Layer<S> for AuthLayer {
    type Service = Auth<S>;

    fn layer(&self, inner: S) -> Auth<S> {
        Auth { inner, access: self.access.clone(), is_loopback: self.is_loopback }
    }
}

// === impl Auth ===

impl<S, B> Service<Request<B>> for Auth<S>
where
    S: Service<Admitted<B>, Response = Response<RpcBody>, Error = HttpError>,
    B: Peer,
{
    type Response = Response<RpcBody>;
    type Error = HttpError;
    type Future = Either<S::Future, Ready<Result<Response<RpcBody>, HttpError>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.access.admit(&request, request.body().peer(), self.is_loopback) {
            Ok(caller) => Either::Left(self.inner.call(Admitted { request, caller })),
            Err(refusal) => Either::Right(ready(Err(refusal))),
        }
    }
}
