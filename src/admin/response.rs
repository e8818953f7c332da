//! Responses of the admin listener.

use http::{HeaderValue, Response, StatusCode, header};

use super::body::Body;

pub(super) fn plain(status: StatusCode, text: String) -> Response<Body> {
    typed(status, "text/plain; charset=utf-8", text)
}

pub(super) fn typed(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    // Probes and people must see the current state.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
