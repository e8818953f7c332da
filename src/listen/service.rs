//! The interface between a listener and its service.

use std::error::Error;

use http::{Request, Response};
use http_body::Body;
use tower::{BoxError, Service};

use super::RequestBody;

/// Response extension that marks a refused request: the client has no access or exceeds its rate limit. The connection
/// closes after this response, unless the peer is a trusted proxy or has sent a valid key.
#[derive(Clone, Copy, Debug)]
pub struct Refused;

/// A service that a listener can serve, with one clone per connection. The service must always be ready, because the
/// listener does not call `poll_ready`.
///
/// Implemented for every service that meets the bounds.
pub trait HttpService:
    Service<
        Request<RequestBody>,
        Response = Response<<Self as HttpService>::Body>,
        Error: Into<BoxError>,
        Future: Send + 'static,
    > + Clone
    + Send
    + 'static
{
    /// The body of the service's responses.
    type Body: Body<Data: Send, Error: Error + Send + Sync> + Send + 'static;
}

impl<S, B> HttpService for S
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error: Into<BoxError>, Future: Send + 'static>
        + Clone
        + Send
        + 'static,
    B: Body<Data: Send, Error: Error + Send + Sync> + Send + 'static,
{
    type Body = B;
}
