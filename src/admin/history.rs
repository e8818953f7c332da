//! Samples of the counters over time: 15 minutes in steps of 2 seconds, 24 hours in steps of a minute.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::histogram::Snapshot;

/// Step of the fine history: 450 points for a plot of 15 minutes.
pub(super) const STEP: Duration = Duration::from_secs(2);
const FINE: usize = 15 * 60 / 2;

/// Step of the coarse history, which covers a day.
const COARSE_STEP: Duration = Duration::from_secs(60);
const COARSE: usize = 24 * 60;

/// Number of minutes over which the status report counts refusals and measures durations by method and endpoint. The
/// status page lists these figures, and does not plot them.
const RECENT: usize = 15;

/// The program's counters since its start, at one moment.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Wall-clock time of the sample.
    pub time: SystemTime,
    /// Calls of clients.
    pub calls: u64,
    /// Calls answered from the cache.
    pub hits: u64,
    /// Calls answered with the result of another client's fetch.
    pub joined: u64,
    /// Refused calls, including those over a rate limit.
    pub refused: u64,
    /// Calls sent upstream, for any purpose.
    pub upstream: u64,
    /// Calls sent upstream that no client's call waits for.
    pub upkeep: u64,
    /// Durations of answers from the cache.
    pub memory_seconds: Snapshot,
    /// Durations of answers that waited for the upstream.
    pub upstream_seconds: Snapshot,
    /// Bytes in the cache at the time.
    pub cache_bytes: u64,
    /// Number of the head block at the time.
    pub head: Option<u64>,
    /// Number of reorgs.
    pub reorgs: u64,
    /// Refused and failed calls and requests, by reason.
    pub refusals: Vec<(&'static str, u64)>,
    /// Durations by method and by endpoint.
    pub durations: Durations,
}

/// Durations of calls that waited for the upstream.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    /// Client calls by method.
    pub methods: BTreeMap<&'static str, Snapshot>,
    /// Requests by name of the endpoint.
    pub endpoints: BTreeMap<Arc<str>, Snapshot>,
}

/// Samples of the counters over time. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct History(Arc<Mutex<Rings>>);

#[derive(Debug, Default)]
struct Rings {
    fine: Ring<FINE>,
    coarse: Ring<COARSE>,
    /// Figures since the start that the report compares with the current ones, sampled once a minute, the newest last.
    baselines: VecDeque<Baseline>,
}

#[derive(Debug)]
struct Baseline {
    time: SystemTime,
    refusals: Vec<(&'static str, u64)>,
    durations: Durations,
}

/// The last `N` samples.
#[derive(Debug, Default)]
struct Ring<const N: usize> {
    samples: VecDeque<Sample>,
    /// Counters of the newest sample, to compute the next one.
    last: Option<Counts>,
}

/// A line of the history: counters since the start, and quantiles since the previous sample.
#[derive(Clone, Debug)]
struct Sample {
    counts: [u64; 9],
    head: Option<u64>,
    /// p50 and p99 of answers from the cache, then of answers from upstream.
    seconds: [Option<f32>; 4],
}

// === impl History ===

impl History {
    /// Names of the columns of a line.
    pub(super) const COLUMNS: [&str; 14] = [
        "time",
        "calls",
        "hits",
        "joined",
        "refused",
        "upstream",
        "upkeep",
        "cache_bytes",
        "reorgs",
        "head",
        "memory_p50",
        "memory_p99",
        "upstream_p50",
        "upstream_p99",
    ];

    /// Takes a sample.
    pub fn take(&self, counts: Counts) {
        let mut rings = self.0.lock();
        if rings.coarse.is_due(&counts, COARSE_STEP) {
            if rings.baselines.len() > RECENT {
                rings.baselines.pop_front();
            }
            rings.baselines.push_back(Baseline {
                time: counts.time,
                refusals: counts.refusals.clone(),
                durations: counts.durations.clone(),
            });
            rings.coarse.push(counts.clone());
        }
        rings.fine.push(counts);
    }

    /// Returns the whole history, the oldest sample first.
    pub(super) fn to_json(&self) -> Value {
        let rings = self.0.lock();
        json!({ "columns": Self::COLUMNS, "fine": rings.fine.lines(), "coarse": rings.coarse.lines() })
    }

    /// Returns the newest lines of the fine and the coarse history.
    pub(super) fn newest(&self) -> (Value, Value) {
        let rings = self.0.lock();
        (rings.fine.newest(), rings.coarse.newest())
    }

    /// Returns the recent refusals and failures by reason, and the length of the period that they cover.
    pub fn refusals(&self) -> (Duration, BTreeMap<&'static str, u64>) {
        let rings = self.0.lock();
        let (Some(baseline), Some(now)) = (rings.baselines.front(), &rings.fine.last) else {
            return Default::default();
        };
        let before = |reason: &str| {
            baseline.refusals.iter().find(|(name, _)| *name == reason).map_or(0, |(_, count)| *count)
        };
        let counted =
            now.refusals.iter().map(|(reason, count)| (*reason, count.saturating_sub(before(reason))));
        (
            now.time.duration_since(baseline.time).unwrap_or_default(),
            counted.filter(|(_, count)| *count > 0).collect(),
        )
    }

    /// Returns the durations over the same period as [`refusals`](Self::refusals).
    pub fn durations(&self) -> Durations {
        let rings = self.0.lock();
        match (rings.baselines.front(), &rings.fine.last) {
            (Some(baseline), Some(now)) => now.durations.since(&baseline.durations),
            _ => Durations::default(),
        }
    }
}

// === impl Durations ===

impl Durations {
    /// Returns the durations since an earlier sample.
    fn since(&self, earlier: &Self) -> Self {
        fn since<K: Clone + Ord>(
            now: &BTreeMap<K, Snapshot>,
            earlier: &BTreeMap<K, Snapshot>,
        ) -> BTreeMap<K, Snapshot> {
            let before = |key| earlier.get(key).copied().unwrap_or_default();
            now.iter().map(|(key, snapshot)| (key.clone(), snapshot.since(&before(key)))).collect()
        }
        Self {
            methods: since(&self.methods, &earlier.methods),
            endpoints: since(&self.endpoints, &earlier.endpoints),
        }
    }
}

// === impl Ring ===

impl<const N: usize> Ring<N> {
    fn is_due(&self, counts: &Counts, step: Duration) -> bool {
        let Some(last) = &self.last else { return true };
        // A sample is also due if the clock was set back.
        counts.time.duration_since(last.time).map_or(true, |passed| passed >= step)
    }

    fn push(&mut self, counts: Counts) {
        if self.samples.len() == N {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample::of(&counts, self.last.as_ref()));
        self.last = Some(counts);
    }

    fn lines(&self) -> Vec<Value> {
        self.samples.iter().map(Sample::to_json).collect()
    }

    fn newest(&self) -> Value {
        self.samples.back().map_or(Value::Null, Sample::to_json)
    }
}

// === impl Sample ===

impl Sample {
    fn of(counts: &Counts, last: Option<&Counts>) -> Self {
        let time = counts.time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let times = |now: Snapshot, before: Option<Snapshot>| {
            let between = now.since(&before.unwrap_or_default());
            [0.5, 0.99].map(|part| between.quantile(part).map(|time| time.as_secs_f32()))
        };
        let [memory, upstream] = [
            times(counts.memory_seconds, last.map(|last| last.memory_seconds)),
            times(counts.upstream_seconds, last.map(|last| last.upstream_seconds)),
        ];
        Self {
            counts: [
                u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
                counts.calls,
                counts.hits,
                counts.joined,
                counts.refused,
                counts.upstream,
                counts.upkeep,
                counts.cache_bytes,
                counts.reorgs,
            ],
            head: counts.head,
            seconds: [memory[0], memory[1], upstream[0], upstream[1]],
        }
    }

    fn to_json(&self) -> Value {
        // Rounds to 0.1 µs to shorten the text. The buckets of the histogram are less precise than that.
        let seconds = self.seconds.map(|time| json!(time.map(|time| (f64::from(time) * 1e7).round() / 1e7)));
        self.counts.iter().map(|count| json!(count)).chain([json!(self.head)]).chain(seconds).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;

    fn counts(seconds: u64, calls: u64) -> Counts {
        Counts {
            time: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
            calls,
            hits: 0,
            joined: 0,
            refused: 0,
            upstream: 0,
            upkeep: 0,
            memory_seconds: Snapshot::default(),
            upstream_seconds: Snapshot::default(),
            cache_bytes: 0,
            head: None,
            reorgs: 0,
            refusals: vec![("refused", calls), ("host", 0)],
            durations: Durations::default(),
        }
    }

    #[test]
    fn history_keeps_15_minutes_fine_and_a_day_coarse() {
        let history = History::default();
        for step in 0..50_000 {
            history.take(counts(step * 2, step));
        }
        let all = history.to_json();
        let [fine, coarse] = ["fine", "coarse"].map(|ring| all[ring].as_array().unwrap());
        assert_eq!((fine.len(), coarse.len()), (FINE, COARSE));
        assert_eq!(fine[FINE - 1][1], 49_999);
        assert_eq!(fine[0][0], (49_999 - 449) * 2000);
        assert_eq!(coarse[1][0].as_u64().unwrap() - coarse[0][0].as_u64().unwrap(), 60_000);
        assert_eq!(fine[0].as_array().unwrap().len(), History::COLUMNS.len());
        assert_eq!(history.newest().0, fine[FINE - 1]);
        let (window, refusals) = history.refusals();
        assert!((900..=960).contains(&window.as_secs()), "{window:?}");
        assert_eq!(refusals, BTreeMap::from([("refused", window.as_secs() / 2)]));
    }

    #[test]
    fn latency_is_of_the_calls_since_the_last_sample() {
        let (history, histogram) = (History::default(), Histogram::default());
        let take = |seconds| {
            history.take(Counts { memory_seconds: histogram.snapshot(), ..counts(seconds, 0) });
        };
        histogram.observe(Duration::from_secs(1));
        take(0);
        histogram.observe(Duration::from_micros(3));
        take(2);
        take(4);
        let half: Vec<_> =
            history.to_json()["fine"].as_array().unwrap().iter().map(|line| line[10].as_f64()).collect();
        assert!(half[0].unwrap() > 0.5 && half[1].unwrap() < 0.000_005, "{half:?}");
        assert_eq!(half[2], None, "no answer since the last sample");
    }

    #[test]
    fn durations_by_method_and_endpoint_cover_15_minutes() {
        let (history, histogram) = (History::default(), Histogram::default());
        let name: Arc<str> = "own-node".into();
        let take = |minute: u64| {
            let durations = Durations {
                methods: [("eth_call", histogram.snapshot())].into(),
                endpoints: [(name.clone(), histogram.snapshot())].into(),
            };
            history.take(Counts { durations, ..counts(minute * 60, 0) });
        };
        take(0);
        histogram.observe(Duration::from_secs(8));
        take(1);
        let p99 = || {
            let recent = history.durations();
            let [method, endpoint] = [recent.methods["eth_call"], recent.endpoints[&name]];
            assert_eq!(method, endpoint);
            method.quantile(0.99)
        };
        assert!(p99().unwrap() > Duration::from_secs(4));
        histogram.observe(Duration::from_millis(1));
        take(2);
        for minute in 3..16 {
            take(minute);
        }
        assert!(p99().unwrap() > Duration::from_secs(4), "within 15 minutes");
        take(16);
        assert!(p99().unwrap() < Duration::from_millis(2), "the slow call is older than 15 minutes");
    }
}
