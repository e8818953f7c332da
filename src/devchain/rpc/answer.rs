//! The result of a method, as JSON text.

use bytes::Bytes;

use crate::devchain::chain::error::RpcError;

/// What a method answers: the JSON text of its result.
pub(in crate::devchain) type Answer = Result<Bytes, RpcError>;

/// A number as the RPC writes it.
pub(super) fn quantity(number: impl std::fmt::LowerHex) -> String {
    format!("\"{number:#x}\"")
}

/// The result that says there is nothing.
pub(super) const fn null() -> Bytes {
    Bytes::from_static(b"null")
}
