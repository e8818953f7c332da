//! How an endpoint does and what it has, as far as its answers show.

use std::time::Duration;

use tokio::time::Instant;

use super::super::{Call, RateConfig, UpstreamError, node_error};
use crate::{
    backoff::Backoff,
    breaker::{Breaker, Policy},
    eth::BlockNumber,
    jsonrpc::Answer,
    token_bucket::TokenBucket,
    verify::Verdict,
};

/// One or two failures happen to every node. Pauses are short, so that a node that is back is noticed within seconds of the
/// next call.
const BREAKER: Policy = Policy {
    failures: 5,
    first: Duration::from_millis(500),
    longest: Duration::from_secs(5),
    attempt: Duration::from_secs(30),
};

/// For so many failures a call counts that waited for nothing when one before it had already: the two of them are too
/// many, since each costs its caller the whole of its time.
const HANG_FAILURES: u32 = BREAKER.failures - 1;

/// What an answer that cannot be right costs in the choice, in answers that did not come.
pub(super) const MISMATCH_PENALTY: u32 = 2;

/// Pause where a node limits its rate and does not say for how long.
const RATE_LIMIT_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(64));

/// How long a head that an endpoint showed says that it is behind: it may have caught up since.
const BEHIND_TTL: Duration = Duration::from_secs(2);

/// History is forgotten in one piece: with a block that is gone, so many above it are taken to be. Else who
/// reads upwards would ask in vain for every one.
const PRUNED_SPAN: u64 = 64;

/// How long what an endpoint has forgotten is not asked of it: behind a balancer it may have been another node that had,
/// and a node may be given its history back.
const PRUNED_TTL: Duration = Duration::from_secs(10 * 60);

/// What is known of how an endpoint does.
#[derive(Debug)]
pub(super) struct EndpointHealth {
    pub(super) breaker: Breaker,
    pub(super) rate: Option<RateConfig>,
    pub(super) bucket: Option<TokenBucket>,
    /// It asked for a pause until then.
    pub(super) paused: Option<Instant>,
    /// Pauses in a row. One of which it did not say how long it is lasts as long as this says.
    pub(super) pause_backoff: Backoff,
    /// When it last let a call wait for nothing, if it has answered nothing since.
    pub(super) hung_at: Option<Instant>,
    /// When it last said anything to a call, be it wrong.
    pub(super) responded_at: Option<Instant>,
    /// Refusals in a row that may have been of a client's making.
    pub(super) refusals: u32,
    /// Failures in a row of forwarded calls. An answer to another call, such as a head, does not end the row.
    pub(super) forward_failures: u32,
    /// When it last answered a forwarded call.
    pub(super) forwarded_at: Option<Instant>,
    /// Answers in a row that could not be right.
    pub(super) mismatches: u32,
    /// When it last failed, or said what cannot be right.
    pub(super) failed: Option<Instant>,
    pub(super) last_error: Option<UpstreamError>,
    /// What was wrong with what it last said, if anything was.
    pub(super) last_mismatch: Option<String>,
    /// The highest block that it has shown.
    pub(super) head: Option<BlockNumber>,
    /// When it last said that this is its head: a block that was asked for says nothing of those above it.
    pub(super) head_seen: Option<Instant>,
    /// What is below it has forgotten, as far as can be told, and when it last said so.
    pub(super) pruned_below: Option<(BlockNumber, Instant)>,
}

// === impl EndpointHealth ===

impl EndpointHealth {
    /// Nothing is known yet, but how often it may be asked.
    pub(super) fn new(rate: Option<RateConfig>) -> Self {
        Self {
            breaker: Breaker::new(BREAKER),
            rate,
            bucket: rate.map(bucket),
            paused: None,
            pause_backoff: RATE_LIMIT_BACKOFF,
            hung_at: None,
            responded_at: None,
            refusals: 0,
            forward_failures: 0,
            forwarded_at: None,
            mismatches: 0,
            failed: None,
            last_error: None,
            last_mismatch: None,
            head: None,
            head_seen: None,
            pruned_below: None,
        }
    }

    /// From now on it may be asked so often.
    pub(super) fn set_rate(&mut self, rate: Option<RateConfig>) {
        if self.rate != rate {
            (self.rate, self.bucket) = (rate, rate.map(bucket));
        }
    }

    /// Is it known to be behind this block?
    pub(super) fn is_behind(&self, block: BlockNumber, now: Instant) -> bool {
        let is_news = self.head_seen.is_some_and(|seen| now < seen + BEHIND_TTL);
        is_news && self.head.is_some_and(|head| head < block)
    }

    /// Forgets what blocks it has and has not.
    pub(super) fn forget_heights(&mut self) {
        (self.head, self.head_seen, self.pruned_below) = (None, None, None);
    }

    /// Is it known to have forgotten this block?
    pub(super) fn has_pruned(&self, block: BlockNumber, now: Instant) -> bool {
        self.pruned_below
            .is_some_and(|(pruned_below, since)| block < pruned_below && now < since + PRUNED_TTL)
    }

    /// A call that began then failed in a way that speaks against it.
    pub(super) fn fail(&mut self, error: &UpstreamError, begun: Instant, now: Instant) {
        let hangs = matches!(error, UpstreamError::TimedOut { .. });
        // Those that wait at the same time, on one connection that is dead, wait for the same.
        let again = hangs && self.hung_at.is_some_and(|hung_at| hung_at <= begun);
        self.breaker.fail(if again { HANG_FAILURES } else { 1 }, now);
        if hangs {
            self.hung_at = Some(now);
        }
        self.failed = Some(now);
        self.last_error = Some(error.clone());
    }

    /// A forwarded call that began then failed. If the endpoint has answered another one since, the failure is that of the
    /// call: a client chooses its calls, and must not move the primary for all.
    pub(super) fn fail_forwarded(&mut self, error: &UpstreamError, begun: Instant, now: Instant) {
        if self.forwarded_at.is_some_and(|forwarded_at| forwarded_at >= begun) {
            return;
        }
        let hangs = matches!(error, UpstreamError::TimedOut { .. });
        let again = hangs && self.forward_failures > 0 && self.failed.is_some_and(|failed| failed <= begun);
        let weight = if again { HANG_FAILURES } else { 1 };
        self.forward_failures = self.forward_failures.saturating_add(weight);
        self.failed = Some(now);
    }

    /// Returns whether so many forwarded calls in a row have failed that another endpoint should be the primary.
    pub(super) fn fails_forwarded_calls(&self) -> bool {
        self.forward_failures >= BREAKER.failures
    }

    /// It was asked too often, and may have said when to come back. One that does not say is left alone for longer
    /// each time: it may mean the day's quota.
    pub(super) fn pause(&mut self, retry_after: Option<Duration>, now: Instant) {
        let is_new = self.paused.is_none_or(|until| until <= now);
        let unsaid = if is_new { self.pause_backoff.next_pause() } else { self.pause_backoff.last_pause() };
        let after = retry_after.unwrap_or(unsaid);
        self.paused = self.paused.max(Some(now + after.min(node_error::MAX_PAUSE)));
    }

    /// Takes in what an answer shows of what it has.
    pub(super) fn learn(&mut self, call: &Call, answer: &Answer, verdict: Option<&Verdict>, now: Instant) {
        if let (Answer::Error(error), Some(block)) = (answer, call.requirements.block)
            && node_error::is_pruned(error)
        {
            let pruned_below = BlockNumber(block.0.saturating_add(PRUNED_SPAN));
            let before = self.pruned_below.filter(|(_, since)| now < *since + PRUNED_TTL);
            // What is said of a lower block says nothing new of those above it.
            if before.is_none_or(|(before, _)| before <= pruned_below) {
                self.pruned_below = Some((pruned_below, now));
            }
        }
        let Some(Verdict::Passed(content) | Verdict::Unproved(_, Some(content))) = verdict else { return };
        let Some(shown) = content.home().filter(|_| !content.is_single()) else { return };
        let shown = shown.number;
        // A head is asked for by its tag: then what it shows is all that it has.
        if call.requirements.is_head {
            (self.head, self.head_seen) = (Some(shown), Some(now));
        }
        self.head = self.head.max(Some(shown));
    }
}

fn bucket(rate: RateConfig) -> TokenBucket {
    TokenBucket::new(Duration::from_secs(1) / rate.per_second.max(1), rate.burst)
}
