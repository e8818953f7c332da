//! Identifies the client of a request, and refuses requests without access.

use std::{
    net::IpAddr,
    pin::pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes};
use futures_util::future::{BoxFuture, Either};
use http::{Request, Response, header};
use http_body::Body;
use http_body_util::BodyExt;
use tower::{Layer, Service};

use super::{head::RequestHead, rules::Access};
use crate::{
    client::Client,
    http::{error::HttpError, response::body::RpcBody},
    listen::Peer,
    proxy::Caller,
    timeout::timeout,
};

/// Largest body that is read before a refusal.
const SMALL_BODY: u64 = 64 << 10;

/// Longest wait for the body of a request that is refused.
const BODY_PATIENCE: Duration = Duration::from_secs(1);

/// Puts an [`Auth`] around a service.
#[derive(Clone, Debug)]
pub(in crate::http) struct AuthLayer {
    access: Access,
    is_loopback: bool,
    /// Text for people who open the endpoint in a browser.
    hint: Bytes,
}

/// Admits the requests that the rules in force allow, before their bodies are read.
#[derive(Clone, Debug)]
pub(in crate::http) struct Auth<S> {
    inner: S,
    access: Access,
    is_loopback: bool,
    hint: Bytes,
}

/// A request of a client that has access, with the parts of its head that the inner services need.
#[derive(Debug)]
pub(in crate::http) struct Admitted<B> {
    /// The head, or the reason why the innermost service refuses the request.
    pub(in crate::http) head: Result<RequestHead, HttpError>,
    pub(in crate::http) body: B,
    /// The client, its policy and its rate.
    pub(in crate::http) caller: Caller,
}

// === impl AuthLayer ===

impl AuthLayer {
    /// Creates the layer. `listener` is the address of the listener, if there is one.
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
    B: Body<Data: Send> + Peer + Send + 'static,
{
    type Response = Response<RpcBody>;
    type Error = HttpError;
    type Future = Either<S::Future, BoxFuture<'static, Result<Response<RpcBody>, HttpError>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.access.admit(&request, request.body().peer(), self.is_loopback) {
            Ok(caller) => {
                if let Some(Client::Key(key)) = caller.client {
                    request.body().authenticate(key);
                }
                let head = RequestHead::check(&request, &self.hint);
                Either::Left(self.inner.call(Admitted { head, body: request.into_body(), caller }))
            }
            Err(refusal) => Either::Right(Box::pin(refuse(small_body(request), refusal))),
        }
    }
}

/// Returns the body of a request, unless its announced length is too large to read before a refusal.
fn small_body<B>(request: Request<B>) -> Option<B> {
    let header = |name| request.headers().get(name);
    let length = header(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    // A client that expects `100 Continue` has not sent its body.
    let is_small = header(header::EXPECT).is_none() && length.is_none_or(|length| length <= SMALL_BODY);
    is_small.then(|| request.into_body())
}

/// Reads the body, if it is given, within [`SMALL_BODY`] and [`BODY_PATIENCE`], and then refuses the request. Without
/// the read, a client that is still sending its body could miss the refusal: some clients report a broken connection
/// instead.
async fn refuse<B: Body>(body: Option<B>, refusal: HttpError) -> Result<Response<RpcBody>, HttpError> {
    if let Some(body) = body {
        let mut body = pin!(body);
        let read = async {
            let mut left = SMALL_BODY;
            while let Some(Ok(frame)) = body.frame().await {
                let length = frame.data_ref().map_or(0, |data| data.remaining() as u64);
                match left.checked_sub(length) {
                    Some(rest) => left = rest,
                    None => break,
                }
            }
        };
        let _ = timeout(BODY_PATIENCE, read).await;
    }
    Err(refusal)
}
