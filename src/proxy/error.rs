//! Errors of a call.

use std::time::Duration;

use crate::{
    display::{Time, Wait},
    eth::{BlockNumber, ParamError, Query, Tag},
    jsonrpc::Code,
    upstream::{IdentityError, UpstreamError, WrongChain},
};

/// Reason why a call has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// A rule of the configuration refuses the method.
    #[error("the method {method} is not served here{}", rule.as_str())]
    MethodNotAllowed {
        /// Method name, truncated for display.
        method: String,
        /// The rule.
        rule: MethodRule,
    },
    /// An untrusted web page called a method that is not open to web pages.
    #[error(
        "the method {method} is not open to web pages; list the page's origin in methods.trusted_origins"
    )]
    OriginNotTrusted {
        /// Method name, truncated for display.
        method: String,
    },
    /// The client exceeds its rate limit.
    #[error("too many calls; come back in {}", Wait(*wait))]
    RateLimited {
        /// Time until the client may make the next call.
        wait: Duration,
    },
    /// The parameters are invalid; the call did not reach the upstream.
    #[error(transparent)]
    Params(ParamError),
    /// The upstream serves another chain than the expected one.
    #[error(transparent)]
    WrongChain(WrongChain),
    /// The upstream call failed.
    #[error(transparent)]
    Upstream(UpstreamError),
    /// The upstream's answer passed all structural checks, but the configuration requires a proof, and this answer has
    /// none.
    #[error(
        "the upstream's answer is unprovable, and verify.level = \"full\" with on_mismatch = \"reject\" \
         refuses such answers; ask again, or set on_mismatch = \"pass\""
    )]
    Unproved,
    /// The block that a tag stood for left the chain after other calls of the batch had used it, or the tags of the
    /// batch stand for blocks on different branches.
    #[error("the block that `{}` meant left the chain meanwhile; send it again", tag.as_str())]
    Left {
        /// The tag.
        tag: Tag,
    },
    /// A query for logs is over a limit.
    #[error("query {over}. Try with this block range [{first}, {last}].")]
    TooManyLogs {
        /// The limit.
        over: LogLimit,
        /// First block of a range within the limit.
        first: BlockNumber,
        /// Last block of that range.
        last: BlockNumber,
    },
    /// The chain changed during every attempt to answer the call.
    #[error("the chain changed while this call was answered; send it again")]
    Changed,
    /// The upstream lacks data that is known to exist.
    #[error("the upstream does not have {what} yet")]
    Lacking {
        /// Query for the missing data.
        what: Query,
    },
    /// The call exceeded its deadline.
    #[error("no answer within {}", Time(*after))]
    Deadline {
        /// Deadline of the call, measured from its start.
        after: Duration,
    },
    /// No proof thread was free to encode a raw form.
    #[error("too many proofs at once; try again shortly")]
    Overloaded,
    /// The proxy is shutting down and stops waiting for the upstream, which may still execute the call.
    #[error("shutting down, and the upstream has not answered yet")]
    Stopping,
}

/// Limit of a query for logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogLimit {
    /// Number of blocks. Clients know these words from other providers.
    #[error("exceeds max block range {0}")]
    Blocks(usize),
    /// Number of logs. Clients know these words from other providers.
    #[error("returned more than {0} results")]
    Results(usize),
    /// Bytes of the answer.
    #[error("returned more than {0} bytes")]
    Bytes(usize),
}

/// Rule that refuses a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodRule {
    /// `methods.allow` does not list the method.
    Allow,
    /// `methods.deny` lists the method.
    Deny,
    /// `strict` is set, and the method is not one of the six basic reads.
    Strict,
    /// The client's key excludes the method.
    Key,
}

// === impl MethodRule ===

impl MethodRule {
    /// Returns the end of the error message, which names the key of the rule.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "; to serve it, add it to methods.allow",
            Self::Deny => ": methods.deny lists it",
            Self::Strict => ": with strict, only the six basic reads are",
            Self::Key => " to this key; see allow and deny in [[http.keys]]",
        }
    }
}

// === impl CallError ===

impl CallError {
    /// Returns the JSON-RPC error code.
    pub fn code(&self) -> Code {
        match self {
            Self::MethodNotAllowed { .. } | Self::OriginNotTrusted { .. } => Code::MethodNotFound,
            Self::RateLimited { .. } => Code::RateLimited,
            Self::Params(_) => Code::InvalidParams,
            Self::TooManyLogs { .. } => Code::TooManyLogs,
            Self::WrongChain(_) | Self::Left { .. } | Self::Changed | Self::Lacking { .. } => {
                Code::UpstreamFailed
            }
            // This code does not invite a retry, because the call may be a write that the upstream has executed.
            Self::Deadline { .. } | Self::Stopping => Code::UpstreamTimeout,
            Self::Overloaded => Code::Overloaded,
            Self::Unproved => Code::UpstreamMismatch,
            Self::Upstream(error) => error.code(),
        }
    }

    /// Returns the `data` of the JSON-RPC error. For logs it is the same as Infura's.
    pub fn data(&self) -> Option<String> {
        let Self::TooManyLogs { over, first, last } = self else { return None };
        let (LogLimit::Blocks(most) | LogLimit::Results(most) | LogLimit::Bytes(most)) = over;
        Some(format!(r#"{{"from":"{first}","to":"{last}","limit":{most}}}"#))
    }

    /// Returns whether the upstream failed, rather than having no result or serving another chain.
    pub(super) fn is_outage(&self) -> bool {
        matches!(self, Self::Upstream(error) if error.is_failure() && !matches!(error, UpstreamError::WrongChain(_)))
    }
}

impl From<IdentityError> for CallError {
    fn from(error: IdentityError) -> Self {
        match error {
            IdentityError::WrongChain(stranger) => Self::WrongChain(stranger),
            IdentityError::Upstream(error) => Self::Upstream(error),
        }
    }
}
