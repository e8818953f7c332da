//! Metrics of the proxy.

use std::{fmt, sync::Arc, time::Duration};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::Gauge,
    },
    registry::Registry,
};

use crate::{
    cache::tier::TierKind,
    chain::HeadChange,
    eth::{MethodLabel, Tag},
    histogram::{Histogram, Snapshot},
    jsonrpc::Code,
    labels::Labels,
    proxy::{
        call::{
            outcome::{LogProof, LogSource, Outcome, Source},
            result::{CallResult, ServedFrom},
        },
        method_totals::MethodTotals,
        reorgs::{Reorg, ReorgKind},
    },
};

const HEADS: [&str; 9] =
    ["outdated", "first", "same", "extended", "reorg", "lag", "rollback", "restarted", "unlinked"];

const REFRESHED: [&str; 2] = ["answered", "failed"];

/// Errors that [`Totals::failed`] counts, besides rate limits of the upstream.
const FAILURES: [Code; 5] =
    [Code::UpstreamFailed, Code::UpstreamTimeout, Code::UpstreamMismatch, Code::Overloaded, Code::Internal];

/// The proxy's metrics. The default is not registered with any registry (tests).
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Inner>);

/// Totals since the start, over all methods.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Client calls.
    pub calls: u64,
    /// Calls answered from a cache tier or from memory, with a whole entry or a slice of one.
    pub hits: u64,
    /// Hits that each cache tier served, in the order of [`TierKind::ALL`].
    pub restored: [u64; TierKind::ALL.len()],
    /// Calls answered from a cache tier or from memory, after a refresh of the view that they had started.
    pub stale: u64,
    /// Calls answered by joining a fetch or a refresh that another call had started.
    pub joined: u64,
    /// Calls with a method that is not allowed, with invalid parameters, or for too many logs.
    pub refused: u64,
    /// Calls refused because the client exceeded its rate limit.
    pub limited: u64,
    /// Calls that failed because of the upstream, an overload or an internal error.
    pub failed: u64,
    /// Upstream calls that refreshed the view of the chain.
    pub upkeep: u64,
    /// Upstream calls that fetched ahead of client calls.
    pub follow: u64,
    /// Bytes of results served from memory, before compression.
    pub bytes_from_memory: u64,
    /// Latency of answers from memory.
    pub memory_seconds: Snapshot,
    /// Latency of calls that needed the upstream, including failed calls.
    pub upstream_seconds: Snapshot,
}

/// Encodes `upstream_calls_saved_total`, and computes its value at each scrape.
#[derive(Debug)]
struct Saved(Metrics);

#[derive(Debug)]
struct Inner {
    calls: Family<Labels<2>, Counter>,
    /// The counters of `calls` by method and outcome, for access without a lock.
    by_method: Vec<[Counter; CallResult::COUNT]>,
    seconds: Family<Labels<1>, Histogram>,
    /// The histograms of `seconds` by source.
    by_from: [Histogram; ServedFrom::ALL.len()],
    /// Durations of the calls that waited for the upstream, by method, for the status report.
    upstream_by_method: Vec<Histogram>,
    bytes_from_memory: Counter,
    heads: Family<Labels<1>, Counter>,
    refreshes: Family<Labels<2>, Counter>,
    reorgs: Family<Labels<2>, Counter>,
    upkeep: Counter,
    follow: Counter,
    contrary: Counter,
    alarms: Counter,
    jobs_waiting: Gauge,
    deflated: Counter,
    logs: Family<Labels<2>, Counter>,
}

/// Returns the labels of calls whose logs come from this source, with this proof.
fn log_labels(source: LogSource, proof: LogProof) -> Labels<2> {
    [("source", source.as_str()), ("proof", proof.as_str())]
}

// === impl Totals ===

impl Totals {
    /// Returns the number of calls answered without an upstream call of their own: from the cache, or by joining
    /// another call's fetch or refresh. This is `upstream_calls_saved_total`.
    pub fn without_asking(&self) -> u64 {
        self.hits + self.joined
    }

    /// Returns the net number of upstream calls saved: [`without_asking`](Self::without_asking) less the calls made to
    /// refresh the view and to fetch ahead of clients. The refresh that a client's call started replaced that call, so it
    /// is not subtracted. The result is negative if the calls made outnumber the calls saved.
    ///
    /// Additional upstream calls for one answer (retries, hedges, blocks for a proof, chain id checks) are not
    /// subtracted; `upstream_calls_total` counts every call sent.
    pub fn saved(&self) -> i64 {
        let besides = self.upkeep + self.follow;
        let answered = self.without_asking() + self.stale;
        i64::try_from(i128::from(answered) - i128::from(besides)).unwrap_or(i64::MAX)
    }
}

// === impl Inner ===

impl Default for Inner {
    fn default() -> Self {
        let calls = Family::<Labels<2>, Counter>::default();
        let by_method = MethodLabel::all()
            .map(|method| {
                CallResult::names()
                    .map(|outcome| calls.get_or_create_owned(&[("method", method), ("outcome", outcome)]))
            })
            .collect();
        let seconds = Family::<Labels<1>, Histogram>::default();
        let by_from = ServedFrom::ALL.map(|from| seconds.get_or_create_owned(&[("from", from.as_str())]));
        Self {
            calls,
            by_method,
            seconds,
            by_from,
            upstream_by_method: MethodLabel::all().map(|_| Histogram::default()).collect(),
            bytes_from_memory: Counter::default(),
            heads: Family::default(),
            refreshes: Family::default(),
            reorgs: Family::default(),
            upkeep: Counter::default(),
            follow: Counter::default(),
            contrary: Counter::default(),
            alarms: Counter::default(),
            jobs_waiting: Gauge::default(),
            deflated: Counter::default(),
            logs: Family::default(),
        }
    }
}

impl Inner {
    /// Creates all series at registration, because Prometheus's `rate()` misses the first event of a series if the
    /// series appears only with that event.
    fn begin(&self) {
        for (source, proof) in LogSource::pairs() {
            drop(self.logs.get_or_create(&log_labels(source, proof)));
        }
        for reason in HEADS {
            drop(self.heads.get_or_create(&[("reason", reason)]));
        }
        for tag in [Tag::Latest, Tag::Safe, Tag::Finalized] {
            for outcome in REFRESHED {
                drop(self.refreshes.get_or_create(&[("tag", tag.as_str()), ("outcome", outcome)]));
            }
        }
        for kind in [ReorgKind::Reorg, ReorgKind::Rollback] {
            for depth in Reorg::DEPTHS {
                drop(self.reorgs.get_or_create(&[("kind", kind.as_str()), ("depth", depth)]));
            }
        }
    }
}

// === impl Metrics ===

impl Metrics {
    /// Registers `calls_total{method,outcome}`, `call_seconds{from}`, `memory_bytes_total`, `heads_total{reason}`,
    /// `view_refreshes_total{tag,outcome}`, `reorgs_total{kind,depth}`, `upkeep_calls_total`, `follow_calls_total`,
    /// `upstream_calls_saved_total`, `contrary_answers_total`, `finality_alarms_total`, `contents_deflated_total`,
    /// `jobs_waiting` and `log_calls_total{source,proof}`.
    pub fn register(registry: &mut Registry) -> Self {
        let inner = Inner::default();
        registry.register("calls", "Client calls, by method and outcome", inner.calls.clone());
        registry.register(
            "call_seconds",
            "Duration of client calls in seconds, by source of the answer",
            inner.seconds.clone(),
        );
        registry.register(
            "memory_bytes",
            "Bytes of results served from memory, before compression",
            inner.bytes_from_memory.clone(),
        );
        registry.register(
            "heads",
            "Heads observed, by their effect on the tracked chain",
            inner.heads.clone(),
        );
        registry.register(
            "view_refreshes",
            "Upstream requests for the block of a tag, by tag and outcome",
            inner.refreshes.clone(),
        );
        registry.register(
            "reorgs",
            "Reorgs and rollbacks, by kind and by number of blocks that left the chain",
            inner.reorgs.clone(),
        );
        registry.register(
            "upkeep_calls",
            "Upstream calls that refresh the view of the chain",
            inner.upkeep.clone(),
        );
        registry.register(
            "follow_calls",
            "Upstream calls for blocks and receipts ahead of client calls",
            inner.follow.clone(),
        );
        registry.register(
            "contrary_answers",
            "Upstream answers that contradicted the view of the chain even after a refresh, and entries of cache tiers that contradicted it",
            inner.contrary.clone(),
        );
        registry.register(
            "jobs_waiting",
            "Searches of logs and encodings of raw content that wait for a thread",
            inner.jobs_waiting.clone(),
        );
        registry.register("finality_alarms", "Finalized blocks that changed", inner.alarms.clone());
        registry.register(
            "contents_deflated",
            "Cached blocks and receipt lists that were compressed for clients that accept gzip",
            inner.deflated.clone(),
        );
        registry.register(
            "log_calls",
            "Answers to eth_getLogs, except calls passed on as sent, by the most expensive source of a block's logs and by the proof that they are complete",
            inner.logs.clone(),
        );
        inner.begin();
        let metrics = Self(Arc::new(inner));
        registry.register_collector(Box::new(Saved(metrics.clone())));
        metrics
    }

    /// Returns the number of computations that wait for a thread.
    pub(crate) fn jobs_waiting(&self) -> Gauge {
        self.0.jobs_waiting.clone()
    }

    /// Returns the totals since the start.
    pub fn totals(&self) -> Totals {
        let all = |counted: CallResult| -> u64 {
            self.0.by_method.iter().map(|outcomes| outcomes[counted.index()].get()).sum()
        };
        let seconds = |from: ServedFrom| self.0.by_from[from as usize].snapshot();
        let restored = TierKind::ALL.map(|tier| all(CallResult::Answered(Outcome::Restored(tier))));
        Totals {
            calls: self.0.by_method.iter().flatten().map(Counter::get).sum(),
            hits: all(CallResult::Answered(Outcome::Hit(Source::View)))
                + all(CallResult::Answered(Outcome::Derived(Source::View)))
                + restored.iter().sum::<u64>(),
            restored,
            stale: all(CallResult::Answered(Outcome::Stale { joined: false, logs: None })),
            joined: all(CallResult::Answered(Outcome::Joined)),
            refused: all(CallResult::Error(Code::MethodNotFound))
                + all(CallResult::Error(Code::InvalidParams))
                + all(CallResult::Error(Code::TooManyLogs)),
            limited: all(CallResult::Error(Code::RateLimited)),
            failed: all(CallResult::UpstreamLimited)
                + FAILURES.map(|code| all(CallResult::Error(code))).iter().sum::<u64>(),
            upkeep: self.0.upkeep.get(),
            follow: self.0.follow.get(),
            bytes_from_memory: self.0.bytes_from_memory.get(),
            memory_seconds: seconds(ServedFrom::Memory),
            upstream_seconds: seconds(ServedFrom::Upstream),
        }
    }

    /// Returns the totals of each method, in the order of [`MethodLabel::all`].
    pub fn methods(&self) -> impl Iterator<Item = MethodTotals> {
        let counted = self.0.by_method.iter().zip(&self.0.upstream_by_method);
        MethodLabel::all().zip(counted).map(|(method, (counts, seconds))| {
            MethodTotals::new(method, counts.each_ref().map(Counter::get), seconds.snapshot())
        })
    }

    pub(super) fn call_ended(
        &self,
        method: MethodLabel,
        counted: CallResult,
        waited: bool,
        elapsed: Duration,
    ) {
        self.0.by_method[method.index()][counted.index()].inc();
        let from = counted.served_from(waited);
        self.0.by_from[from as usize].observe(elapsed);
        // Only calls that waited pay for a second histogram.
        if from == ServedFrom::Upstream {
            self.0.upstream_by_method[method.index()].observe(elapsed);
        }
    }

    /// Adds the size of a result that was served from memory.
    pub(super) fn recalled(&self, bytes: usize) {
        self.0.bytes_from_memory.inc_by(bytes as u64);
    }

    pub(super) fn head_observed(&self, change: HeadChange) {
        let [outdated, first, same, extended, reorg, lag, rollback, restarted, unlinked] = HEADS;
        let reason = match change {
            HeadChange::Outdated => outdated,
            HeadChange::First => first,
            HeadChange::Same => same,
            HeadChange::Extended(_) => extended,
            HeadChange::Reorg(_) => reorg,
            HeadChange::Lag => lag,
            HeadChange::Rollback(_) => rollback,
            HeadChange::Restarted => restarted,
            HeadChange::Unlinked => unlinked,
        };
        self.0.heads.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts a request for the block of a tag.
    pub(super) fn refreshed(&self, tag: Tag, ok: bool) {
        let [answered, failed] = REFRESHED;
        let outcome = if ok { answered } else { failed };
        self.0.refreshes.get_or_create(&[("tag", tag.as_str()), ("outcome", outcome)]).inc();
    }

    /// Counts a reorg or rollback.
    pub(super) fn reorganised(&self, reorg: &Reorg) {
        let labels = [("kind", reorg.kind.as_str()), ("depth", reorg.depth_label())];
        self.0.reorgs.get_or_create(&labels).inc();
    }

    /// Counts an answer to `eth_getLogs`.
    pub(super) fn logs_found(&self, source: LogSource, proof: LogProof) {
        self.0.logs.get_or_create(&log_labels(source, proof)).inc();
    }

    /// Returns the number of answers to `eth_getLogs` by source and proof, in the order of [`LogSource`].
    pub fn logs(&self) -> impl Iterator<Item = (LogSource, LogProof, u64)> {
        LogSource::pairs().map(|(source, proof)| {
            (source, proof, self.0.logs.get_or_create(&log_labels(source, proof)).get())
        })
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
}

// === impl Saved ===

impl Collector for Saved {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let saved = ConstCounter::new(self.0.totals().without_asking());
        let encoder = encoder.encode_descriptor(
            "upstream_calls_saved",
            "Client calls answered without an upstream call of their own; for the net savings, add calls with the outcome stale, and subtract upkeep_calls and follow_calls",
            None,
            saved.metric_type(),
        )?;
        saved.encode(encoder)
    }
}
