//! The root cause of a failed request, with advice where possible.

use std::{error::Error, io, iter, sync::Arc};

/// Returns the innermost cause: "connection refused" rather than "error sending request".
pub(crate) fn root_cause(error: &(dyn Error + 'static)) -> Arc<dyn Error + Send + Sync> {
    let message = match causes(error).last() {
        Some(cause) if is_no_tls(cause) => NO_TLS.to_owned(),
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    };
    Arc::from(Box::<dyn Error + Send + Sync>::from(message))
}

/// Iterates over an error and its sources, the innermost last.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| error.source())
}

/// Message in place of that of the TLS library, which gives no advice.
const NO_TLS: &str =
    "the server does not speak TLS; if the node speaks plain HTTP, write its url with http://";

/// Returns whether the server answered the TLS handshake with something else.
pub(crate) fn is_no_tls(cause: &(dyn Error + 'static)) -> bool {
    // `io::Error` does not return its inner error as its source, and may be nested.
    if let Some(inner) = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        return is_no_tls(inner);
    }
    matches!(
        cause.downcast_ref(),
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType))
    )
}
