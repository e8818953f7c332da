//! The ways an upstream fails to answer.

use std::{error::Error, sync::Arc, time::Duration};

use bytes::Bytes;
use http::StatusCode;

use crate::{
    display::Time,
    eth::BlockHash,
    jsonrpc::{Answer, AnswerError, Code},
    verify::Failure,
};

/// A node's message goes into a line of the log; not more of it than one has.
const SHOWN_MESSAGE: usize = 200;

/// Of a result that should have been a number, so much tells enough.
const SHOWN_RESULT: usize = 40;

/// Why there is no answer. An error object of the node's own is an answer, not one of these.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UpstreamError {
    /// No connection came about: nothing was sent.
    #[error("cannot connect: {0}")]
    Connect(#[source] Arc<dyn Error + Send + Sync>),
    /// The connection broke after the call may have been sent.
    #[error("the connection broke: {0}")]
    Disconnected(#[source] Arc<dyn Error + Send + Sync>),
    /// No whole answer within the time an attempt has.
    #[error("no answer within {}", Time(*after))]
    TimedOut {
        /// The limit in force.
        after: Duration,
    },
    /// It let calls wait for nothing, and is left alone for now: nothing was sent.
    #[error("it is left alone for now, since it gave no answer within {}", Time(*after))]
    Unresponsive {
        /// The limit in force.
        after: Duration,
    },
    /// An HTTP error without a JSON-RPC answer in it.
    #[error("HTTP status {0}")]
    Status(StatusCode),
    /// An HTTP error that is not about the call, with an error object in it. Handed on if nobody else answers.
    #[error("HTTP status {status}, {}", Self::node_error(error))]
    Refused {
        /// The status.
        status: StatusCode,
        /// The object, as it came.
        error: Bytes,
    },
    /// HTTP 429.
    #[error("the upstream limits the rate of requests")]
    RateLimited {
        /// When it says to come back.
        retry_after: Option<Duration>,
    },
    /// A body that is not packed as its head says.
    #[error("cannot unpack the answer: {0}")]
    Decompression(#[source] Arc<dyn Error + Send + Sync>),
    /// A body that holds no answer.
    #[error("unreadable answer: {0}")]
    Unreadable(#[source] AnswerError),
    /// An answer to a question that was not asked.
    #[error("the answer carries another id than the call")]
    WrongId,
    /// An answer with neither result nor error, or a batch that leaves it out.
    #[error("the answer has neither result nor error")]
    Empty,
    /// A result that is not what this method's can be.
    #[error("the answer to {method} is not {expected}: {got}")]
    Malformed {
        /// What was asked.
        method: &'static str,
        /// What it must be.
        expected: &'static str,
        /// The beginning of what it is.
        got: String,
    },
    /// More than is read.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// The limit in force.
        limit: u64,
        /// Were several calls answered at once? Then each alone may be small enough.
        is_batch: bool,
    },
    /// An answer that cannot be right.
    #[error("the answer cannot be right: {0}")]
    Rejected(#[source] Box<Mismatch>),
    /// The fetch ended without a result: a bug of ours, which is logged.
    #[error("the fetch was abandoned")]
    Abandoned,
    /// Nobody waits for the answer any more: nothing was sent.
    #[error("nobody waits for the answer")]
    Cancelled,
    /// The node's own error, where only a result helps. Begins like its message.
    #[error("the node answers with an error: {0}")]
    NodeError(String),
    /// It was not asked, since it does not say who it is: nothing was sent.
    #[error(transparent)]
    NotSent(Box<UpstreamError>),
    /// It is another chain's.
    #[error(transparent)]
    WrongChain(WrongChain),
    /// Our own limits: too much is in flight already.
    #[error("too many upstream calls, or too large answers, at once")]
    Busy,
}

/// An answer that cannot be right.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{failure}")]
pub struct Mismatch {
    /// What is wrong with it.
    pub failure: Failure,
    /// It, for whoever wants it all the same.
    pub answer: Answer,
}

/// An upstream of another chain. It is never used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongChain {
    /// Another chain id than configured, or than before.
    #[error("the upstream serves chain {got}, not {expected}")]
    ChainId {
        /// The chain it should serve.
        expected: u64,
        /// The chain it serves.
        got: u64,
    },
    /// The same chain id over another history.
    #[error("the upstream's genesis block is {got}, not {expected}")]
    Genesis {
        /// The genesis known before.
        expected: BlockHash,
        /// The one it shows now.
        got: BlockHash,
    },
}

/// What to do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Asking again would not help, or would add to the trouble.
    Never,
    /// Another upstream may well answer.
    Elsewhere,
    /// The same one may, after a while.
    After(Duration),
}

// === impl UpstreamError ===

impl UpstreamError {
    /// Reads the message of a node's error object.
    pub fn node_error(object: &[u8]) -> Self {
        #[derive(serde::Deserialize)]
        struct ErrorMessage {
            message: String,
        }
        let message =
            serde_json::from_slice(object).map_or_else(|_| String::new(), |ErrorMessage { message }| message);
        Self::NodeError(line(&message, SHOWN_MESSAGE))
    }

    /// A result that cannot be read; its beginning is shown.
    pub(super) fn malformed(method: &'static str, expected: &'static str, result: &[u8]) -> Self {
        Self::Malformed { method, expected, got: line(&String::from_utf8_lossy(result), SHOWN_RESULT) }
    }

    /// What a program is told of it.
    pub fn code(&self) -> Code {
        match self {
            Self::TimedOut { .. } => Code::UpstreamTimeout,
            Self::RateLimited { .. } => Code::RateLimited,
            Self::Busy => Code::Overloaded,
            Self::Abandoned | Self::Cancelled => Code::Internal,
            Self::Rejected(_) => Code::UpstreamMismatch,
            Self::NotSent(error) => error.code(),
            Self::Connect(_)
            | Self::Disconnected(_)
            | Self::Unresponsive { .. }
            | Self::Status(_)
            | Self::Refused { .. }
            | Self::Decompression(_)
            | Self::Unreadable(_)
            | Self::WrongId
            | Self::Empty
            | Self::Malformed { .. }
            | Self::WrongChain(_)
            | Self::NodeError(_)
            | Self::TooLarge { .. } => Code::UpstreamFailed,
        }
    }

    /// Every reason, as it is named in logs and metrics.
    pub const REASONS: [&str; 19] = [
        "connect",
        "disconnected",
        "timeout",
        "unresponsive",
        "status",
        "refused",
        "rate_limited",
        "decompression",
        "unreadable",
        "wrong_id",
        "empty",
        "malformed",
        "too_large",
        "rejected",
        "abandoned",
        "cancelled",
        "node_error",
        "wrong_chain",
        "busy",
    ];

    /// The reason's name.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Disconnected(_) => "disconnected",
            Self::TimedOut { .. } => "timeout",
            Self::Unresponsive { .. } => "unresponsive",
            Self::Status(_) => "status",
            Self::Refused { .. } => "refused",
            Self::RateLimited { .. } => "rate_limited",
            Self::Decompression(_) => "decompression",
            Self::Unreadable(_) => "unreadable",
            Self::WrongId => "wrong_id",
            Self::Empty => "empty",
            Self::Malformed { .. } => "malformed",
            Self::TooLarge { .. } => "too_large",
            Self::Rejected(_) => "rejected",
            Self::Abandoned => "abandoned",
            Self::Cancelled => "cancelled",
            Self::NodeError(_) => "node_error",
            Self::NotSent(error) => error.as_str(),
            Self::WrongChain(_) => "wrong_chain",
            Self::Busy => "busy",
        }
    }

    /// What to do about it.
    pub fn retry(&self) -> Retry {
        match self {
            Self::RateLimited { retry_after: Some(after) } => Retry::After(*after),
            Self::TooLarge { .. } | Self::Busy | Self::Cancelled => Retry::Never,
            Self::NotSent(error) => error.retry(),
            _ => Retry::Elsewhere,
        }
    }

    /// Did the upstream fail, rather than have nothing to say?
    pub fn is_failure(&self) -> bool {
        match self {
            Self::NotSent(error) => error.is_failure(),
            error => !matches!(error, Self::Empty | Self::NodeError(_) | Self::Cancelled),
        }
    }

    /// Did the call provably never reach the upstream? Only then may a write be sent again.
    pub fn never_sent(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::NotSent(_) | Self::Cancelled)
    }

    /// Returns whether the call was refused before anything was done: for its rate, or for want of a valid key. A write may
    /// be sent elsewhere then.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::RateLimited { .. } => true,
            Self::Status(status) | Self::Refused { status, .. } => {
                matches!(*status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
            }
            _ => false,
        }
    }

    /// The node's own error, if it came with a refusal; what else it is, to those who do not care whether it was sent.
    pub(super) fn into_answer(self) -> Result<Answer, Self> {
        match self {
            Self::Refused { error, .. } => Ok(Answer::Error(error)),
            Self::NotSent(error) => error.into_answer(),
            error => Err(error),
        }
    }

    /// The same, without what was said to one call and is nothing to another.
    pub(super) fn without_call_details(self) -> Self {
        match self {
            Self::Refused { status, .. } => Self::Status(status),
            Self::NotSent(error) => error.without_call_details(),
            error => error,
        }
    }

    /// Does it speak against the endpoint, rather than of what was asked of it or of our own limits?
    pub(super) fn is_endpoint_failure(&self) -> bool {
        match self {
            Self::NotSent(error) => error.is_endpoint_failure(),
            Self::TooLarge { .. } | Self::Busy | Self::Abandoned => false,
            error => error.is_failure(),
        }
    }

    /// Did nothing come from the endpoint, or was it not asked?
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

    /// Might there be another node behind the address now than before?
    pub fn is_connection_loss(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Disconnected(_))
    }
}

/// A node's own words as they may stand in a line, not more than so many characters.
fn line(text: &str, most: usize) -> String {
    text.chars().map(|shown| if shown.is_control() { ' ' } else { shown }).take(most).collect()
}
