//! Why a call has no answer.

use std::time::Duration;

use crate::{
    display::{Time, Wait},
    eth::{ParamError, Query, Tag},
    jsonrpc::Code,
    upstream::{IdentityError, UpstreamError, WrongChain},
};

/// A call that could not be answered.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// Not on the list of methods that are served.
    #[error("the method {method} is not served here")]
    MethodNotAllowed {
        /// Its name, as far as it is fit to be shown.
        method: String,
    },
    /// A web page wants something signed.
    #[error(
        "the method {method} is not open to web pages; list the page's origin in methods.trusted_origins"
    )]
    OriginNotTrusted {
        /// Its name.
        method: String,
    },
    /// The client calls more often than it may.
    #[error("too many calls; come back in {}", Wait(*wait))]
    RateLimited {
        /// Until the next call would be let through.
        wait: Duration,
    },
    /// Refused without asking anybody.
    #[error(transparent)]
    Params(ParamError),
    /// The upstream is not the chain it should be.
    #[error(transparent)]
    WrongChain(WrongChain),
    /// The upstream did not answer.
    #[error(transparent)]
    Upstream(UpstreamError),
    /// The upstream answered, nothing is wrong with its answer, and nothing proves it.
    #[error(
        "the upstream's answer is unprovable, and verify.level = \"full\" with on_mismatch = \"reject\" \
         refuses such answers; ask again, or set on_mismatch = \"pass\""
    )]
    Unproved,
    /// The block that a tag meant to a packet is gone, and calls of it were answered from that block already; or tags mean
    /// blocks of two branches.
    #[error("the block that `{}` meant left the chain during this batch; send it again", tag.as_str())]
    Left {
        /// The tag.
        tag: Tag,
    },
    /// The chain changed each time that the call was answered.
    #[error("the chain changed while this call was answered; send it again")]
    Changed,
    /// The upstream lacks data that is known to exist.
    #[error("the upstream does not have {what} yet")]
    Lacking {
        /// The answer that is missing.
        what: Query,
    },
    /// The call as a whole took too long.
    #[error("no answer within {}", Time(*after))]
    Deadline {
        /// The limit in force.
        after: Duration,
    },
    /// The answer came, and no proof thread was free before the call's deadline.
    #[error("too many proofs at once: the answer could not be verified within {}", Time(*after))]
    ProofOverdue {
        /// The limit in force.
        after: Duration,
    },
    /// There is no more time to wait for the upstream. What was asked may have been carried out.
    #[error("shutting down, and the upstream has not answered yet")]
    Stopping,
}

// === impl CallError ===

impl CallError {
    /// What a program is told.
    pub fn code(&self) -> Code {
        match self {
            Self::MethodNotAllowed { .. } | Self::OriginNotTrusted { .. } => Code::MethodNotFound,
            Self::RateLimited { .. } => Code::RateLimited,
            Self::Params(_) => Code::InvalidParams,
            Self::WrongChain(_) | Self::Left { .. } | Self::Changed | Self::Lacking { .. } => {
                Code::UpstreamFailed
            }
            // Not one that says "try again": what was to be written may be written.
            Self::Deadline { .. } | Self::Stopping => Code::UpstreamTimeout,
            Self::ProofOverdue { .. } => Code::Overloaded,
            Self::Unproved => Code::UpstreamMismatch,
            Self::Upstream(error) => error.code(),
        }
    }

    /// Is it that nobody answers, rather than what somebody said?
    pub(super) fn is_outage(&self) -> bool {
        match self {
            Self::Upstream(error) => error.is_failure() && !matches!(error, UpstreamError::WrongChain(_)),
            Self::WrongChain(_)
            | Self::Deadline { .. }
            | Self::ProofOverdue { .. }
            | Self::MethodNotAllowed { .. }
            | Self::OriginNotTrusted { .. }
            | Self::RateLimited { .. }
            | Self::Params(_)
            | Self::Left { .. }
            | Self::Changed
            | Self::Lacking { .. }
            | Self::Unproved
            | Self::Stopping => false,
        }
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
