//! Why an endpoint cannot be used as it is configured.

use std::{error::Error, sync::Arc};

use super::url::UrlError;
use crate::secret::SecretError;

/// An endpoint that cannot be used as it is configured.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// Not where the configuration says.
    #[error("url: {0}")]
    UrlSecret(#[source] SecretError),
    /// Not a URL.
    #[error("url: {0}")]
    Url(#[source] UrlError),
    /// Not where the configuration says.
    #[error("ws: {0}")]
    WsSecret(#[source] SecretError),
    /// Not the URL of a WebSocket.
    #[error("ws: {0}")]
    Ws(#[source] UrlError),
    /// Not a name for a header.
    #[error("headers: {name:?} is not the name of an HTTP header")]
    HeaderName {
        /// The name as given.
        name: String,
    },
    /// Not where the configuration says.
    #[error("headers.{name}: {source}")]
    HeaderSecret {
        /// The header's name.
        name: String,
        /// What is wrong.
        #[source]
        source: SecretError,
    },
    /// Two that cannot both be sent.
    #[error(
        "the url holds a user or a password, and headers.authorization is set: only one of them can be sent; \
         remove the other"
    )]
    TwoCredentials,
    /// Has a line break in it, say. The value is not repeated.
    #[error("headers.{name}: the value cannot stand in an HTTP header")]
    HeaderValue {
        /// The header's name.
        name: String,
    },
    /// One that the client sets itself, by what it sends.
    #[error("headers.{name}: is set by Holdfast itself, to fit what it sends; leave it out")]
    ReservedHeader {
        /// The header's name.
        name: String,
    },
    /// No share at all.
    #[error(
        "weight: must be at least 1; a node that is asked only when others fail has a higher priority than theirs"
    )]
    Weight,
    /// No call at all.
    #[error("rate.{key}: must be at least 1; leave rate out if there is no limit")]
    Rate {
        /// Which of its numbers.
        key: &'static str,
    },
    /// No TLS to be had.
    #[error("cannot set up the HTTP client: {0}")]
    Client(#[source] Arc<dyn Error + Send + Sync>),
}
