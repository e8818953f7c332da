//! Reasons why an upstream does not answer.

use std::{error::Error, sync::Arc, time::Duration};

use bytes::Bytes;
use http::StatusCode;

use crate::{
    display::Time,
    eth::BlockHash,
    jsonrpc::{Answer, AnswerError, Code},
    verify::Failure,
};

/// Maximum number of characters of a node's message in a log line.
const SHOWN_MESSAGE: usize = 200;

/// Number of bytes of an HTTP error's body that are searched for a message.
const LONGEST_BODY: usize = 64 << 10;

/// Maximum number of characters shown of a malformed result.
const SHOWN_RESULT: usize = 40;

/// The beginning of an error message that a provider sent, in one line.
pub type Words = Option<Arc<str>>;

/// The reason why there is no answer. A JSON-RPC error object from the node is an answer, not an `UpstreamError`.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UpstreamError {
    /// No connection could be opened; nothing was sent.
    #[error("cannot connect: {0}")]
    Connect(#[source] Arc<dyn Error + Send + Sync>),
    /// The connection broke after the call may have been sent.
    #[error("the connection broke: {0}")]
    Disconnected(#[source] Arc<dyn Error + Send + Sync>),
    /// No complete answer within the time-out of an attempt.
    #[error("no answer within {}", Time(*after))]
    TimedOut {
        /// The time-out in force.
        after: Duration,
    },
    /// Calls to the endpoint are paused after a time-out; nothing was sent.
    #[error("calls to the upstream are paused, because it gave no answer within {}", Time(*after))]
    Unresponsive {
        /// The time-out in force.
        after: Duration,
    },
    /// An HTTP error without a JSON-RPC answer in its body.
    #[error("HTTP status {status}")]
    Status {
        /// The HTTP status.
        status: StatusCode,
        /// The provider's words, without secrets.
        words: Words,
    },
    /// An HTTP error that is not about the call, with a JSON-RPC error object in its body. The client gets that
    /// object if no other endpoint answers.
    #[error("HTTP status {status}, {}", Self::node_error(error))]
    Refused {
        /// The HTTP status.
        status: StatusCode,
        /// The error object as received.
        error: Bytes,
    },
    /// The upstream limits the rate: HTTP 429, or an error object that says so.
    #[error("the upstream limits the rate of requests")]
    RateLimited {
        /// How long to wait before a retry, if known.
        retry_after: Option<Duration>,
        /// The provider's words, without secrets.
        words: Words,
    },
    /// The `rate` that the configuration sets for the endpoint is used up; nothing was sent.
    #[error("the configured rate of this endpoint is used up")]
    RateUsedUp {
        /// How long to wait before a retry.
        retry_after: Duration,
    },
    /// A body whose compression does not match its headers.
    #[error("cannot decompress the answer: {0}")]
    Decompression(#[source] Arc<dyn Error + Send + Sync>),
    /// A body that is not a JSON-RPC answer.
    #[error("unreadable answer: {0}")]
    Unreadable(#[source] AnswerError),
    /// An answer whose id matches no call.
    #[error("the answer carries another id than the call")]
    WrongId,
    /// An answer with neither result nor error, or a batch without an answer to this call. Also returned for an
    /// endpoint that a reload removed or that is unavailable.
    #[error("the answer has neither result nor error")]
    Empty,
    /// A result that is not valid for the method.
    #[error("the answer to {method} is not {expected}: {got}")]
    Malformed {
        /// The method.
        method: &'static str,
        /// The form of a valid result.
        expected: &'static str,
        /// The beginning of the result.
        got: String,
    },
    /// An answer larger than `max_answer`.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// The limit in force, in bytes.
        limit: u64,
        /// Whether the request was a batch, whose answers may each be small enough.
        is_batch: bool,
    },
    /// An answer that failed verification.
    #[error("the answer failed verification: {0}")]
    Rejected(#[source] Box<Mismatch>),
    /// The fetch ended without a result: a bug in Holdfast, which logs it.
    #[error("the fetch was abandoned")]
    Abandoned,
    /// The node returned an error object where Holdfast needs a result. Holds the beginning of the error's message.
    #[error("the node answers with an error: {0}")]
    NodeError(String),
    /// The call was not sent, because the endpoint's chain identity is unconfirmed.
    #[error(transparent)]
    NotSent(Box<UpstreamError>),
    /// The endpoint serves another chain.
    #[error(transparent)]
    WrongChain(WrongChain),
    /// Holdfast's own limits: too many calls or answer bytes are in flight already.
    #[error("too many upstream calls or answer bytes in flight")]
    Busy,
}

/// An answer that failed verification.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{failure}")]
pub struct Mismatch {
    /// The check that failed.
    pub failure: Failure,
    /// The answer, for callers that return it to the client despite the failure.
    pub answer: Answer,
}

/// Shows that an upstream serves another chain. Holdfast never uses such an upstream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongChain {
    /// A chain id other than the configured or the pinned one.
    #[error("the upstream serves chain {got}, not {expected}")]
    ChainId {
        /// The chain it should serve.
        expected: u64,
        /// The chain it serves.
        got: u64,
    },
    /// The same chain id with another genesis block.
    #[error("the upstream's genesis block is {got}, not {expected}")]
    Genesis {
        /// The pinned genesis hash.
        expected: BlockHash,
        /// The genesis hash that the upstream returns.
        got: BlockHash,
    },
}

/// Whether a retry makes sense after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// A retry would not help, or would add to the load.
    Never,
    /// Another upstream may well answer.
    Elsewhere,
    /// The same upstream may answer after this pause.
    After(Duration),
}

// === impl UpstreamError ===

impl UpstreamError {
    /// Returns [`Self::NodeError`] with the message of a node's error object.
    pub fn node_error(object: &[u8]) -> Self {
        Self::NodeError(message(object))
    }

    /// Returns [`Self::Malformed`] with the beginning of `result`.
    pub(super) fn malformed(method: &'static str, expected: &'static str, result: &[u8]) -> Self {
        Self::Malformed { method, expected, got: line(&String::from_utf8_lossy(result), SHOWN_RESULT) }
    }

    /// Returns the provider's words: the beginning of its error message.
    pub fn words(&self) -> Words {
        match self {
            Self::Status { words, .. } | Self::RateLimited { words, .. } => words.clone(),
            Self::Refused { error, .. } => {
                Some(message(error).into()).filter(|words: &Arc<str>| !words.is_empty())
            }
            Self::NotSent(error) => error.words(),
            _ => None,
        }
    }

    /// Returns the provider's words in the body of an HTTP error: the message of a JSON object, the title of a page,
    /// or the text itself.
    pub(super) fn words_of(body: &[u8]) -> Words {
        let text = String::from_utf8_lossy(&body[..body.len().min(LONGEST_BODY)]);
        let json = serde_json::from_str::<serde_json::Value>(&text).ok();
        let message = json.as_ref().and_then(|json| {
            let named = ["/error/message", "/message", "/error", "/detail", "/title"];
            named.iter().find_map(|name| json.pointer(name)?.as_str())
        });
        let words = match message {
            Some(message) => message,
            None if text.trim_start().starts_with('<') => {
                text.split_once("<title>")?.1.split_once("</title>")?.0
            }
            None => &text,
        };
        let words = words.trim();
        (!words.is_empty()).then(|| words.into())
    }

    /// Returns the beginning of words, in one line. Secrets must be redacted first, because only a whole secret is
    /// recognized.
    pub(super) fn shortened(words: &str) -> Arc<str> {
        line(words, SHOWN_MESSAGE).into()
    }

    /// Returns the rate limit that a node reports in a JSON-RPC error object.
    pub(super) fn rate_limit(object: &[u8]) -> Self {
        Self::RateLimited { retry_after: None, words: Some(message(object).into()) }
    }

    /// Returns the JSON-RPC error code for clients.
    pub fn code(&self) -> Code {
        match self {
            Self::TimedOut { .. } => Code::UpstreamTimeout,
            Self::RateLimited { .. } | Self::RateUsedUp { .. } => Code::RateLimited,
            Self::Busy => Code::Overloaded,
            Self::Abandoned => Code::Internal,
            Self::Rejected(_) => Code::UpstreamMismatch,
            Self::NotSent(error) => error.code(),
            _ => Code::UpstreamFailed,
        }
    }

    /// All reasons, as named in logs and metrics.
    pub const REASONS: [&str; 19] = [
        "connect",
        "disconnected",
        "timeout",
        "unresponsive",
        "status",
        "refused",
        "rate_limited",
        "rate_used_up",
        "decompression",
        "unreadable",
        "wrong_id",
        "empty",
        "malformed",
        "too_large",
        "rejected",
        "abandoned",
        "node_error",
        "wrong_chain",
        "busy",
    ];

    /// Returns the name of the reason.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Disconnected(_) => "disconnected",
            Self::TimedOut { .. } => "timeout",
            Self::Unresponsive { .. } => "unresponsive",
            Self::Status { .. } => "status",
            Self::Refused { .. } => "refused",
            Self::RateLimited { .. } => "rate_limited",
            Self::RateUsedUp { .. } => "rate_used_up",
            Self::Decompression(_) => "decompression",
            Self::Unreadable(_) => "unreadable",
            Self::WrongId => "wrong_id",
            Self::Empty => "empty",
            Self::Malformed { .. } => "malformed",
            Self::TooLarge { .. } => "too_large",
            Self::Rejected(_) => "rejected",
            Self::Abandoned => "abandoned",
            Self::NodeError(_) => "node_error",
            Self::NotSent(error) => error.as_str(),
            Self::WrongChain(_) => "wrong_chain",
            Self::Busy => "busy",
        }
    }

    /// Returns whether and when a retry makes sense.
    pub fn retry(&self) -> Retry {
        match self {
            Self::RateLimited { retry_after: Some(after), .. } | Self::RateUsedUp { retry_after: after } => {
                Retry::After(*after)
            }
            Self::TooLarge { .. } | Self::Busy => Retry::Never,
            Self::NotSent(error) => error.retry(),
            _ => Retry::Elsewhere,
        }
    }

    /// Returns whether the upstream failed. An answer without a result is no failure.
    pub fn is_failure(&self) -> bool {
        match self {
            Self::NotSent(error) => error.is_failure(),
            error => !matches!(error, Self::Empty | Self::NodeError(_)),
        }
    }

    /// Returns whether the call provably never reached the upstream, so that even a write may be sent again.
    pub fn never_sent(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::NotSent(_))
    }

    /// Returns whether the upstream rejected the call before executing it, because of a rate limit or missing access
    /// (401 or 403). Even a write may go to another endpoint then.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::RateLimited { .. } => true,
            Self::Status { status, .. } | Self::Refused { status, .. } => {
                matches!(*status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
            }
            _ => false,
        }
    }

    /// Returns the node's error object if it came with an HTTP error; otherwise the error, unwrapped from
    /// [`Self::NotSent`].
    pub(super) fn into_answer(self) -> Result<Answer, Self> {
        match self {
            Self::Refused { error, .. } => Ok(Answer::Error(error)),
            Self::NotSent(error) => error.into_answer(),
            error => Err(error),
        }
    }

    /// Returns the error without details that concern one call only.
    pub(super) fn without_call_details(self) -> Self {
        match self {
            Self::Refused { status, .. } => Self::Status { status, words: None },
            Self::NotSent(error) => error.without_call_details(),
            error => error,
        }
    }

    /// Returns whether the endpoint is at fault, rather than the call or Holdfast's own limits.
    pub(super) fn is_endpoint_failure(&self) -> bool {
        match self {
            Self::NotSent(error) => error.is_endpoint_failure(),
            Self::TooLarge { .. } | Self::RateUsedUp { .. } | Self::Busy | Self::Abandoned => false,
            error => error.is_failure(),
        }
    }

    /// Returns whether the endpoint did not react: it sent nothing back, or never received the call. A broken
    /// connection counts as a reaction.
    pub(super) fn has_no_response(&self) -> bool {
        matches!(
            self,
            Self::Connect(_)
                | Self::TimedOut { .. }
                | Self::Unresponsive { .. }
                | Self::Busy
                | Self::NotSent(_)
        )
    }

    /// Returns whether the connection failed or broke, so that another node may have taken over the address.
    pub fn is_connection_loss(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Disconnected(_))
    }
}

/// Returns the beginning of the message in a node's error object.
fn message(object: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct ErrorMessage {
        message: String,
    }
    let message =
        serde_json::from_slice(object).map_or_else(|_| String::new(), |ErrorMessage { message }| message);
    line(&message, SHOWN_MESSAGE)
}

/// Returns the first `most` characters of `text`, with control characters replaced by spaces.
fn line(text: &str, most: usize) -> String {
    text.chars().map(|shown| if shown.is_control() { ' ' } else { shown }).take(most).collect()
}
