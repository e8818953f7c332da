//! Counts and times upstream attempts.
//!
//! Counts exist in total and per endpoint, so that operators can see which endpoint fails or returns invalid data.
//! The series of an endpoint disappear together with the endpoint, so that reloads leave no stale names behind.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::UpstreamError;
use crate::{
    eth::MethodLabel,
    histogram::{Histogram, Snapshot},
    jsonrpc::Answer,
    labels::Labels,
};

/// Outcome of a call that returned a result.
pub(super) const RESULT: &str = "result";

/// Outcome of a call whose attempt was dropped before it ended: by the time-out of the call, by a faster hedge request,
/// or by a client that disconnected.
pub(super) const CUT_OFF: &str = "cut_off";

/// Metrics of upstream calls. The default is not registered with any registry (tests).
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<MetricFamilies>);

#[derive(Debug, Default)]
struct MetricFamilies {
    calls: Family<Labels<1>, Counter>,
    endpoint_calls: Family<(EndpointLabel, Labels<2>), Counter>,
    endpoint_mismatches: Family<(EndpointLabel, Labels<1>), Counter>,
    endpoint_seconds: Family<EndpointLabel, Histogram>,
    endpoint_over_rate: Family<EndpointLabel, Counter>,
    series: Mutex<BTreeMap<String, EndpointSeries>>,
    seconds: Histogram,
    in_flight: Gauge,
    hedges: Counter,
    hedge_wins: Counter,
}

/// The label of an endpoint.
type EndpointLabel = [(&'static str, String); 1];

pub(super) fn endpoint_label(name: &str) -> EndpointLabel {
    [("endpoint", name.to_owned())]
}

/// Calls sent to one endpoint since its start or since the reload that added it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointTotals {
    /// Calls sent, including those that failed or were cut off.
    pub calls: u64,
    /// Calls that failed or whose answer failed verification. Excludes rate limits and the node's own error objects.
    pub errors: u64,
    /// Calls that the endpoint refused because of a rate limit.
    pub rate_limited: u64,
    /// Calls that Holdfast refused because the configured rate of the endpoint was used up.
    pub over_rate: u64,
    /// Durations of the requests.
    pub seconds: Snapshot,
}

/// The series under one endpoint name.
#[derive(Debug, Default)]
struct EndpointSeries {
    /// Number of endpoints with this name: a replaced endpoint may still exist when its successor starts.
    endpoints: usize,
    /// The mismatch reasons counted so far.
    reasons: BTreeSet<&'static str>,
}

/// Counters of one endpoint; dropping this removes its series.
#[derive(Debug)]
pub(super) struct EndpointMetrics {
    all: Metrics,
    /// The name from the configuration, without secrets.
    name: String,
    /// Cached counters for results, in total and by method, which save a lookup per call.
    all_results: Counter,
    results: Vec<OnceLock<Counter>>,
    calls: Counter,
    errors: Counter,
    rate_limited: Counter,
    over_rate: Counter,
    seconds: Histogram,
}

/// Counts a request as in flight until dropped.
pub(super) struct InFlightGuard(Gauge);

/// Returns the outcome label of a call.
pub(super) fn outcome(answer: Result<&Answer, &UpstreamError>) -> &'static str {
    match answer {
        Ok(Answer::Result(_)) => RESULT,
        Ok(Answer::Error(_)) => "error",
        Err(error) => error.as_str(),
    }
}

// === impl Metrics ===

impl Metrics {
    /// Registers `upstream_calls_total{outcome}`, `endpoint_calls_total{endpoint,method,outcome}`,
    /// `endpoint_mismatches_total{endpoint,reason}`, `endpoint_seconds{endpoint}`, `endpoint_over_rate_total{endpoint}`,
    /// `upstream_seconds`, `upstream_in_flight`, `upstream_hedges_total` and `upstream_hedge_wins_total`.
    pub fn register(registry: &mut Registry) -> Self {
        let inner = MetricFamilies::default();
        registry.register(
            "upstream_calls",
            "Calls sent to upstream endpoints, by outcome",
            inner.calls.clone(),
        );
        registry.register(
            "endpoint_calls",
            "Calls sent to each configured endpoint, by method and outcome",
            inner.endpoint_calls.clone(),
        );
        registry.register(
            "endpoint_mismatches",
            "Answers that failed verification, by endpoint and reason",
            inner.endpoint_mismatches.clone(),
        );
        registry.register(
            "endpoint_seconds",
            "Duration of requests to each configured endpoint in seconds",
            inner.endpoint_seconds.clone(),
        );
        registry.register(
            "endpoint_over_rate",
            "Calls refused because the configured rate of an endpoint was used up",
            inner.endpoint_over_rate.clone(),
        );
        registry.register(
            "upstream_seconds",
            "Duration of upstream requests in seconds",
            inner.seconds.clone(),
        );
        registry.register("upstream_in_flight", "Upstream requests in flight", inner.in_flight.clone());
        registry.register(
            "upstream_hedges",
            "Hedge requests sent to a second endpoint because the first was slow",
            inner.hedges.clone(),
        );
        registry.register(
            "upstream_hedge_wins",
            "Hedge requests that gave the first good answer",
            inner.hedge_wins.clone(),
        );
        // Creates the counters at 0: if a counter first appears with value 1, `rate()` misses that increment.
        for outcome in outcomes() {
            drop(inner.calls.get_or_create(&[("outcome", outcome)]));
        }
        Self(Arc::new(inner))
    }

    /// Returns the number of calls sent so far.
    pub fn calls(&self) -> u64 {
        outcomes().map(|outcome| self.0.calls.get_or_create(&[("outcome", outcome)]).get()).sum()
    }

    /// Returns the counters of the endpoint `name`.
    pub(super) fn for_endpoint(&self, name: &str) -> EndpointMetrics {
        self.0.series.lock().entry(name.to_owned()).or_default().endpoints += 1;
        EndpointMetrics {
            all: self.clone(),
            name: name.to_owned(),
            all_results: self.0.calls.get_or_create_owned(&[("outcome", RESULT)]),
            results: MethodLabel::all().map(|_| OnceLock::new()).collect(),
            calls: Counter::default(),
            errors: Counter::default(),
            rate_limited: Counter::default(),
            over_rate: self.0.endpoint_over_rate.get_or_create_owned(&endpoint_label(name)),
            seconds: self.0.endpoint_seconds.get_or_create_owned(&endpoint_label(name)),
        }
    }

    pub(super) fn hedged(&self) {
        self.0.hedges.inc();
    }

    pub(super) fn hedge_won(&self) {
        self.0.hedge_wins.inc();
    }
}

fn outcomes() -> impl Iterator<Item = &'static str> {
    [RESULT, "error", CUT_OFF].into_iter().chain(UpstreamError::REASONS)
}

// === impl EndpointMetrics ===

impl EndpointMetrics {
    pub(super) fn begin(&self) -> InFlightGuard {
        let in_flight = &self.all.0.in_flight;
        in_flight.inc();
        InFlightGuard(in_flight.clone())
    }

    pub(super) fn request_ended(&self, elapsed: Duration) {
        self.all.0.seconds.observe(elapsed);
        self.seconds.observe(elapsed);
    }

    /// Returns the totals of this endpoint.
    pub(super) fn totals(&self) -> EndpointTotals {
        EndpointTotals {
            calls: self.calls.get(),
            errors: self.errors.get(),
            rate_limited: self.rate_limited.get(),
            over_rate: self.over_rate.get(),
            seconds: self.seconds.snapshot(),
        }
    }

    /// Counts a call that the endpoint refused because of a rate limit, with an HTTP status or an error object.
    pub(super) fn rate_limited(&self) {
        self.rate_limited.inc();
    }

    /// Counts calls that Holdfast refused because the configured rate was used up.
    pub(super) fn over_rate(&self, calls: u32) {
        self.over_rate.inc_by(calls.into());
    }

    pub(super) fn call_ended(&self, method: &str, answer: Result<&Answer, &UpstreamError>) {
        let inner = &self.all.0;
        let method = MethodLabel::of(method);
        self.calls.inc();
        if let Ok(Answer::Result(_)) = answer {
            self.all_results.inc();
            self.results[method.index()].get_or_init(|| self.counter(method, RESULT)).inc();
            return;
        }
        if matches!(answer, Err(error) if !matches!(error, UpstreamError::RateLimited { .. })) {
            self.errors.inc();
        }
        let outcome = outcome(answer);
        inner.calls.get_or_create(&[("outcome", outcome)]).inc();
        self.counter(method, outcome).inc();
        if let Err(UpstreamError::Rejected(mismatch)) = answer {
            let reason = mismatch.failure.as_str();
            inner.series.lock().entry(self.name.clone()).or_default().reasons.insert(reason);
            let labels = (endpoint_label(&self.name), [("reason", reason)]);
            inner.endpoint_mismatches.get_or_create(&labels).inc();
        }
    }

    /// Counts a call whose attempt was dropped.
    pub(super) fn call_cut_off(&self, method: &str) {
        self.calls.inc();
        self.all.0.calls.get_or_create(&[("outcome", CUT_OFF)]).inc();
        self.counter(MethodLabel::of(method), CUT_OFF).inc();
    }

    fn counter(&self, method: MethodLabel, outcome: &'static str) -> Counter {
        let labels = (endpoint_label(&self.name), [("method", method.as_str()), ("outcome", outcome)]);
        self.all.0.endpoint_calls.get_or_create_owned(&labels)
    }
}

impl Drop for EndpointMetrics {
    fn drop(&mut self) {
        let inner = &self.all.0;
        let mut series = inner.series.lock();
        let Some(series_of_name) = series.get_mut(&self.name) else { return };
        series_of_name.endpoints -= 1;
        if series_of_name.endpoints > 0 {
            return;
        }
        for (method, outcome) in
            MethodLabel::all().flat_map(|method| outcomes().map(move |outcome| (method, outcome)))
        {
            inner
                .endpoint_calls
                .remove(&(endpoint_label(&self.name), [("method", method), ("outcome", outcome)]));
        }
        inner.endpoint_seconds.remove(&endpoint_label(&self.name));
        inner.endpoint_over_rate.remove(&endpoint_label(&self.name));
        for reason in std::mem::take(&mut series_of_name.reasons) {
            inner.endpoint_mismatches.remove(&(endpoint_label(&self.name), [("reason", reason)]));
        }
        series.remove(&self.name);
    }
}

// === impl InFlightGuard ===

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
