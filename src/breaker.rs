//! A circuit breaker for an endpoint or a cache tier.
//!
//! The breaker reads no clock: the caller passes the time.
//! - Closed: calls pass. Consecutive failures add up, each with a weight, and open the breaker at the policy's limit.
//! - Open: no call passes until the pause is over.
//! - Half-open: one trial call at a time passes. An answer closes the breaker, a failure opens it again, for longer.
//!
//! A slow trial call neither closes nor reopens the breaker, because some calls are slow on every node. Other calls
//! do not pass while it is under way, because on a dead endpoint they would wait just as long.
//! [`Breaker::is_tried_slowly`] reports a slow trial call, so that the caller can send a cheap background probe.
//!
//! A gateway can answer an identity check (chain id) without a node behind it, so such an answer does not close the
//! breaker. The first such answer ends the pause early. Later ones have no effect until a call succeeds.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;

/// A trial call that takes longer than this is slow. A healthy node anywhere in the world reports its chain id in
/// less time.
const SLOW: Duration = Duration::from_secs(1);

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Weight of consecutive failures that opens the breaker.
    pub failures: u32,
    /// First pause while open.
    pub first: Duration,
    /// Longest pause while open; pauses double up to it.
    pub longest: Duration,
    /// How long an unfinished trial call blocks other calls.
    pub attempt: Duration,
}

/// A circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker {
    policy: Policy,
    state: State,
    /// Determines how long the breaker stays open.
    backoff: Backoff,
    /// Whether an identity check has ended a pause early since the last answered call.
    stirred: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
    },
    /// A trial call started at `since`. `until` is the end of the pause before it. It is later than `since` if the trial
    /// call is an identity check that started during the pause.
    HalfOpen {
        since: Instant,
        until: Instant,
    },
}

/// State of a breaker, for logs, metrics and the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Health {
    /// Calls pass.
    Closed,
    /// One trial call passes.
    HalfOpen,
    /// No call passes.
    Open,
}

// === impl Breaker ===

impl Breaker {
    /// Creates a closed breaker.
    pub const fn new(policy: Policy) -> Self {
        let backoff = Backoff::new(policy.first, policy.longest);
        Self { policy, state: State::Closed { failures: 0 }, backoff, stirred: false }
    }

    /// Returns whether a call may pass now. Does not change the state.
    pub fn lets_pass(&self, now: Instant) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { until } => now >= until,
            State::HalfOpen { since, .. } => now >= since + self.policy.attempt,
        }
    }

    /// Returns whether a slow trial call is under way.
    pub fn is_tried_slowly(&self, now: Instant) -> bool {
        matches!(self.state, State::HalfOpen { since, .. } if now >= since + SLOW)
    }

    /// Records that the caller is about to send a call.
    pub fn begin(&mut self, now: Instant) {
        match self.state {
            // ## Closed => Closed
            State::Closed { .. } => {}
            // ## Open => HalfOpen. This also happens before the pause is over, because identity checks start during
            // the pause. A call beside an identity check would only wait for the same endpoint.
            State::Open { until } => self.state = State::HalfOpen { since: now, until },
            // ## HalfOpen => HalfOpen
            State::HalfOpen { until, .. } => {
                if self.lets_pass(now) {
                    self.state = State::HalfOpen { since: now, until };
                }
            }
        }
    }

    /// Records an answered call.
    pub fn succeed(&mut self) {
        // ## _ => Closed
        *self = Self::new(self.policy);
    }

    /// Records a successful identity check.
    pub fn allow_probe(&mut self, now: Instant) {
        match self.state {
            // ## Closed => Closed
            State::Closed { .. } => {}
            // ## (Open | HalfOpen) => Open: the first check ends the pause, later checks do not change it.
            State::Open { until } | State::HalfOpen { until, .. } => {
                let until = if self.stirred { until } else { until.min(now) };
                self.state = State::Open { until };
                self.stirred = true;
            }
        }
    }

    /// Records a failed call that counts as `weight` failures.
    pub fn fail(&mut self, weight: u32, now: Instant) {
        match self.state {
            // ## Closed => Closed
            State::Closed { failures } if failures + weight < self.policy.failures => {
                self.state = State::Closed { failures: failures + weight };
            }
            // ## (Closed | HalfOpen) => Open
            State::Closed { .. } | State::HalfOpen { .. } => {
                self.state = State::Open { until: now + self.backoff.next_pause() };
            }
            // ## Open => Open: the call was sent before the breaker opened, so its failure does not extend the pause.
            State::Open { .. } => {}
        }
    }

    /// Records that the caller gave up the call that began at `begun`. If that was the trial call, the next call may
    /// pass at once as a new trial.
    pub fn abandon(&mut self, begun: Instant) {
        // ## HalfOpen => Open, with its pause over
        if matches!(self.state, State::HalfOpen { since, .. } if since == begun) {
            self.state = State::Open { until: begun };
        }
    }

    /// Returns the weight of consecutive failures, at most the policy's limit.
    pub fn failures(&self) -> u32 {
        match self.state {
            State::Closed { failures } => failures,
            State::Open { .. } | State::HalfOpen { .. } => self.policy.failures,
        }
    }

    /// Returns the state at `now`.
    pub fn health(&self, now: Instant) -> Health {
        match self.state {
            State::Closed { .. } => Health::Closed,
            State::Open { .. } if !self.lets_pass(now) => Health::Open,
            State::Open { .. } | State::HalfOpen { .. } => Health::HalfOpen,
        }
    }
}

// === impl Health ===

impl Health {
    /// Returns the state's name in logs, metrics and the status.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POLICY: Policy = Policy {
        failures: 5,
        first: Duration::from_millis(500),
        longest: Duration::from_secs(5),
        attempt: Duration::from_secs(30),
    };

    /// Weight of a failure that opens the breaker after one other failure.
    const HANG: u32 = POLICY.failures - 1;

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Call(Option<u32>),
        Who,
        Wait(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            3 => prop_oneof![
                3 => Just(None),
                2 => Just(Some(1)),
                1 => Just(Some(HANG)),
            ].prop_map(Event::Call),
            1 => Just(Event::Who),
            1 => prop_oneof![Just(100u64), Just(600), Just(6_000), Just(31_000)].prop_map(Event::Wait),
        ]
    }

    proptest! {
        /// Compares the breaker with a plain model of the same rules.
        #[test]
        fn opens_after_repeated_failures_for_a_bounded_time(
            events in proptest::collection::vec(event(), 0..200)
        ) {
            let mut now = Instant::now();
            let mut breaker = Breaker::new(POLICY);
            // Weight of consecutive failures, number of openings since the last answer, and the end of the pause.
            let (mut weigh, mut opened, mut shut) = (0u32, 0u32, None::<Instant>);
            let mut stirred = false;
            for event in events {
                match event {
                    Event::Wait(millis) => now += Duration::from_millis(millis),
                    Event::Who => {
                        breaker.begin(now);
                        breaker.allow_probe(now);
                        if let Some(until) = shut.filter(|_| !stirred) {
                            (shut, stirred) = (Some(until.min(now)), true);
                        }
                    }
                    Event::Call(failed) => {
                        let passes = breaker.lets_pass(now);
                        prop_assert_eq!(passes, shut.is_none_or(|until| now >= until));
                        if !passes {
                            continue;
                        }
                        breaker.begin(now);
                        if let Some(weight) = failed {
                            breaker.fail(weight, now);
                            weigh += weight;
                            if weigh >= POLICY.failures {
                                shut = Some(now + (POLICY.first * 2u32.pow(opened.min(16))).min(POLICY.longest));
                                opened += 1;
                            }
                        } else {
                            breaker.succeed();
                            (weigh, opened, shut) = (0, 0, None);
                            stirred = false;
                        }
                    }
                }
                prop_assert!(breaker.lets_pass(now + POLICY.longest), "the breaker stays open for too long");
            }
        }

        /// Of any number of waiting calls, one passes.
        #[test]
        fn half_open_breaker_lets_one_trial_pass(waiting in 2usize..20) {
            let now = Instant::now();
            let mut breaker = Breaker::new(POLICY);
            for _ in 0..POLICY.failures {
                breaker.fail(1, now);
            }
            prop_assert_eq!(breaker.health(now), Health::Open);
            let later = now + POLICY.first;
            let mut passed = 0;
            for _ in 0..waiting {
                if breaker.lets_pass(later) {
                    breaker.begin(later);
                    passed += 1;
                }
            }
            prop_assert_eq!(passed, 1);
        }
    }

    #[test]
    fn trial_is_slow_until_it_or_a_parallel_call_ends() {
        let now = Instant::now();
        let mut breaker = Breaker::new(POLICY);
        breaker.begin(now);
        assert!(!breaker.is_tried_slowly(now + POLICY.longest), "not a trial call");
        (0..POLICY.failures).for_each(|_| breaker.fail(1, now));
        assert!(!breaker.is_tried_slowly(now + POLICY.longest), "no trial call is under way");
        let tried = now + POLICY.first;
        breaker.begin(tried);
        let slow = tried + SLOW;
        assert!(!breaker.is_tried_slowly(slow - Duration::from_millis(1)) && breaker.is_tried_slowly(slow));
        assert!(!breaker.lets_pass(slow), "other calls would wait as long");
        // An abandoned probe beside the trial call does not end the trial; an answered or failed probe does.
        breaker.begin(slow);
        breaker.abandon(slow);
        assert!(breaker.is_tried_slowly(slow));
        let mut failed = breaker;
        failed.fail(1, slow);
        assert!(!failed.is_tried_slowly(slow + POLICY.longest) && !failed.lets_pass(slow));
        breaker.succeed();
        assert!(!breaker.is_tried_slowly(slow) && breaker.lets_pass(slow));
    }

    #[test]
    fn hanging_call_opens_after_one_other_failure() {
        let now = Instant::now();
        let mut breaker = Breaker::new(POLICY);
        breaker.fail(1, now);
        assert!(breaker.lets_pass(now));
        breaker.fail(HANG, now);
        assert!(!breaker.lets_pass(now));
    }

    #[test]
    fn abandoned_trial_makes_room_for_the_next() {
        let now = Instant::now();
        let mut breaker = Breaker::new(POLICY);
        (0..POLICY.failures).for_each(|_| breaker.fail(1, now));
        let later = now + POLICY.first;
        breaker.begin(later);
        breaker.abandon(now);
        assert!(!breaker.lets_pass(later), "another call's end does not end the trial call");
        breaker.abandon(later);
        assert!(breaker.lets_pass(later));
        breaker.begin(later);
        breaker.succeed();
        breaker.abandon(later);
        assert_eq!(breaker, Breaker::new(POLICY));
    }

    #[test]
    fn failures_while_open_do_not_extend_the_pause() {
        let now = Instant::now();
        let mut breaker = Breaker::new(POLICY);
        (0..20).for_each(|_| breaker.fail(1, now));
        let later = now + POLICY.first;
        assert!(!breaker.lets_pass(now) && breaker.lets_pass(later));
        breaker.begin(later);
        breaker.fail(1, later);
        assert!(!breaker.lets_pass(later + POLICY.first), "the second pause is longer");
        assert!(breaker.lets_pass(later + 2 * POLICY.first));
    }
}
