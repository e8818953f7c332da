//! Error objects and the codes this service uses.

use std::borrow::Cow;

use bytes::Bytes;

/// The codes of the errors that are ours. An upstream's own error keeps the code it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// Not JSON.
    Parse,
    /// JSON, but not a request; an empty batch; a batch too long.
    InvalidRequest,
    /// A method that is unknown, or not allowed here.
    MethodNotFound,
    /// Parameters that no node would take.
    InvalidParams,
    /// A bug of ours.
    Internal,
    /// Too many requests.
    RateLimited,
    /// No upstream could answer.
    UpstreamFailed,
    /// The upstream did not answer in time.
    UpstreamTimeout,
    /// The upstream's answer failed verification.
    UpstreamMismatch,
    /// Too much to do already.
    Overloaded,
}

/// An error object of our own making.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorObject {
    /// Tells a program what happened.
    pub code: Code,
    /// Tells a person what happened and what would be right.
    pub message: Cow<'static, str>,
}

// === impl Code ===

impl Code {
    /// Every code, for those who count by code.
    pub const ALL: [Self; 10] = [
        Self::Parse,
        Self::InvalidRequest,
        Self::MethodNotFound,
        Self::InvalidParams,
        Self::Internal,
        Self::RateLimited,
        Self::UpstreamFailed,
        Self::UpstreamTimeout,
        Self::UpstreamMismatch,
        Self::Overloaded,
    ];

    /// Its name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Parse => "parse_error",
            Self::InvalidRequest => "invalid_request",
            Self::MethodNotFound => "method_not_found",
            Self::InvalidParams => "invalid_params",
            Self::Internal => "internal",
            Self::RateLimited => "rate_limited",
            Self::UpstreamFailed => "upstream_failed",
            Self::UpstreamTimeout => "upstream_timeout",
            Self::UpstreamMismatch => "upstream_mismatch",
            Self::Overloaded => "overloaded",
        }
    }

    /// The number on the wire.
    pub fn number(self) -> i32 {
        match self {
            Self::Parse => -32700,
            Self::InvalidRequest => -32600,
            Self::MethodNotFound => -32601,
            Self::InvalidParams => -32602,
            Self::Internal => -32603,
            Self::RateLimited => -32005,
            Self::UpstreamFailed => -32010,
            Self::UpstreamTimeout => -32011,
            Self::UpstreamMismatch => -32012,
            Self::Overloaded => -32013,
        }
    }
}

// === impl ErrorObject ===

impl ErrorObject {
    /// An error with this code and message.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }

    /// The object's JSON text.
    pub fn to_json(&self) -> Bytes {
        let message = serde_json::Value::from(self.message.as_ref());
        format!(r#"{{"code":{},"message":{message}}}"#, self.code.number()).into()
    }
}
