//! A histogram of durations without a lock.
//!
//! `prometheus_client` has a histogram of its own, but behind a lock that every call of every client would take.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::{MetricType, TypedMetric},
};

/// Upper bound of the first bucket, in nanoseconds. Bounds double from bucket to bucket.
const FIRST: u64 = 1_000;

/// Number of buckets with an upper bound. The bounds range from 1 µs, which is shorter than a cache hit, to 34 s,
/// which is longer than the deadline of a call. One more bucket counts longer durations.
const BUCKETS: usize = 26;

/// A histogram of durations. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Histogram(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    buckets: [AtomicU64; BUCKETS + 1],
    nanoseconds: AtomicU64,
}

/// The counts of a histogram at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot([u64; BUCKETS + 1]);

// === impl Histogram ===

impl Histogram {
    /// Returns the counts so far.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(std::array::from_fn(|bucket| self.0.buckets[bucket].load(Relaxed)))
    }

    /// Counts one duration.
    pub fn observe(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.buckets[bucket(nanoseconds)].fetch_add(1, Relaxed);
        self.0.nanoseconds.fetch_add(nanoseconds, Relaxed);
    }
}

// === impl Snapshot ===

impl Snapshot {
    /// Returns the counts since an earlier snapshot.
    pub fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|bucket| self.0[bucket].saturating_sub(earlier.0[bucket])))
    }

    /// Estimates the quantile `part`, between 0 and 1, by interpolation within its bucket. `None` if the snapshot is empty.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let all: u64 = self.0.iter().sum();
        let rank = (part * all as f64).max(f64::MIN_POSITIVE);
        let mut below = 0.0;
        for (bucket, count) in self.0.iter().map(|count| *count as f64).enumerate() {
            if count > 0.0 && below + count >= rank {
                // Assumes that durations are spread evenly within a bucket, and that durations beyond the last bound
                // equal it.
                let upper = bound(bucket.min(BUCKETS - 1));
                let lower = if bucket == 0 { 0.0 } else { bound((bucket - 1).min(BUCKETS - 1)) };
                return Some(Duration::from_secs_f64(lower + (upper - lower) * (rank - below) / count));
            }
            below += count;
        }
        None
    }
}

/// Returns the first bucket whose bound is not below `nanoseconds`.
fn bucket(nanoseconds: u64) -> usize {
    let doublings = nanoseconds.div_ceil(FIRST).next_power_of_two().trailing_zeros();
    (doublings as usize).min(BUCKETS)
}

fn bound(bucket: usize) -> f64 {
    if bucket == BUCKETS { f64::INFINITY } else { (FIRST << bucket) as f64 / 1e9 }
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let counts: Vec<_> = self.0.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
        let buckets: Vec<_> =
            counts.iter().enumerate().map(|(bucket, count)| (bound(bucket), *count)).collect();
        let seconds = self.0.nanoseconds.load(Relaxed) as f64 / 1e9;
        encoder.encode_histogram::<NoLabelSet>(seconds, counts.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode, registry::Registry};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn encodes_as_a_prometheus_histogram() {
        let histogram = Histogram::default();
        for micros in [1, 16, 17, 40, 100_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let mut registry = Registry::default();
        registry.register("took", "Time", histogram);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "took_count 5",
            "took_bucket{le=\"0.000016\"} 2",
            "took_bucket{le=\"0.000032\"} 3",
            "took_bucket{le=\"0.000064\"} 4",
            "took_bucket{le=\"33.554432\"} 4",
            "took_bucket{le=\"+Inf\"} 5",
        ] {
            assert!(text.lines().any(|said| said == line), "{line} is not in {text}");
        }
    }

    #[test]
    fn quantiles_cover_the_interval_between_snapshots() {
        let histogram = Histogram::default();
        histogram.observe(Duration::from_secs(100));
        let before = histogram.snapshot();
        assert_eq!(before.since(&before).quantile(0.5), None);
        assert_eq!(before.quantile(0.5), Some(Duration::from_secs_f64(bound(BUCKETS - 1))));
        for _ in 0..98 {
            histogram.observe(Duration::from_micros(3));
        }
        histogram.observe(Duration::from_millis(1));
        histogram.observe(Duration::from_millis(1));
        let between = histogram.snapshot().since(&before);
        let [half, most] = [0.5, 0.99].map(|part| between.quantile(part).unwrap());
        assert!((Duration::from_micros(2)..=Duration::from_micros(4)).contains(&half), "{half:?}");
        assert!((Duration::from_micros(512)..=Duration::from_micros(1024)).contains(&most), "{most:?}");
    }

    proptest! {
        #[test]
        fn value_falls_into_the_first_bucket_that_fits(nanoseconds in 0u64..1 << 40) {
            let bucket = bucket(nanoseconds);
            let seconds = nanoseconds as f64 / 1e9;
            prop_assert!(seconds <= bound(bucket));
            prop_assert!(bucket == 0 || seconds > bound(bucket - 1));
        }
    }
}
