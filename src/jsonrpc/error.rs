//! Error objects, and the codes that Holdfast uses.

use std::borrow::Cow;

use bytes::Bytes;

/// The codes of Holdfast's own errors. Errors from an upstream keep their code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Code {
    /// The body is not JSON.
    #[strum(serialize = "parse_error")]
    Parse,
    /// An entry is not a JSON-RPC request, a batch is empty or too large, or the HTTP request is refused.
    InvalidRequest,
    /// The method is unknown or not allowed.
    MethodNotFound,
    /// No node would accept the parameters.
    InvalidParams,
    /// A bug in Holdfast.
    Internal,
    /// The client or the upstream is over its rate limit.
    RateLimited,
    /// A query for logs covers too many blocks or has too many results. Shares its number with `RateLimited`, because
    /// clients know this number for both.
    TooManyLogs,
    /// No upstream could answer.
    UpstreamFailed,
    /// The upstream did not answer in time, or the batch ran for too long to begin the call.
    UpstreamTimeout,
    /// The upstream's answer failed verification.
    UpstreamMismatch,
    /// A limit on requests, calls or bytes in flight is reached.
    Overloaded,
}

/// An error object that Holdfast creates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorObject {
    /// The reason, as a code for programs.
    pub code: Code,
    /// The reason and a remedy, as text for people.
    pub message: Cow<'static, str>,
    /// JSON with details of the reason.
    pub data: Option<String>,
}

// === impl Code ===

impl Code {
    /// Returns the code's name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the number on the wire.
    pub fn number(self) -> i32 {
        match self {
            Self::Parse => -32700,
            Self::InvalidRequest => -32600,
            Self::MethodNotFound => -32601,
            Self::InvalidParams => -32602,
            Self::Internal => -32603,
            Self::RateLimited | Self::TooManyLogs => -32005,
            Self::UpstreamFailed => -32010,
            Self::UpstreamTimeout => -32011,
            Self::UpstreamMismatch => -32012,
            Self::Overloaded => -32013,
        }
    }
}

// === impl ErrorObject ===

impl ErrorObject {
    /// Creates an error with this code and message.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Returns the object's JSON text.
    pub fn to_json(&self) -> Bytes {
        let message = serde_json::Value::from(self.message.as_ref());
        let data = self.data.as_ref().map_or_else(String::new, |data| format!(r#","data":{data}"#));
        format!(r#"{{"code":{},"message":{message}{data}}}"#, self.code.number()).into()
    }
}
