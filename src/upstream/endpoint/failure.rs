//! Which failures count against an endpoint.

use http::StatusCode;

use super::super::{Call, UpstreamError};

/// Parameters that a node or what stands before it may refuse for their size.
const LARGE_CALL: usize = 256 * 1024;

/// Does this failure of a call speak against the endpoint, so that it is left alone after a few?
///
/// A client chooses its calls: what it can have any node say to it must not take the node from the others.
pub(in crate::upstream) fn counts_against_endpoint(call: &Call, error: &UpstreamError) -> bool {
    match error {
        // A head, a block, a count are never as large as that, and another may say it with less around it.
        UpstreamError::TooLarge { is_batch, .. } => call.has_known_shape() && !is_batch,
        // A node may hang up on what a call has it do. If it is gone, everyday calls and its identity fail, too.
        UpstreamError::Disconnected(_) => call.is_everyday() && !is_large(call),
        UpstreamError::Refused { status, .. } | UpstreamError::Status(status) => match *status {
            status if is_about_request_size(status) => false,
            // Whoever asks, and whatever for.
            StatusCode::UNAUTHORIZED
            | StatusCode::PAYMENT_REQUIRED
            | StatusCode::PROXY_AUTHENTICATION_REQUIRED
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE => true,
            // A provider may sell some methods only to some; these it sells to all.
            StatusCode::FORBIDDEN => call.is_everyday() || call.runs_client_code(),
            _ => call.is_everyday(),
        },
        error => error.is_endpoint_failure(),
    }
}

/// Returns whether this failure of a forwarded call counts against the endpoint as the primary.
///
/// More failures do than [against the endpoint](counts_against_endpoint): they only have another endpoint answer forwarded
/// calls, and any answered one clears them.
pub(super) fn counts_against_primary(call: &Call, error: &UpstreamError) -> bool {
    let is_own = match error {
        UpstreamError::Disconnected(_) => !is_large(call),
        UpstreamError::Status(status) => status.is_server_error(),
        UpstreamError::Refused { status, .. } => status.is_server_error() && !call.runs_client_code(),
        _ => false,
    };
    is_own || counts_against_endpoint(call, error)
}

/// Returns whether a node may cut the call off while it is being sent, for its size.
fn is_large(call: &Call) -> bool {
    call.params.as_bytes().len() > LARGE_CALL
}

/// Is it what was sent that is too large, or makes no sense?
pub(in crate::upstream) fn is_about_request_size(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::URI_TOO_LONG
            | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    )
}
