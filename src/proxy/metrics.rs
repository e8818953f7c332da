//! What the proxy counts.

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use super::{Answered, CallError, Outcome, audit::Audited, method::MethodLabel};
use crate::{chain::HeadChange, histogram::Histogram, jsonrpc::Answer};

/// What came of a call, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    Answered(Outcome),
    /// Answered with the node's own error object.
    NodeError,
    /// Not allowed, or asked wrongly: the client's to mend.
    Refused,
    /// No answer could be had.
    Failed,
    /// More than the client may ask.
    Limited,
}

/// The proxy's counters. A default one counts for nobody.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    calls: Family<CallLabels, Counter>,
    /// `calls`, by method and outcome, found without a lock.
    by_method: Vec<[Counter; OUTCOMES.len()]>,
    seconds: Histogram,
    heads: Family<ReasonLabels, Counter>,
    upkeep: Counter,
    follow: Counter,
    contrary: Counter,
    alarms: Counter,
    audits: Family<AuditLabels, Counter>,
    deflated: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    method: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AuditLabels {
    outcome: &'static str,
}

const OUTCOMES: [&str; 9] =
    ["hit", "stored", "miss", "joined", "bypass", "node_error", "refused", "failed", "limited"];

// === impl Counted ===

impl Counted {
    pub(super) fn of(answered: &Result<Answered, CallError>) -> Self {
        match answered {
            Ok(Answered { answer: Answer::Result(_), outcome, .. }) => Self::Answered(*outcome),
            Ok(Answered { answer: Answer::Error(_), .. }) => Self::NodeError,
            Err(
                CallError::MethodNotAllowed { .. }
                | CallError::OriginNotTrusted { .. }
                | CallError::Params(_),
            ) => Self::Refused,
            Err(CallError::RateLimited { .. }) => Self::Limited,
            Err(
                CallError::Stranger(_)
                | CallError::Upstream(_)
                | CallError::Unproved
                | CallError::Deadline { .. },
            ) => Self::Failed,
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Answered(outcome) => outcome.index(),
            Self::NodeError => 5,
            Self::Refused => 6,
            Self::Failed => 7,
            Self::Limited => 8,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        OUTCOMES[self.index()]
    }
}

// === impl Inner ===

impl Default for Inner {
    fn default() -> Self {
        let calls = Family::<CallLabels, Counter>::default();
        let by_method = MethodLabel::all()
            .map(|method| OUTCOMES.map(|outcome| calls.get_or_create_owned(&CallLabels { method, outcome })))
            .collect();
        Self {
            calls,
            by_method,
            seconds: Histogram::default(),
            heads: Family::default(),
            upkeep: Counter::default(),
            follow: Counter::default(),
            contrary: Counter::default(),
            alarms: Counter::default(),
            audits: Family::default(),
            deflated: Counter::default(),
        }
    }
}

// === impl Metrics ===

impl Metrics {
    /// Registers `calls_total{method,outcome}`, `call_seconds`, `heads_total{reason}`, `upkeep_calls_total`,
    /// `follow_calls_total`, `contrary_answers_total`, `finality_alarms_total`, `audits_total{outcome}` and
    /// `contents_deflated_total`.
    pub fn register(registry: &mut Registry) -> Self {
        let inner = Inner::default();
        registry.register(
            "calls",
            "Calls of clients, by method and by what came of them",
            inner.calls.clone(),
        );
        registry.register("call_seconds", "Time a call took, whatever came of it", inner.seconds.clone());
        registry.register("heads", "Heads observed, by what they meant", inner.heads.clone());
        registry.register(
            "upkeep_calls",
            "Upstream calls that keep the view of the chain",
            inner.upkeep.clone(),
        );
        registry.register(
            "follow_calls",
            "Upstream calls for blocks and receipts that nobody had asked for yet",
            inner.follow.clone(),
        );
        registry.register(
            "contrary_answers",
            "Answers that contradicted the view even after a refresh",
            inner.contrary.clone(),
        );
        registry.register("finality_alarms", "Finalized blocks that changed", inner.alarms.clone());
        registry.register(
            "audits",
            "Answers from memory that were asked for once more, by what came of it",
            inner.audits.clone(),
        );
        registry.register(
            "contents_deflated",
            "Blocks and receipts in memory that were deflated, for all who take them as gzip",
            inner.deflated.clone(),
        );
        Self(Arc::new(inner))
    }

    /// How many calls there have been, and how many of them were answered from memory.
    pub fn calls(&self) -> (u64, u64) {
        let all = self.0.by_method.iter().flatten().map(Counter::get).sum();
        (all, self.0.by_method.iter().map(|outcomes| outcomes[0].get()).sum())
    }

    pub(super) fn call_ended(&self, method: MethodLabel, counted: Counted, elapsed: Duration) {
        self.0.by_method[method.index()][counted.index()].inc();
        self.0.seconds.observe(elapsed);
    }

    pub(super) fn head_observed(&self, change: HeadChange) {
        let reason = match change {
            HeadChange::Outdated => "outdated",
            HeadChange::First => "first",
            HeadChange::Same => "same",
            HeadChange::Extended(_) => "extended",
            HeadChange::Reorg(_) => "reorg",
            HeadChange::Lag => "lag",
            HeadChange::Rollback(_) => "rollback",
            HeadChange::Restarted => "restarted",
        };
        self.0.heads.get_or_create(&ReasonLabels { reason }).inc();
    }

    pub(super) fn upkeep(&self, calls: u64) {
        self.0.upkeep.inc_by(calls);
    }

    pub(super) fn followed(&self) {
        self.0.follow.inc();
    }

    pub(super) fn contrary(&self) {
        self.0.contrary.inc();
    }

    pub(super) fn alarm(&self) {
        self.0.alarms.inc();
    }

    pub(super) fn deflated(&self) {
        self.0.deflated.inc();
    }

    pub(super) fn audited(&self, audited: Audited) {
        self.0.audits.get_or_create(&AuditLabels { outcome: audited.as_str() }).inc();
    }
}
