//! Turns errors and panics into a status, a code and a message. No other module does this.
//!
//! The messages say how to proceed. They reach untrusted clients, so they contain no secret, no path and no address of
//! an upstream.

use std::{
    any::Any,
    convert::Infallible,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{CatchUnwind, Either, Ready, ready},
};
use http::{HeaderValue, Response, StatusCode, header};
use pin_project_lite::pin_project;
use tower::{Layer, Service};
use tracing::{debug, error};

use super::{body::RpcBody, cache_status};
use crate::{
    http::{
        error::{HttpError, LeftOut},
        metrics::{Metrics, count_panic},
    },
    jsonrpc::{Answer, Code, ErrorObject, PacketError, RawId, ReplyWriter},
    listen::Refused,
    proxy::CallError,
    upstream::{Retry, UpstreamError},
};

/// Value of `retry-after` if the reason for the refusal gives no other value.
const RETRY_SOON: Duration = Duration::from_secs(1);

/// The error response to a call or a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorResponse {
    /// Status of the HTTP response. Not used for a call of a batch.
    pub status: StatusCode,
    /// The JSON-RPC error.
    pub error: ErrorObject,
    /// The `retry-after` header.
    pub retry_after: Option<Duration>,
    /// Whether the client has no access or is over its rate limit. Its connection may then be closed; see [`Refused`].
    pub is_refusal: bool,
}

/// Puts a [`Rescue`] around a service.
#[derive(Clone, Debug)]
pub(in crate::http) struct RescueLayer(pub(in crate::http) Metrics);

/// Answers and counts failed requests.
#[derive(Clone, Debug)]
pub(in crate::http) struct Rescue<S> {
    inner: S,
    metrics: Metrics,
}

pin_project! {
    /// Always resolves to a response.
    pub(in crate::http) struct ResponseFuture<F> {
        #[pin]
        inner: F,
        metrics: Metrics,
    }
}

/// Returns the response to a failed call.
pub fn call_error(error: &CallError) -> ErrorResponse {
    let message = match error {
        CallError::Params(error) => format!("invalid params: {error}"),
        CallError::Upstream(error) => upstream_message(error),
        _ => error.to_string(),
    };
    let code = error.code();
    let status = match code {
        Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        Code::UpstreamFailed => StatusCode::BAD_GATEWAY,
        Code::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
        Code::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
        Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::OK,
    };
    let retry_after = match (error, code) {
        (CallError::RateLimited { wait }, _) => Some(*wait),
        (CallError::Upstream(error), Code::RateLimited) => Some(match error.retry() {
            Retry::After(wait) => wait,
            Retry::Never | Retry::Elsewhere => RETRY_SOON,
        }),
        (_, Code::Overloaded) => Some(RETRY_SOON),
        _ => None,
    };
    let is_refusal = matches!(error, CallError::RateLimited { .. });
    let error = ErrorObject { data: error.data(), ..ErrorObject::new(code, message) };
    ErrorResponse { status, error, retry_after, is_refusal }
}

fn upstream_message(error: &UpstreamError) -> String {
    match error {
        // This text tells a client that sent a write that it may send the write again.
        UpstreamError::NotSent(error) => format!("{}; the call was not sent", upstream_message(error)),
        UpstreamError::TimedOut { .. } => format!("the upstream is too slow: {error}"),
        UpstreamError::RateLimited { .. } | UpstreamError::RateUsedUp { .. } | UpstreamError::Busy => {
            error.to_string()
        }
        UpstreamError::Rejected(mismatch) => {
            format!("the upstream's answer failed verification: {mismatch}")
        }
        _ => format!("the upstream failed: {error}"),
    }
}

/// Returns the response to a refused request.
pub fn http_error(error: &HttpError) -> ErrorResponse {
    let message = error.to_string();
    let refused = |status| ErrorResponse::new(status, Code::InvalidRequest, message.clone());
    match error {
        HttpError::Host(_) => refused(StatusCode::FORBIDDEN).refusal(),
        HttpError::NoKey | HttpError::BadKey => refused(StatusCode::UNAUTHORIZED).refusal(),
        HttpError::MethodNotAllowed | HttpError::WebSocket => refused(StatusCode::METHOD_NOT_ALLOWED),
        HttpError::Visit { .. } => refused(StatusCode::OK),
        HttpError::ContentType | HttpError::ContentEncoding => refused(StatusCode::UNSUPPORTED_MEDIA_TYPE),
        HttpError::BodyTooLarge { .. } => refused(StatusCode::PAYLOAD_TOO_LARGE),
        HttpError::BodyTimeout { .. } => refused(StatusCode::REQUEST_TIMEOUT),
        HttpError::BodyBroken => refused(StatusCode::BAD_REQUEST),
        // Clients that batch a lot, such as Blockscout, split a batch on this status.
        HttpError::Packet(PacketError::BatchTooLong { .. }) => refused(StatusCode::PAYLOAD_TOO_LARGE),
        HttpError::Packet(packet) => ErrorResponse::ok(packet.code(), message),
        HttpError::RateLimited { wait } | HttpError::TooManyUnauthenticated { wait } => {
            ErrorResponse::new(StatusCode::TOO_MANY_REQUESTS, Code::RateLimited, message)
                .retry_after(*wait)
                .refusal()
        }
        HttpError::Overloaded | HttpError::ClientLimit | HttpError::BytesExhausted => {
            ErrorResponse::new(StatusCode::SERVICE_UNAVAILABLE, Code::Overloaded, message)
                .retry_after(RETRY_SOON)
        }
    }
}

/// Returns the error for a call that its batch left out.
pub fn left_out(reason: LeftOut) -> ErrorObject {
    let code = match reason {
        LeftOut::BatchTooLarge { .. } => Code::InvalidRequest,
        LeftOut::Overloaded | LeftOut::ClientLimit => Code::Overloaded,
        LeftOut::BatchTimeout { .. } => Code::UpstreamTimeout,
    };
    ErrorObject::new(code, reason.to_string())
}

/// Returns the response to a call that panicked, and logs the panic with an id that the message names.
pub fn panicked(payload: &(dyn Any + Send)) -> ErrorResponse {
    let text = payload.downcast_ref::<&str>().copied();
    let reason =
        text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)");
    let id = format!("{:x}-{}", std::process::id(), count_panic());
    error!(id, reason, "call panicked; this is a bug");
    let message = format!("internal error {id}; the server's log has details");
    ErrorResponse::new(StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, message)
}

/// A running call that returns a panic as an error, or the panic that happened when the call began.
pub type Guarded<F> =
    Either<CatchUnwind<AssertUnwindSafe<F>>, Ready<Result<<F as Future>::Output, Box<dyn Any + Send>>>>;

/// Begins a call, and returns a panic as an error for [`panicked`].
pub fn guarded<F: Future>(call: impl FnOnce() -> F) -> Guarded<F> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(call) => Either::Left(AssertUnwindSafe(call).catch_unwind()),
        Err(payload) => Either::Right(ready(Err(payload))),
    }
}

// === impl ErrorResponse ===

impl ErrorResponse {
    fn new(status: StatusCode, code: Code, message: String) -> Self {
        Self { status, error: ErrorObject::new(code, message), retry_after: None, is_refusal: false }
    }

    fn ok(code: Code, message: String) -> Self {
        Self::new(StatusCode::OK, code, message)
    }

    fn retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    fn refusal(self) -> Self {
        Self { is_refusal: true, ..self }
    }

    /// Returns a response that contains only this error.
    fn into_response(self) -> Response<RpcBody> {
        let mut writer = ReplyWriter::single();
        writer.write(&RawId::NULL, Answer::from(&self.error));
        let rope = writer.finish().unwrap_or_default();
        let mut response = Response::new(RpcBody::new(rope, http::Version::HTTP_11));
        self.mark(&mut response);
        response.headers_mut().insert(cache_status::NAME, HeaderValue::from_static(cache_status::UNANSWERED));
        response
    }

    /// Sets the status and the headers of a response.
    pub(in crate::http) fn mark(&self, response: &mut Response<RpcBody>) {
        *response.status_mut() = self.status;
        if self.is_refusal {
            response.extensions_mut().insert(Refused);
        }
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(wait) = self.retry_after {
            // The wait is rounded up, because a client that comes back too early is refused again.
            headers.insert(
                header::RETRY_AFTER,
                HeaderValue::from(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)),
            );
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(header::ALLOW, HeaderValue::from_static("POST, OPTIONS"));
        }
    }
}

/// Returns the response to a request that is refused as a whole.
fn respond(error: &HttpError) -> Response<RpcBody> {
    let mut response = http_error(error).into_response();
    if let HttpError::Visit { hint } = error {
        *response.body_mut() = RpcBody::from(hint.clone());
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, plain);
    }
    response
}

// === impl RescueLayer ===

impl<S> Layer<S> for RescueLayer {
    type Service = Rescue<S>;

    fn layer(&self, inner: S) -> Rescue<S> {
        Rescue { inner, metrics: self.0.clone() }
    }
}

// === impl Rescue ===

impl<S, R> Service<R> for Rescue<S>
where
    S: Service<R, Response = Response<RpcBody>, Error = HttpError>,
{
    type Response = Response<RpcBody>;
    type Error = Infallible;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // All inner services are always ready, because calls wait inside their futures, for a bounded time.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        ResponseFuture { inner: self.inner.call(request), metrics: self.metrics.clone() }
    }
}

// === impl ResponseFuture ===

impl<F> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<RpcBody>, HttpError>>,
{
    type Output = Result<Response<RpcBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match catch_unwind(AssertUnwindSafe(|| this.inner.poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(Ok(response))) => Poll::Ready(Ok(response)),
            Ok(Poll::Ready(Err(error))) => {
                if !matches!(error, HttpError::Visit { .. }) {
                    debug!(reason = error.as_str(), "request refused");
                    this.metrics.refused(&error);
                }
                Poll::Ready(Ok(respond(&error)))
            }
            Err(payload) => Poll::Ready(Ok(panicked(payload.as_ref()).into_response())),
        }
    }
}
