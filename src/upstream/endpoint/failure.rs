//! Decides which failures count against an endpoint.

use http::StatusCode;

use super::super::{Call, UpstreamError};

/// Size of parameters, in bytes, above which a node or a proxy in front of it may reject the call.
const LARGE_CALL: usize = 256 * 1024;

/// Returns whether a failed call counts against the endpoint. A few such failures open its circuit breaker.
///
/// Clients choose their calls, so an error that a client can provoke at any node must not make the node unavailable to
/// other clients.
pub(in crate::upstream) fn counts_against_endpoint(call: &Call, error: &UpstreamError) -> bool {
    match error {
        // If an answer of a known shape exceeds the limit, this endpoint is at fault. A batch may exceed the limit at
        // any endpoint.
        UpstreamError::TooLarge { is_batch, .. } => call.has_known_shape() && !is_batch,
        // A node may close the connection because a call is too expensive, so only everyday calls count. If the node
        // is down, everyday calls and identity checks fail, too.
        UpstreamError::Disconnected(_) => call.is_everyday() && !is_large(call),
        UpstreamError::Refused { status, .. } | UpstreamError::Status { status, .. } => match *status {
            status if is_about_request_size(status) => false,
            // These statuses depend on neither the client nor the call.
            StatusCode::UNAUTHORIZED
            | StatusCode::PAYMENT_REQUIRED
            | StatusCode::PROXY_AUTHENTICATION_REQUIRED
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE => true,
            // Providers restrict some methods to some customers, but not everyday calls or calls such as `eth_call`.
            StatusCode::FORBIDDEN => call.is_everyday() || call.runs_client_code(),
            _ => call.is_everyday(),
        },
        error => error.is_endpoint_failure(),
    }
}

/// Returns whether a failed forwarded call counts as a reason to replace the endpoint as the primary.
///
/// More failures count here than in [`counts_against_endpoint`], because the consequence is milder: another endpoint
/// becomes the primary, but this one stays available. Any forwarded call that succeeds clears the count.
pub(super) fn counts_against_primary(call: &Call, error: &UpstreamError) -> bool {
    let is_own = match error {
        UpstreamError::Disconnected(_) => !is_large(call),
        UpstreamError::Status { status, .. } => status.is_server_error(),
        UpstreamError::Refused { status, .. } => status.is_server_error() && !call.runs_client_code(),
        _ => false,
    };
    is_own || counts_against_endpoint(call, error)
}

/// Returns whether a node may cut the call off while receiving it, because of its size.
fn is_large(call: &Call) -> bool {
    call.params.as_bytes().len() > LARGE_CALL
}

/// Returns whether the status blames the request itself: too large, or malformed.
pub(in crate::upstream) fn is_about_request_size(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::URI_TOO_LONG
            | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    )
}
