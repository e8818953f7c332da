//! The result of a method, as JSON text.

use bytes::Bytes;

use crate::devchain::chain::error::RpcError;

/// Answer of a method: the JSON text of its result.
pub(in crate::devchain) type Answer = Result<Bytes, RpcError>;

/// Formats a number as a JSON-RPC quantity.
pub(super) fn quantity(number: impl std::fmt::LowerHex) -> String {
    format!("\"{number:#x}\"")
}

/// Returns the result `null`.
pub(super) const fn null() -> Bytes {
    Bytes::from_static(b"null")
}
