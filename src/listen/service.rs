//! What a listener needs of a service.

use std::error::Error;

use http::{Request, Response};
use http_body::Body;
use tower::{BoxError, Service};

use super::RequestBody;

/// Among a response's extensions: its request was refused for who sent it, or how often. The connection ends with it, unless
/// the peer is a trusted proxy or has shown a valid key.
#[derive(Clone, Copy, Debug)]
pub struct Refused;

/// A service that a listener can serve connections with, each with a clone of its own. It must always be
/// ready: nobody asks it.
///
/// Nothing implements this by hand: every service that fits does.
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
    /// The body of its responses.
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
