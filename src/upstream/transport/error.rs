//! Errors in the configuration of an endpoint.

use std::{error::Error, sync::Arc};

use super::url::UrlError;
use crate::secret::SecretError;

/// An endpoint whose configuration is unusable.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The name is too long, or unsuitable for logs and metrics.
    #[error("name: must be 1 to 40 printable ASCII characters, without spaces at the ends")]
    Name,
    /// The secret that holds the URL cannot be read.
    #[error("url: {0}")]
    UrlSecret(#[source] SecretError),
    /// The URL is invalid.
    #[error("url: {0}")]
    Url(#[source] UrlError),
    /// The secret that holds the WebSocket URL cannot be read.
    #[error("ws: {0}")]
    WsSecret(#[source] SecretError),
    /// The WebSocket URL is invalid.
    #[error("ws: {0}")]
    Ws(#[source] UrlError),
    /// A header name is invalid.
    #[error("headers: {name:?} is not a valid HTTP header name")]
    HeaderName {
        /// The name as configured.
        name: String,
    },
    /// The secret that holds a header's value cannot be read.
    #[error("headers.{name}: {source}")]
    HeaderSecret {
        /// The header's name.
        name: String,
        /// The cause.
        #[source]
        source: SecretError,
    },
    /// Both the URL and a header hold credentials.
    #[error(
        "the url holds a user or a password, and headers.authorization is set: only one can be sent; \
         remove one of them"
    )]
    TwoCredentials,
    /// A header's value is invalid; it may hold a line break. The message omits the value.
    #[error("headers.{name}: the value is not valid in an HTTP header")]
    HeaderValue {
        /// The header's name.
        name: String,
    },
    /// The header is about the connection or the body, which Holdfast manages itself.
    #[error("headers.{name}: is managed by Holdfast itself; leave it out")]
    ReservedHeader {
        /// The header's name.
        name: String,
    },
    /// The weight is zero.
    #[error(
        "weight: must be at least 1; to use a node only when others fail, give it a higher priority value"
    )]
    Weight,
    /// A rate is zero.
    #[error("rate.{key}: must be at least 1; leave rate out if there is no limit")]
    Rate {
        /// The key that is zero.
        key: &'static str,
    },
    /// The TLS setup failed.
    #[error("cannot set up the HTTP client: {0}")]
    Client(#[source] Arc<dyn Error + Send + Sync>),
}
