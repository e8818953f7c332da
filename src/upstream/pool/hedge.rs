//! Hedging: sends a slow request to a second endpoint as well, and uses the first good answer.
//!
//! Hedging is off by default, because providers bill both requests. A request is slow if it takes longer than most
//! recent answers of the pool. Each hedge request uses the retry budget, so that nodes that are all slow do not get
//! twice the work.

use std::{
    collections::VecDeque,
    pin::{Pin, pin},
    time::Duration,
};

use futures_util::future::{Either, select};
use parking_lot::Mutex;
use tokio::time::{self, Instant};

use super::{
    super::{AcceptedAnswer, AcceptedAnswers, Calls, Percentile},
    retry,
};
use crate::jsonrpc::Answer;

/// Number of recent answers that are sampled: enough for a percentile, few enough to follow a node whose speed
/// changes.
const MAX_SAMPLES: usize = 256;

/// Minimum number of samples. With fewer, no answer counts as late.
const MIN_SAMPLES: usize = 32;

/// Minimum time before an answer is late. A node on the same network answers faster, and even its slowest answers do
/// not justify a second request.
const MIN_DELAY: Duration = Duration::from_millis(5);

/// Decides when an answer is late.
#[derive(Debug)]
pub(in crate::upstream) struct Hedge {
    percentile: Percentile,
    /// Durations of the last answers, the oldest first.
    latencies: Mutex<VecDeque<Duration>>,
}

/// Outcome of a race between two attempts.
#[derive(Debug)]
pub(in crate::upstream) struct HedgeOutcome {
    pub(in crate::upstream) attempted: AcceptedAnswers,
    /// Whether the second attempt won.
    pub(in crate::upstream) second_won: bool,
}

// === impl Hedge ===

impl Hedge {
    pub(in crate::upstream) fn new(percentile: Percentile) -> Self {
        Self { percentile, latencies: Mutex::default() }
    }

    /// Returns the time after which an answer is late; `None` with too few samples.
    fn after(&self) -> Option<Duration> {
        let mut latencies: Vec<_> = {
            let latencies = self.latencies.lock();
            if latencies.len() < MIN_SAMPLES {
                return None;
            }
            latencies.iter().copied().collect()
        };
        let place = self.percentile.place(latencies.len());
        let (_, late, _) = latencies.select_nth_unstable(place);
        Some((*late).max(MIN_DELAY))
    }

    /// Returns the outcome of `first`. If `first` is late, starts a second attempt with `second` and returns the first
    /// good outcome. If neither is good, returns the better outcome for each call. If `second` returns `None`, waits
    /// for `first`.
    pub(in crate::upstream) async fn attempt<S: Future<Output = AcceptedAnswers>>(
        &self,
        calls: &Calls,
        first: impl Future<Output = AcceptedAnswers>,
        second: Option<impl FnOnce(Duration) -> Option<S>>,
    ) -> HedgeOutcome {
        let begun = Instant::now();
        let mut first = pin!(self.timed(first));
        let alone = |attempted| HedgeOutcome { attempted, second_won: false };
        let Some((second, after)) = second.zip(self.after()) else { return alone(first.await) };
        if let Ok(attempted) = time::timeout(after, &mut first).await {
            return alone(attempted);
        }
        let Some(second) = second(after) else { return alone(first.await) };
        let raced = race(calls, first, pin!(self.timed(second))).await;
        if raced.second_won {
            // The first attempt was slow: it was dropped, or ended late without a good answer. Without its time, the
            // samples would lack the slowest answers.
            self.record(begun.elapsed());
        }
        raced
    }

    /// Runs an attempt and records its duration. A failed attempt says nothing about the duration of answers.
    async fn timed(&self, attempt: impl Future<Output = AcceptedAnswers>) -> AcceptedAnswers {
        let begun = Instant::now();
        let attempted = attempt.await;
        if attempted.iter().all(Result::is_ok) {
            self.record(begun.elapsed());
        }
        attempted
    }

    /// Records how long an answer took, or how long it had been missing when its attempt was dropped.
    fn record(&self, time: Duration) {
        let mut latencies = self.latencies.lock();
        if latencies.len() == MAX_SAMPLES {
            latencies.pop_front();
        }
        latencies.push_back(time);
    }
}

/// Waits for the first attempt that answers every call well; if neither does, waits for both and takes the better
/// outcome for each call. Drops the losing attempt.
async fn race<'a, F, S>(calls: &Calls, first: Pin<&'a mut F>, second: Pin<&'a mut S>) -> HedgeOutcome
where
    F: Future<Output = AcceptedAnswers>,
    S: Future<Output = AcceptedAnswers>,
{
    match select(first, second).await {
        Either::Left((one, _)) if is_good(calls, &one) => HedgeOutcome { attempted: one, second_won: false },
        Either::Right((two, _)) if is_good(calls, &two) => HedgeOutcome { attempted: two, second_won: true },
        Either::Left((one, second)) => {
            let two = second.await;
            let second_won = is_good(calls, &two);
            HedgeOutcome { attempted: merge(one, two), second_won }
        }
        Either::Right((two, first)) => {
            let one = first.await;
            HedgeOutcome { attempted: merge(one, two), second_won: false }
        }
    }
}

/// Returns whether every call has a result that no other endpoint could improve.
fn is_good(calls: &Calls, attempted: &AcceptedAnswers) -> bool {
    calls.iter().zip(attempted).all(|(call, outcome)| {
        matches!(outcome, Ok(AcceptedAnswer { answer: Answer::Result(_), .. }))
            && !retry::is_worth_retry(call, outcome)
    })
}

/// Returns the better outcome for each call, preferring the first attempt's.
fn merge(one: AcceptedAnswers, two: AcceptedAnswers) -> AcceptedAnswers {
    one.into_iter()
        .zip(two)
        .map(|(one, two)| if retry::rank(&two) > retry::rank(&one) { two } else { one })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hedge(share: f64) -> Hedge {
        Hedge::new(Percentile::try_new(share).unwrap())
    }

    #[test]
    fn hedge_delay_is_a_percentile_of_recent_answers() {
        let hedge = hedge(0.9);
        for millis in 1..MIN_SAMPLES as u64 {
            hedge.record(Duration::from_millis(millis));
        }
        assert_eq!(hedge.after(), None, "too few samples");
        for millis in 1..=MAX_SAMPLES as u64 {
            hedge.record(Duration::from_millis(1_000 + millis));
        }
        assert_eq!(hedge.after(), Some(Duration::from_millis(1_231)), "only the last samples are used");
        for _ in 0..MAX_SAMPLES {
            hedge.record(Duration::from_micros(100));
        }
        assert_eq!(hedge.after(), Some(MIN_DELAY));
    }
}
