//! The result of a call, as metrics and logs name it.

use crate::{
    cache::tier::TierKind,
    jsonrpc::{Answer, Code},
    proxy::{
        call::outcome::{Answered, LogSource, Outcome},
        error::CallError,
    },
};

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallResult {
    Answered(Outcome),
    /// Answered with the node's own error object.
    NodeError,
    /// Failed because the upstream, not the proxy, limits the rate.
    UpstreamLimited,
    /// Answered with an error of the proxy.
    Error(Code),
}

/// Source of an answer. Each source has its own latency histogram, because the latencies of memory and upstream differ
/// by orders of magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum ServedFrom {
    Memory,
    /// A cache tier.
    Tier,
    Upstream,
    /// No source: the proxy refused the call.
    Refusal,
}

const ANSWERS: [&str; 11] = [
    "hit",
    "derived",
    TierKind::Disk.as_str(),
    TierKind::Redis.as_str(),
    "stored",
    "miss",
    "joined",
    "bypass",
    "node_error",
    "upstream_limited",
    "stale",
];

/// Errors that a parsed call can end with.
const ERRORS: [Code; 9] = [
    Code::MethodNotFound,
    Code::InvalidParams,
    Code::RateLimited,
    Code::TooManyLogs,
    Code::UpstreamFailed,
    Code::UpstreamTimeout,
    Code::UpstreamMismatch,
    Code::Overloaded,
    Code::Internal,
];

// === impl CallResult ===

impl CallResult {
    /// Number of distinct results.
    pub(crate) const COUNT: usize = ANSWERS.len() + ERRORS.len();

    /// Returns the names of all results, by index.
    pub(crate) fn names() -> [&'static str; Self::COUNT] {
        let errors = ERRORS.iter().map(|code| code.as_str());
        let mut names = ANSWERS.into_iter().chain(errors);
        std::array::from_fn(|_| names.next().unwrap_or_default())
    }

    pub(crate) fn of(answered: &Result<Answered, CallError>) -> Self {
        match answered {
            Ok(Answered { answer: Answer::Result(_), outcome, .. }) => Self::Answered(*outcome),
            Ok(Answered { answer: Answer::Error(_), .. }) => Self::NodeError,
            Err(CallError::Upstream(error)) if error.code() == Code::RateLimited => Self::UpstreamLimited,
            Err(error) => Self::Error(error.code()),
        }
    }

    /// Returns the index of this result in [`names`](Self::names).
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Answered(Outcome::Hit(_)) => 0,
            Self::Answered(Outcome::Derived(_)) => 1,
            Self::Answered(Outcome::Restored(TierKind::Disk)) => 2,
            Self::Answered(Outcome::Restored(TierKind::Redis)) => 3,
            Self::Answered(Outcome::Stored) => 4,
            Self::Answered(Outcome::Miss) => 5,
            Self::Answered(Outcome::Joined | Outcome::Stale { joined: true, .. }) => 6,
            Self::Answered(Outcome::Bypass) => 7,
            Self::Answered(Outcome::Logs(LogSource::Bloom | LogSource::Receipts, _)) => 1,
            Self::Answered(Outcome::Logs(LogSource::Fetched, _)) => 4,
            Self::Answered(Outcome::Logs(LogSource::Forwarded, _)) => 5,
            Self::NodeError => 8,
            Self::UpstreamLimited => 9,
            Self::Answered(Outcome::Stale { joined: false, .. }) => 10,
            Self::Error(code) => {
                let internal = ERRORS.len() - 1;
                ANSWERS.len() + ERRORS.iter().position(|known| *known == code).unwrap_or(internal)
            }
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        Self::names()[self.index()]
    }

    /// Returns the source of the answer. `waited` says whether the call had to wait.
    pub(crate) fn served_from(self, waited: bool) -> ServedFrom {
        match self {
            Self::Answered(outcome) if outcome.is_from_memory() && !waited => ServedFrom::Memory,
            Self::Answered(Outcome::Restored(_)) => ServedFrom::Tier,
            Self::Error(
                Code::MethodNotFound | Code::InvalidParams | Code::RateLimited | Code::TooManyLogs,
            ) => ServedFrom::Refusal,
            Self::Answered(_) | Self::NodeError | Self::UpstreamLimited | Self::Error(_) => {
                ServedFrom::Upstream
            }
        }
    }
}

// === impl ServedFrom ===

impl ServedFrom {
    pub(crate) const ALL: [Self; 4] = [Self::Memory, Self::Tier, Self::Upstream, Self::Refusal];

    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::Source;

    #[test]
    fn call_results_have_distinct_names() {
        let source = Source::View;
        let outcomes = [
            Outcome::Hit(source),
            Outcome::Derived(source),
            Outcome::Restored(TierKind::Disk),
            Outcome::Restored(TierKind::Redis),
            Outcome::Stored,
            Outcome::Miss,
            Outcome::Joined,
            Outcome::Bypass,
        ];
        let all = outcomes.map(CallResult::Answered).into_iter();
        let all: Vec<_> = all
            .chain([CallResult::NodeError, CallResult::UpstreamLimited])
            .chain([CallResult::Answered(Outcome::Stale { joined: false, logs: None })])
            .chain(ERRORS.map(CallResult::Error))
            .collect();
        let named: Vec<_> = all.iter().map(|counted| counted.as_str()).collect();
        assert_eq!(named, CallResult::names());
        let answered = ["hit", "derived", "disk", "redis", "stored", "miss", "joined", "bypass"];
        assert_eq!(named[..8], answered);
        assert_eq!(named[8..12], ["node_error", "upstream_limited", "stale", "method_not_found"]);
        assert_eq!(CallResult::Error(Code::UpstreamTimeout).as_str(), "upstream_timeout");
    }
}
