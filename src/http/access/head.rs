//! The parts of a request's head that decide how the request is read and answered.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Version, header};

use crate::http::{error::HttpError, response::encoding::Accepted};

/// The parts of a request's head that the inner services need.
#[derive(Debug)]
pub(in crate::http) struct RequestHead {
    pub(in crate::http) version: Version,
    pub(in crate::http) accepted: Accepted,
    /// Length of the body, as `content-length` announces it.
    pub(in crate::http) announced: Option<u64>,
}

/// The headers that are checked, found in one pass. Requests have few headers, so one pass costs less than a lookup for
/// each field.
#[derive(Default)]
struct HeadHeaders<'a> {
    upgrade: Option<&'a HeaderValue>,
    content_type: Option<&'a HeaderValue>,
    content_encoding: Option<&'a HeaderValue>,
    content_length: Option<&'a HeaderValue>,
    /// Whether the request has an `accept-encoding`.
    accepts: bool,
    /// Whether there is an `origin`, as browsers send it for web pages.
    has_origin: bool,
}

// === impl RequestHead ===

impl RequestHead {
    /// Checks that the body of a request may be a JSON-RPC packet.
    ///
    /// # Errors
    /// If the method or a header shows that it is not.
    pub(in crate::http) fn check<B>(request: &Request<B>, hint: &Bytes) -> Result<Self, HttpError> {
        let (method, headers) = (request.method(), request.headers());
        let HeadHeaders { upgrade, content_type, content_encoding, content_length, accepts, has_origin } =
            HeadHeaders::of(headers);
        if upgrade.is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket")) {
            return Err(HttpError::WebSocket);
        }
        if method != Method::POST {
            // Browsers open this path, and load balancers probe it.
            let is_visit = matches!(*method, Method::GET | Method::HEAD) && request.uri().path() == "/";
            // The answer to HEAD has no body; over HTTP/2 hyper would send one.
            let hint = if *method == Method::HEAD { Bytes::new() } else { hint.clone() };
            return Err(if is_visit { HttpError::Visit { hint } } else { HttpError::MethodNotAllowed });
        }
        // A web page can send other content types without a preflight, so its content type must be JSON.
        if !content_type.map_or(!has_origin, is_json) {
            return Err(HttpError::ContentType);
        }
        if content_encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(HttpError::ContentEncoding);
        }
        let announced = content_length.and_then(|length| length.to_str().ok()?.parse().ok());
        let accepted = if accepts { Accepted::of(headers) } else { Accepted::Unsaid };
        Ok(Self { version: request.version(), accepted, announced })
    }
}

// === impl HeadHeaders ===

impl<'a> HeadHeaders<'a> {
    fn of(headers: &'a HeaderMap) -> Self {
        let mut named = Self::default();
        for (name, value) in headers {
            let place = match name {
                name if name == header::UPGRADE => &mut named.upgrade,
                name if name == header::CONTENT_TYPE => &mut named.content_type,
                name if name == header::CONTENT_ENCODING => &mut named.content_encoding,
                name if name == header::CONTENT_LENGTH => &mut named.content_length,
                name => {
                    named.accepts |= name == header::ACCEPT_ENCODING;
                    named.has_origin |= name == header::ORIGIN;
                    continue;
                }
            };
            // If there are several headers of this name, the first one is used.
            place.get_or_insert(value);
        }
        named
    }
}

/// Returns whether this is a content type of JSON-RPC, with or without parameters such as a charset.
fn is_json(content_type: &HeaderValue) -> bool {
    let essence = content_type.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    ["application/json", "application/json-rpc"]
        .iter()
        .any(|json| essence.eq_ignore_ascii_case(json.as_bytes()))
}
