//! The cause of a failed request, in words that say what to do.

use std::{error::Error, io, iter, sync::Arc};

/// The innermost cause: "connection refused" rather than "error sending request".
pub(in crate::upstream) fn root_cause(error: &(dyn Error + 'static)) -> Arc<dyn Error + Send + Sync> {
    let message = match causes(error).last() {
        Some(cause) if is_no_tls(cause) => NO_TLS.to_owned(),
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    };
    Arc::from(Box::<dyn Error + Send + Sync>::from(message))
}

/// An error and what it was caused by, the innermost last.
pub(super) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| error.source())
}

/// In words that say what to do, where the library's are about its messages.
const NO_TLS: &str =
    "what listens there does not speak TLS; if the node speaks plain http, its url begins with http://";

/// Did the other side answer a handshake with something else?
fn is_no_tls(cause: &(dyn Error + 'static)) -> bool {
    // An `io::Error` does not name what it holds as its source, and may hold another.
    if let Some(inner) = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        return is_no_tls(inner);
    }
    matches!(
        cause.downcast_ref(),
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType))
    )
}
