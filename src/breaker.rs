//! A circuit breaker: when an endpoint or a cache tier gets no calls, and when one call tries it again.
//!
//! Pure: time comes as an argument. Closed, calls pass and failures are counted; too many in a row
//! open it, and fewer if they weigh more. Open, nothing passes until its time is over. Then one call at a time may
//! try: an answer closes it, a failure opens it again, for longer. A try that takes long says nothing yet, since some calls
//! take long anywhere; nor may others try meanwhile, who would wait as long where nobody answers. Then the endpoint is to
//! be asked something that takes no node long, for which nobody waits.
//!
//! Who it is, an endpoint may say without a node behind it. So that answer closes nothing: it lets the next call try before
//! the time is over, once; if that one fails, such answers make no difference until a call was answered.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;

/// A try that takes longer is slow: a node that is well has said who it is by then, wherever it is.
const SLOW: Duration = Duration::from_secs(1);

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Failures in a row that open it.
    pub failures: u32,
    /// How long it is open at first.
    pub first: Duration,
    /// How long it is open at most: the time doubles each time.
    pub longest: Duration,
    /// How long a try that has not ended keeps other calls out.
    pub attempt: Duration,
}

/// A circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker {
    policy: Policy,
    state: State,
    /// How long it is open.
    backoff: Backoff,
    /// It has said who it is since a call was last answered.
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
    /// Since then it is tried; it was to be left alone until the other.
    HalfOpen {
        since: Instant,
        until: Instant,
    },
}

/// What a breaker is, for those who look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// It is asked.
    Closed,
    /// One call tries it.
    HalfOpen,
    /// It is left alone.
    Open,
}

// === impl Breaker ===

impl Breaker {
    /// A closed one.
    pub const fn new(policy: Policy) -> Self {
        let backoff = Backoff::new(policy.first, policy.longest);
        Self { policy, state: State::Closed { failures: 0 }, backoff, stirred: false }
    }

    /// May a call pass now? Changes nothing.
    pub fn lets_pass(&self, now: Instant) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { until } => now >= until,
            State::HalfOpen { since, .. } => now >= since + self.policy.attempt,
        }
    }

    /// Is it being tried, by a call that takes long?
    pub fn is_tried_slowly(&self, now: Instant) -> bool {
        matches!(self.state, State::HalfOpen { since, .. } if now >= since + SLOW)
    }

    /// A call is about to be sent.
    pub fn begin(&mut self, now: Instant) {
        match self.state {
            // ## Closed => Closed
            State::Closed { .. } => {}
            // ## Open => HalfOpen, also before its time: who it is may be asked then, and whoever came meanwhile would
            // wait for the same.
            State::Open { until } => self.state = State::HalfOpen { since: now, until },
            // ## HalfOpen => HalfOpen
            State::HalfOpen { until, .. } => {
                if self.lets_pass(now) {
                    self.state = State::HalfOpen { since: now, until };
                }
            }
        }
    }

    /// A call was answered.
    pub fn succeed(&mut self) {
        // ## _ => Closed
        *self = Self::new(self.policy);
    }

    /// It said who it is.
    pub fn allow_probe(&mut self, now: Instant) {
        match self.state {
            // ## Closed => Closed
            State::Closed { .. } => {}
            // ## (Open | HalfOpen) => Open: over the first time, after that as long as before.
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
            // ## Closed => (Closed | Open)
            State::Closed { failures } if failures + weight < self.policy.failures => {
                self.state = State::Closed { failures: failures + weight };
            }
            // ## (Closed | HalfOpen) => Open
            State::Closed { .. } | State::HalfOpen { .. } => {
                self.state = State::Open { until: now + self.backoff.next_pause() };
            }
            // ## Open => Open: it was sent before, and says nothing new.
            State::Open { .. } => {}
        }
    }

    /// The call that began then is given up, if it has not ended. A try that shows nothing makes room for the next.
    pub fn abandon(&mut self, begun: Instant) {
        // ## HalfOpen => Open, and over
        if matches!(self.state, State::HalfOpen { since, .. } if since == begun) {
            self.state = State::Open { until: begun };
        }
    }

    /// Returns the failures in a row, as far as they are counted.
    pub fn failures(&self) -> u32 {
        match self.state {
            State::Closed { failures } => failures,
            State::Open { .. } | State::HalfOpen { .. } => self.policy.failures,
        }
    }

    /// Returns its state.
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
    /// Its name in logs, metrics and the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half-open",
            Self::Open => "open",
        }
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

    /// The weight of a failure that is one too many after another.
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
        /// Against the plainest account of the same rules.
        #[test]
        fn it_opens_after_too_many_in_a_row_and_never_for_longer_than_the_last(
            events in proptest::collection::vec(event(), 0..200)
        ) {
            let mut now = Instant::now();
            let mut breaker = Breaker::new(POLICY);
            // What failures in a row weigh, and how often it has opened since the last answer.
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
                prop_assert!(breaker.lets_pass(now + POLICY.longest), "it stays open for too long");
            }
        }

        /// However many are waiting, one tries.
        #[test]
        fn half_open_lets_one_pass(waiting in 2usize..20) {
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
    fn a_try_is_slow_until_it_or_whatever_is_asked_beside_it_ends() {
        let now = Instant::now();
        let mut breaker = Breaker::new(POLICY);
        breaker.begin(now);
        assert!(!breaker.is_tried_slowly(now + POLICY.longest), "it is no try");
        (0..POLICY.failures).for_each(|_| breaker.fail(1, now));
        assert!(!breaker.is_tried_slowly(now + POLICY.longest), "no call tries");
        let tried = now + POLICY.first;
        breaker.begin(tried);
        let slow = tried + SLOW;
        assert!(!breaker.is_tried_slowly(slow - Duration::from_millis(1)) && breaker.is_tried_slowly(slow));
        assert!(!breaker.lets_pass(slow), "others would wait as long");
        // What is asked beside it takes nothing from it, and counts as it does.
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
    fn two_calls_in_a_row_that_wait_for_nothing_are_too_many() {
        let now = Instant::now();
        let mut breaker = Breaker::new(POLICY);
        breaker.fail(1, now);
        assert!(breaker.lets_pass(now));
        breaker.fail(HANG, now);
        assert!(!breaker.lets_pass(now));
    }

    #[test]
    fn a_try_that_is_given_up_makes_room_for_the_next() {
        let now = Instant::now();
        let mut breaker = Breaker::new(POLICY);
        (0..POLICY.failures).for_each(|_| breaker.fail(1, now));
        let later = now + POLICY.first;
        breaker.begin(later);
        breaker.abandon(now);
        assert!(!breaker.lets_pass(later), "another's end is not its own");
        breaker.abandon(later);
        assert!(breaker.lets_pass(later));
        breaker.begin(later);
        breaker.succeed();
        breaker.abandon(later);
        assert_eq!(breaker, Breaker::new(POLICY));
    }

    #[test]
    fn failures_while_it_is_open_do_not_keep_it_open_longer() {
        let now = Instant::now();
        let mut breaker = Breaker::new(POLICY);
        (0..20).for_each(|_| breaker.fail(1, now));
        let later = now + POLICY.first;
        assert!(!breaker.lets_pass(now) && breaker.lets_pass(later));
        breaker.begin(later);
        breaker.fail(1, later);
        assert!(!breaker.lets_pass(later + POLICY.first), "longer than before");
        assert!(breaker.lets_pass(later + 2 * POLICY.first));
    }
}
