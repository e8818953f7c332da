//! Totals of the calls of one method.

use super::call::{
    outcome::{Outcome, Source},
    result::CallResult,
};
use crate::{cache::tier::TierKind, histogram::Snapshot, jsonrpc::Code};

/// Calls of one method since the start. Each call counts in exactly one of the fields after `calls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodTotals {
    /// Name of the method; `other` for all methods without a label of their own.
    pub method: &'static str,
    /// Client calls.
    pub calls: u64,
    /// Calls answered from memory or from a cache tier.
    pub hits: u64,
    /// Calls answered from memory or from a cache tier, after a refresh of the view that they had started.
    pub stale: u64,
    /// Calls answered by joining a fetch or a refresh that another call had started.
    pub joined: u64,
    /// Calls answered by the upstream, although the method is cacheable.
    pub misses: u64,
    /// Calls forwarded because they are not cacheable.
    pub not_cacheable: u64,
    /// Calls answered with the node's own error object.
    pub node_errors: u64,
    /// Calls refused: method not allowed, invalid params, or over the client's rate limit.
    pub refused: u64,
    /// Calls that failed because of the upstream, an overload or an internal error.
    pub failed: u64,
    /// Durations of the calls that waited for the upstream. Durations of hits have no histogram per method, because
    /// one more atomic operation would slow down every hit.
    pub upstream_seconds: Snapshot,
}

// === impl MethodTotals ===

impl MethodTotals {
    /// Sums up `counts`, which are indexed by [`CallResult::index`].
    pub(super) fn new(
        method: &'static str,
        counts: [u64; CallResult::COUNT],
        upstream_seconds: Snapshot,
    ) -> Self {
        let count = |result: CallResult| counts[result.index()];
        let answered = |outcome| count(CallResult::Answered(outcome));
        let restored: u64 = TierKind::ALL.into_iter().map(|tier| answered(Outcome::Restored(tier))).sum();
        let mut totals = Self {
            method,
            calls: counts.iter().sum(),
            hits: answered(Outcome::Hit(Source::View)) + answered(Outcome::Derived(Source::View)) + restored,
            stale: answered(Outcome::Stale { joined: false, logs: None }),
            joined: answered(Outcome::Joined),
            misses: answered(Outcome::Stored) + answered(Outcome::Miss),
            not_cacheable: answered(Outcome::Bypass),
            node_errors: count(CallResult::NodeError),
            refused: [Code::MethodNotFound, Code::InvalidParams, Code::RateLimited, Code::TooManyLogs]
                .into_iter()
                .map(|code| count(CallResult::Error(code)))
                .sum(),
            failed: 0,
            upstream_seconds,
        };
        let others = [totals.hits, totals.stale, totals.joined, totals.misses, totals.not_cacheable]
            .into_iter()
            .chain([totals.node_errors, totals.refused]);
        totals.failed = totals.calls - others.sum::<u64>();
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_counts_in_one_column() {
        let expected = |name: &str| match name {
            "hit" | "derived" | "disk" | "redis" => "hits",
            "stale" => "stale",
            "joined" => "joined",
            "stored" | "miss" => "misses",
            "bypass" => "not_cacheable",
            "node_error" => "node_errors",
            "method_not_found" | "invalid_params" | "rate_limited" | "too_many_logs" => "refused",
            _ => "failed",
        };
        for (index, name) in CallResult::names().into_iter().enumerate() {
            let counts = std::array::from_fn(|at| u64::from(at == index) * 3);
            let totals = MethodTotals::new("eth_call", counts, Snapshot::default());
            let columns = [
                ("hits", totals.hits),
                ("stale", totals.stale),
                ("joined", totals.joined),
                ("misses", totals.misses),
                ("not_cacheable", totals.not_cacheable),
                ("node_errors", totals.node_errors),
                ("refused", totals.refused),
                ("failed", totals.failed),
            ];
            assert_eq!(totals.calls, 3);
            let counted: Vec<_> = columns.into_iter().filter(|(_, count)| *count > 0).collect();
            assert_eq!(counted, [(expected(name), 3)], "{name}");
        }
    }
}
