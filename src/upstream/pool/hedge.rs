//! Asks another endpoint too when one takes long, and takes the first good answer.
//!
//! Off unless the operator wants it, since both are billed. "Long" is measured: longer than most of the
//! recent answers of the pool took. Each such request is paid for out of the budget of retries, so that a chain
//! of slow nodes is not asked for twice the work.

use std::{
    collections::VecDeque,
    pin::{Pin, pin},
    time::Duration,
};

use futures_util::future::{Either, select};
use parking_lot::Mutex;
use tokio::time::{self, Instant};

use super::{
    super::{
        Calls, Percentile,
        endpoint::{AcceptedAnswer, AttemptOutcomes},
    },
    retry,
};
use crate::jsonrpc::Answer;

/// So many of the last answers count. Enough to tell a percentile, few enough to follow a node that changes.
const MAX_SAMPLES: usize = 256;

/// With fewer there is no telling what is slow.
const MIN_SAMPLES: usize = 32;

/// Whatever is usual, an answer is not late before this: a node next door answers in less than a wink, and its
/// slowest twentieth is no reason to ask two.
const MIN_DELAY: Duration = Duration::from_millis(5);

/// When an answer is late.
#[derive(Debug)]
pub(in crate::upstream) struct Hedge {
    percentile: Percentile,
    /// What the last answers took, the oldest first.
    latencies: Mutex<VecDeque<Duration>>,
}

/// What came of a race.
#[derive(Debug)]
pub(in crate::upstream) struct HedgeOutcome {
    pub(in crate::upstream) attempted: AttemptOutcomes,
    /// Was it the second that answered?
    pub(in crate::upstream) second_won: bool,
}

// === impl Hedge ===

impl Hedge {
    pub(in crate::upstream) fn new(percentile: Percentile) -> Self {
        Self { percentile, latencies: Mutex::default() }
    }

    /// When an answer is late; `None` as long as there is no telling.
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

    /// Returns the outcome of `first`. If that is late, has `second` begin another attempt, and returns the first good
    /// outcome, or the better one for each call. `second` may refuse; without it, `first` is waited for.
    pub(in crate::upstream) async fn attempt<S: Future<Output = AttemptOutcomes>>(
        &self,
        calls: &Calls,
        first: impl Future<Output = AttemptOutcomes>,
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
            // An answer that is given up for being slow would else not count among the slow ones.
            self.record(begun.elapsed());
        }
        raced
    }

    /// The same attempt, counted by the time it takes. One that fails says nothing of how long answers take.
    async fn timed(&self, attempt: impl Future<Output = AttemptOutcomes>) -> AttemptOutcomes {
        let begun = Instant::now();
        let attempted = attempt.await;
        if attempted.iter().all(Result::is_ok) {
            self.record(begun.elapsed());
        }
        attempted
    }

    /// An answer took this long, or was not there after it.
    fn record(&self, time: Duration) {
        let mut latencies = self.latencies.lock();
        if latencies.len() == MAX_SAMPLES {
            latencies.pop_front();
        }
        latencies.push_back(time);
    }
}

/// Waits for the first that answers every call well; if neither does, for both, and takes the better of each.
/// Whoever is not waited for any more is dropped.
async fn race<'a, F, S>(calls: &Calls, first: Pin<&'a mut F>, second: Pin<&'a mut S>) -> HedgeOutcome
where
    F: Future<Output = AttemptOutcomes>,
    S: Future<Output = AttemptOutcomes>,
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

/// Has every call a result that nobody else would better?
fn is_good(calls: &Calls, attempted: &AttemptOutcomes) -> bool {
    calls.iter().zip(attempted).all(|(call, outcome)| {
        matches!(outcome, Ok(AcceptedAnswer { answer: Answer::Result(_), .. }))
            && !retry::is_worth_retry(call, outcome)
    })
}

/// For each call the better outcome, the first's if they are equal.
fn merge(one: AttemptOutcomes, two: AttemptOutcomes) -> AttemptOutcomes {
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
    fn late_is_later_than_the_share_of_the_last_answers() {
        let hedge = hedge(0.9);
        for millis in 1..MIN_SAMPLES as u64 {
            hedge.record(Duration::from_millis(millis));
        }
        assert_eq!(hedge.after(), None, "too few to tell");
        for millis in 1..=MAX_SAMPLES as u64 {
            hedge.record(Duration::from_millis(1_000 + millis));
        }
        assert_eq!(hedge.after(), Some(Duration::from_millis(1_231)), "the last ones count");
        for _ in 0..MAX_SAMPLES {
            hedge.record(Duration::from_micros(100));
        }
        assert_eq!(hedge.after(), Some(MIN_DELAY));
    }
}
