//! Health of an endpoint and the blocks it has, as far as its answers show.

use std::time::Duration;

use tokio::time::Instant;

use super::super::{Call, RateConfig, UpstreamError, node_error};
use crate::{
    backoff::Backoff,
    breaker::{Breaker, Policy},
    eth::BlockNumber,
    jsonrpc::Answer,
    outage::Outage,
    token_bucket::TokenBucket,
    verify::Verdict,
};

/// Policy of an endpoint's circuit breaker. It tolerates a few failures, because every node fails now and then. Its
/// pauses are short, so that calls soon return to a node that has recovered.
const BREAKER: Policy = Policy {
    failures: 5,
    first: Duration::from_millis(500),
    longest: Duration::from_secs(5),
    attempt: Duration::from_secs(30),
};

/// Weight of a time-out that follows another one. Two time-outs in a row open the breaker, because each costs a client
/// the whole time-out.
const HANG_FAILURES: u32 = BREAKER.failures - 1;

/// How many failed calls an invalid answer counts as when an endpoint is chosen.
pub(super) const MISMATCH_PENALTY: u32 = 2;

/// Pause after a rate limit if the node does not say how long to wait. The first pause is shorter than a call waits, and
/// long enough for three attempts at most in ten seconds.
const RATE_LIMIT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(1_500), node_error::MAX_PAUSE);

/// How long calls wait for the outcome of the request that tests whether a rate limit has ended. Some calls are slow on
/// every node.
const TRIAL: Duration = Duration::from_secs(1);

/// How long the status shows that the configured rate is used up, and the log does not repeat it.
const USED_UP_TTL: Duration = Duration::from_secs(60);

/// How long a reported head shows that an endpoint is behind. After that, the endpoint may have caught up.
const BEHIND_TTL: Duration = Duration::from_secs(2);

/// Number of blocks above a pruned block that Holdfast assumes to be pruned, too, because nodes prune a contiguous
/// range. Without this assumption, a client that reads upwards would cause a useless call for each of these blocks.
const PRUNED_SPAN: u64 = 64;

/// How long Holdfast avoids asking an endpoint for blocks that it reported as pruned. The report expires because
/// another node behind a load balancer may have made it, and because a node may get its history back.
const PRUNED_TTL: Duration = Duration::from_secs(10 * 60);

/// Health of an endpoint, as observed.
#[derive(Debug)]
pub(super) struct EndpointHealth {
    pub(super) breaker: Breaker,
    pub(super) rate: Option<RateConfig>,
    pub(super) bucket: Option<TokenBucket>,
    /// Time when a call last failed because the configured rate was used up.
    used_up: Option<Instant>,
    /// End of the pause after a rate limit.
    paused: Option<Instant>,
    /// Time when the last request began while the endpoint was known to limit the rate.
    trial: Option<Instant>,
    /// Gives the length of a pause if the endpoint does not specify one. The length grows with each consecutive pause.
    pub(super) pause_backoff: Backoff,
    /// Time of the last time-out, if the endpoint has answered nothing since.
    pub(super) hung_at: Option<Instant>,
    /// Time of the last response to any call. An invalid response and a broken connection count, too.
    pub(super) responded_at: Option<Instant>,
    /// Number of consecutive refusals of calls that run client code. The client code may have caused them.
    pub(super) refusals: u32,
    /// Weight of consecutive failures of forwarded calls. Only an answer to a forwarded call resets it; an answer to
    /// another call, such as a head, does not.
    pub(super) forward_failures: u32,
    /// Time of the last answer to a forwarded call.
    pub(super) forwarded_at: Option<Instant>,
    /// Number of consecutive invalid answers, capped at [`MISMATCH_PENALTY`].
    pub(super) mismatches: u32,
    /// Time of the last failure or invalid answer.
    pub(super) failed: Option<Instant>,
    pub(super) last_error: Option<UpstreamError>,
    /// The outage of the endpoint, while it lasts.
    pub(super) outage: Outage,
    /// The last refusal (a rate limit or missing access), if the endpoint has not answered a call since.
    pub(super) refusal: Option<UpstreamError>,
    /// The reason why the last invalid answer failed verification.
    pub(super) last_mismatch: Option<String>,
    /// The newest block that the endpoint has shown: the last head that it reported, or a higher block that it has
    /// returned since.
    pub(super) head: Option<BlockNumber>,
    /// Time when the endpoint last answered a call for its head. A block requested by number or hash does not change
    /// this time, because it does not show whether the endpoint has the blocks above it.
    pub(super) head_seen: Option<Instant>,
    /// The block below which the endpoint has probably pruned all blocks, and the time when it last reported so.
    pub(super) pruned_below: Option<(BlockNumber, Instant)>,
}

// === impl EndpointHealth ===

impl EndpointHealth {
    /// Creates the health of an endpoint that has not been called yet.
    pub(super) fn new(rate: Option<RateConfig>) -> Self {
        Self {
            breaker: Breaker::new(BREAKER),
            rate,
            bucket: rate.map(bucket),
            used_up: None,
            paused: None,
            trial: None,
            pause_backoff: RATE_LIMIT_BACKOFF,
            hung_at: None,
            responded_at: None,
            refusals: 0,
            forward_failures: 0,
            forwarded_at: None,
            mismatches: 0,
            failed: None,
            last_error: None,
            outage: Outage::default(),
            refusal: None,
            last_mismatch: None,
            head: None,
            head_seen: None,
            pruned_below: None,
        }
    }

    /// Changes the rate limit.
    pub(super) fn set_rate(&mut self, rate: Option<RateConfig>) {
        if self.rate != rate {
            (self.rate, self.bucket, self.used_up) = (rate, rate.map(bucket), None);
        }
    }

    /// Records that a call failed because the configured rate is used up. Returns whether that is news.
    pub(super) fn use_up(&mut self, now: Instant) -> bool {
        let is_news = !self.is_used_up(now);
        self.used_up = Some(now);
        is_news
    }

    /// Returns whether a call failed lately because the configured rate was used up.
    pub(super) fn is_used_up(&self, now: Instant) -> bool {
        self.used_up.is_some_and(|at| now < at + USED_UP_TTL)
    }

    /// Returns whether the endpoint is known to be behind `block`.
    pub(super) fn is_behind(&self, block: BlockNumber, now: Instant) -> bool {
        let is_news = self.head_seen.is_some_and(|seen| now < seen + BEHIND_TTL);
        is_news && self.head.is_some_and(|head| head < block)
    }

    /// Forgets the head and the pruned range.
    pub(super) fn forget_heights(&mut self) {
        (self.head, self.head_seen, self.pruned_below) = (None, None, None);
    }

    /// Returns whether the endpoint is known to have pruned `block`.
    pub(super) fn has_pruned(&self, block: BlockNumber, now: Instant) -> bool {
        self.pruned_below
            .is_some_and(|(pruned_below, since)| block < pruned_below && now < since + PRUNED_TTL)
    }

    /// Records a failure that counts against the endpoint, of a call that began at `begun`.
    pub(super) fn fail(&mut self, error: &UpstreamError, begun: Instant, now: Instant) {
        let hangs = matches!(error, UpstreamError::TimedOut { .. });
        // Concurrent calls on one dead connection time out for the same reason, so only a call that began after the
        // last time-out counts as a repetition.
        let again = hangs && self.hung_at.is_some_and(|hung_at| hung_at <= begun);
        self.breaker.fail(if again { HANG_FAILURES } else { 1 }, now);
        if hangs {
            self.hung_at = Some(now);
        }
        self.failed = Some(now);
        self.last_error = Some(error.clone());
        self.refusal = error.is_refusal().then(|| error.clone());
        self.outage.fail(now, false);
    }

    /// Records the failure of a forwarded call that began at `begun`. Ignores the failure if the endpoint has answered
    /// another forwarded call since: then the failed call itself is at fault. Clients choose their calls, and one
    /// client must not change the primary for all.
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

    /// Returns whether another endpoint should be the primary, because too many forwarded calls in a row failed.
    pub(super) fn fails_forwarded_calls(&self) -> bool {
        self.forward_failures >= BREAKER.failures
    }

    /// Records a rate limit, and pauses the endpoint.
    pub(super) fn limit(&mut self, error: &UpstreamError, retry_after: Option<Duration>, now: Instant) {
        self.pause(retry_after, now);
        self.refusal = Some(error.clone());
        self.outage.fail(now, false);
    }

    /// Returns whether the endpoint refuses calls, and may be asked whether it still does.
    pub(super) fn may_serve_again(&self, now: Instant) -> bool {
        self.refusal.is_some() && self.pause_left(now).is_zero()
    }

    /// Records that a request with this number of calls begins.
    pub(super) fn begin(&mut self, calls: u32, now: Instant) {
        self.breaker.begin(now);
        if let Some(bucket) = &mut self.bucket {
            bucket.take(calls, now);
        }
        if self.is_limited() {
            self.trial = Some(now);
        }
    }

    /// Returns whether the endpoint limited the rate, and has not answered a call since.
    fn is_limited(&self) -> bool {
        matches!(self.refusal, Some(UpstreamError::RateLimited { .. }))
    }

    /// Returns the rest of the pause after a rate limit.
    pub(super) fn pause_left(&self, now: Instant) -> Duration {
        self.paused.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// Returns how long calls wait because of a rate limit: for the end of the pause, and then for the one request that
    /// tests whether the limit has ended. Otherwise, all calls that waited would be sent at the end of the pause.
    pub(super) fn limit_wait(&self, now: Instant) -> Duration {
        let trial = self.trial.filter(|_| self.is_limited());
        let outcome = trial.map_or(Duration::ZERO, |begun| (begun + TRIAL).saturating_duration_since(now));
        self.pause_left(now).max(outcome)
    }

    /// Pauses the endpoint after a rate limit. Holdfast's own pause grows each time, because the daily quota may be used
    /// up. It counts only if `retry_after` is absent or has proved too short.
    fn pause(&mut self, retry_after: Option<Duration>, now: Instant) {
        let is_new = self.pause_left(now).is_zero();
        let own = if is_new { self.pause_backoff.next_pause() } else { self.pause_backoff.last_pause() };
        let is_repeated = own > RATE_LIMIT_BACKOFF.last_pause();
        let after = retry_after.map_or(own, |said| if is_repeated { said.max(own) } else { said });
        self.paused = self.paused.max(Some(now + after.min(node_error::MAX_PAUSE)));
    }

    /// Learns from an answer which blocks the endpoint has.
    pub(super) fn learn(&mut self, call: &Call, answer: &Answer, verdict: Option<&Verdict>, now: Instant) {
        if let (Answer::Error(error), Some(block)) = (answer, call.requirements.block)
            && node_error::is_pruned(error)
        {
            let pruned_below = BlockNumber(block.0.saturating_add(PRUNED_SPAN));
            let before = self.pruned_below.filter(|(_, since)| now < *since + PRUNED_TTL);
            // Keeps a higher limit: an answer about a lower block says nothing new about the blocks above it.
            if before.is_none_or(|(before, _)| before <= pruned_below) {
                self.pruned_below = Some((pruned_below, now));
            }
        }
        let Some(Verdict::Passed(content) | Verdict::Unproved(_, Some(content))) = verdict else { return };
        let Some(shown) = content.home().filter(|_| !content.is_single()) else { return };
        let shown = shown.number;
        // The answer to a call for the head is the newest block of the endpoint, so it replaces even a higher block.
        if call.requirements.is_head {
            (self.head, self.head_seen) = (Some(shown), Some(now));
        }
        self.head = self.head.max(Some(shown));
    }
}

fn bucket(rate: RateConfig) -> TokenBucket {
    TokenBucket::new(Duration::from_secs(1) / rate.per_second.max(1), rate.burst)
}
