//! The error object of a JSON-RPC answer.

use super::mempool::TxRefusal;

/// An error answer of the node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// The JSON-RPC code.
    pub code: i64,
    /// The text, in geth's words if geth has this error.
    pub message: String,
}

// === impl RpcError ===

impl RpcError {
    /// Creates an error with any code.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The body is not JSON.
    pub(in crate::devchain) fn parse() -> Self {
        Self::new(-32700, "parse error")
    }

    /// The JSON is not a request.
    pub(in crate::devchain) fn invalid_request(message: &str) -> Self {
        Self::new(-32600, message)
    }

    /// There is no such method.
    pub(in crate::devchain) fn method_not_found(method: &str) -> Self {
        Self::new(-32601, format!("the method {method} does not exist/is not available"))
    }

    /// An argument is missing or invalid.
    pub(in crate::devchain) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }

    /// The node cannot execute the call.
    pub(in crate::devchain) fn server(message: impl Into<String>) -> Self {
        Self::new(-32000, message)
    }

    /// The number is above the head, in anvil's words.
    pub(in crate::devchain) fn out_of_range(head: u64, number: u64) -> Self {
        let message = format!("BlockOutOfRangeError: block height is {head} but requested was {number}");
        Self::invalid_params(message)
    }

    /// The node has pruned the block (EIP-4444).
    pub(in crate::devchain) fn pruned() -> Self {
        Self::new(4444, "pruned history unavailable")
    }
}

impl From<TxRefusal> for RpcError {
    fn from(refusal: TxRefusal) -> Self {
        Self::server(refusal.to_string())
    }
}
