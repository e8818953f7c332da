//! Identifies the client of a request, and refuses requests without access.

use std::{
    net::IpAddr,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::Either;
use http::{Request, Response};
use tower::{Layer, Service};

use super::{head::RequestHead, rules::Access};
use crate::{
    client::Client,
    http::{
        error::HttpError,
        response::{body::RpcBody, refused::RefusedFuture},
    },
    listen::Peer,
    proxy::Caller,
};

/// Puts an [`Auth`] around a service.
#[derive(Clone, Debug)]
pub(in crate::http) struct AuthLayer {
    access: Access,
    is_loopback: bool,
    /// Text for people who open the endpoint in a browser.
    hint: Bytes,
}

/// Admits the requests that the rules in force allow, before it reads any of their bodies.
#[derive(Clone, Debug)]
pub(in crate::http) struct Auth<S> {
    inner: S,
    access: Access,
    is_loopback: bool,
    hint: Bytes,
}

/// An admitted request, with the parts of its head that matter further on.
#[derive(Debug)]
pub(in crate::http) struct Admitted<B> {
    /// The head, or the reason to refuse it.
    pub(in crate::http) head: Result<RequestHead, HttpError>,
    pub(in crate::http) body: B,
    /// The client, its policy and its rate.
    pub(in crate::http) caller: Caller,
}

// === impl AuthLayer ===

impl AuthLayer {
    /// Creates the layer for a listener on this address, if there is one.
    pub(in crate::http) fn new(access: Access, listener: Option<IpAddr>, hint: Bytes) -> Self {
        let is_loopback = listener.is_some_and(|address| address.to_canonical().is_loopback());
        Self { access, is_loopback, hint }
    }
}

impl<S> Layer<S> for AuthLayer {
    type Service = Auth<S>;

    fn layer(&self, inner: S) -> Auth<S> {
        Auth { inner, access: self.access.clone(), is_loopback: self.is_loopback, hint: self.hint.clone() }
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
    type Future = Either<S::Future, RefusedFuture>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.access.admit(&request, request.body().peer(), self.is_loopback) {
            Ok(caller) => {
                if let Some(Client::Key(_)) = caller.client {
                    request.body().authenticate();
                }
                let head = RequestHead::check(&request, &self.hint);
                Either::Left(self.inner.call(Admitted { head, body: request.into_body(), caller }))
            }
            Err(refusal) => Either::Right(RefusedFuture::new(refusal)),
        }
    }
}
