//! What browsers are told of who may ask.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::Either;
use http::{HeaderName, HeaderValue, Method, Request, Response, header};
use tower::{Layer, Service};
use tower_http::cors::{self, AllowHeaders, AllowOrigin, ExposeHeaders};

use super::stack::REQUEST_ID;

/// Browsers ask again after this; they cap it at two hours or a day themselves.
const PREFLIGHT_MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Puts a [`Cors`] around a service.
#[derive(Clone, Debug)]
pub(super) struct CorsLayer(cors::CorsLayer);

/// Answers preflights, and tells pages whether they may read an answer.
///
/// Whoever names no origin is no page, and is told nothing: their answers need none of it.
#[derive(Clone, Debug)]
pub(super) struct Cors<S> {
    for_pages: cors::Cors<S>,
    for_others: S,
}

// === impl CorsLayer ===

impl CorsLayer {
    pub(super) fn new(origins: &[String]) -> Self {
        let origins = if origins.iter().any(|origin| origin == "*") {
            AllowOrigin::any()
        } else {
            AllowOrigin::list(origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()))
        };
        let exposed = [HeaderName::from_static("cache-status"), REQUEST_ID, header::RETRY_AFTER];
        let layer = cors::CorsLayer::new()
            .allow_origin(origins)
            .allow_methods([Method::POST, Method::OPTIONS])
            .allow_headers(AllowHeaders::mirror_request())
            // A page on the web that uses a sidecar on its visitor's machine is what this is for.
            .allow_private_network(true)
            .expose_headers(ExposeHeaders::list(exposed))
            .max_age(PREFLIGHT_MAX_AGE);
        Self(layer)
    }
}

impl<S: Clone> Layer<S> for CorsLayer {
    type Service = Cors<S>;

    fn layer(&self, inner: S) -> Cors<S> {
        Cors { for_pages: self.0.layer(inner.clone()), for_others: inner }
    }
}

// === impl Cors ===

impl<S, A, B> Service<Request<A>> for Cors<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: Default,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Either<S::Future, cors::ResponseFuture<S::Future>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.for_others.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        if request.headers().contains_key(header::ORIGIN) || request.method() == Method::OPTIONS {
            Either::Right(self.for_pages.call(request))
        } else {
            Either::Left(self.for_others.call(request))
        }
    }
}
