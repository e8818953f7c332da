//! Times, counted in buckets without a lock.
//!
//! The crate that writes the metrics has a histogram of its own, behind a lock that every call of every client would
//! take.

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

/// The first bucket's bound, in nanoseconds; each of the others is twice the one before it.
const FIRST: u64 = 16_000;

/// 16 µs to 34 s: an answer from memory to the deadline of a call. One more for what is beyond.
const BUCKETS: usize = 22;

/// How long things took. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Histogram(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    buckets: [AtomicU64; BUCKETS + 1],
    nanoseconds: AtomicU64,
}

// === impl Histogram ===

impl Histogram {
    /// Counts one.
    pub fn observe(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.buckets[bucket(nanoseconds)].fetch_add(1, Relaxed);
        self.0.nanoseconds.fetch_add(nanoseconds, Relaxed);
    }
}

/// The first bucket whose bound is not below.
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
    fn it_reads_as_others_do() {
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
            assert!(text.lines().any(|said| said == line), "{line} in {text}");
        }
    }

    proptest! {
        #[test]
        fn each_is_in_the_first_bucket_that_holds_it(nanoseconds in 0u64..1 << 40) {
            let bucket = bucket(nanoseconds);
            let seconds = nanoseconds as f64 / 1e9;
            prop_assert!(seconds <= bound(bucket));
            prop_assert!(bucket == 0 || seconds > bound(bucket - 1));
        }
    }
}
