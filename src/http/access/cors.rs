//! CORS rules, which decide which web pages may read answers.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use arc_swap::ArcSwap;
use futures_util::future::Either;
use http::{HeaderName, HeaderValue, Method, Request, Response, header};
use tower::{Layer, Service};
use tower_http::cors::{self, AllowHeaders, AllowOrigin, ExposeHeaders};

use crate::http::{config::Config, sender::header::first, trace::REQUEST_ID};

/// Time for which browsers may cache a preflight response. Browsers cap it at two hours or a day.
const PREFLIGHT_MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Puts a [`Cors`] around a service.
#[derive(Clone, Debug)]
pub(in crate::http) struct CorsLayer(pub(in crate::http) CorsRules);

/// Answers preflights, and adds the CORS headers in force to responses.
#[derive(Clone, Debug)]
pub(in crate::http) struct Cors<S> {
    inner: S,
    rules: CorsRules,
}

/// The CORS headers in force. Clones share them.
#[derive(Clone, Debug)]
pub(in crate::http) struct CorsRules(Arc<ArcSwap<cors::CorsLayer>>);

/// Returns CORS rules that allow the origins of `http.allowed_origins`, or any origin if `*` is among them.
fn rules(config: &Config) -> cors::CorsLayer {
    let origins = &config.allowed_origins;
    let origins = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        AllowOrigin::list(origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()))
    };
    cors::CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::POST, Method::OPTIONS])
        .allow_headers(AllowHeaders::mirror_request())
        // A public web page may use Holdfast on its visitor's machine, which browsers treat as a private network.
        .allow_private_network(true)
        .expose_headers(ExposeHeaders::list([
            HeaderName::from_static("cache-status"),
            REQUEST_ID,
            header::RETRY_AFTER,
        ]))
        .max_age(PREFLIGHT_MAX_AGE)
}

// === impl CorsRules ===

impl CorsRules {
    pub(in crate::http) fn new(config: &Config) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(rules(config))))
    }

    pub(in crate::http) fn set(&self, config: &Config) {
        self.0.store(Arc::new(rules(config)));
    }
}

// === impl CorsLayer ===

impl<S> Layer<S> for CorsLayer {
    type Service = Cors<S>;

    fn layer(&self, inner: S) -> Cors<S> {
        Cors { inner, rules: self.0.clone() }
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
    // The CORS future is boxed, because few requests come from web pages.
    type Future = Either<S::Future, Pin<Box<cors::ResponseFuture<S::Future>>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        // A request without an origin does not come from a web page and needs no CORS headers.
        if first(request.headers(), &header::ORIGIN).is_none() && request.method() != Method::OPTIONS {
            return Either::Left(self.inner.call(request));
        }
        // The service is built for this one request, around a reference to the inner service. This clones no more than
        // a layer with fixed rules would.
        Either::Right(Box::pin(self.rules.0.load().layer(&mut self.inner).call(request)))
    }
}
