//! When an endpoint that fails is left alone, and when it is tried again.
//!
//! Pure: time comes as an argument. Closed, calls pass and failures are counted; too many in a row
//! open it, and fewer if nothing came at all. Open, nothing passes until its time is over. Then one call at a time may
//! try: an answer closes it, a failure opens it again, for longer. A try that takes long says nothing yet, since some calls
//! take long anywhere; nor may others try meanwhile, who would wait as long where nobody answers. Then the endpoint is to
//! be asked something that takes no node long, for which nobody waits.
//!
//! Who it is, an endpoint may say without a node behind it. So that answer closes nothing: it lets the next call try before
//! the time is over, once; if that one fails, such answers make no difference until a call was answered.

use std::time::Duration;

use tokio::time::Instant;

/// So many failures in a row, and an endpoint is left alone. One or two happen to every node.
const TOO_MANY: u32 = 5;

/// For so many failures a call counts that waited for nothing when one before it had already: the two of them are too
/// many, since each costs its caller the whole of its time.
const HANG: u32 = TOO_MANY - 1;

/// How long it is left alone at first; doubled each time, up to the last. Short, so that a node that is
/// back is noticed within seconds of the next call.
const FIRST: Duration = Duration::from_millis(500);
const LAST: Duration = Duration::from_secs(5);

/// A try that takes longer is slow: a node that is well has said who it is by then, wherever it is.
const SLOW: Duration = Duration::from_secs(1);

/// Where nobody asks anything else, a try does not keep the others out for longer than this.
const TRY: Duration = Duration::from_secs(30);

/// Whether an endpoint is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Breaker {
    state: State,
    /// How long it will be left alone when it opens next.
    next: Duration,
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

/// How a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blow {
    /// In any way.
    Failure,
    /// Nothing came, as to the last one, and it was sent after that.
    Hang,
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
    pub(super) fn new() -> Self {
        Self { state: State::Closed { failures: 0 }, next: FIRST, stirred: false }
    }

    /// May a call pass now? Changes nothing.
    pub(super) fn lets_pass(&self, now: Instant) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { until } => now >= until,
            State::HalfOpen { since, .. } => now >= since + TRY,
        }
    }

    /// Is it being tried, by a call that takes long?
    pub(super) fn is_tried_slowly(&self, now: Instant) -> bool {
        matches!(self.state, State::HalfOpen { since, .. } if now >= since + SLOW)
    }

    /// A call is about to be sent.
    pub(super) fn begin(&mut self, now: Instant) {
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
    pub(super) fn succeed(&mut self) {
        // ## _ => Closed
        *self = Self::new();
    }

    /// It said who it is.
    pub(super) fn stir(&mut self, now: Instant) {
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

    /// A call failed.
    pub(super) fn fail(&mut self, blow: Blow, now: Instant) {
        match self.state {
            // ## Closed => (Closed | Open)
            State::Closed { failures } if failures + blow.weight() < TOO_MANY => {
                self.state = State::Closed { failures: failures + blow.weight() };
            }
            // ## (Closed | HalfOpen) => Open
            State::Closed { .. } | State::HalfOpen { .. } => {
                self.state = State::Open { until: now + self.next };
                self.next = (self.next * 2).min(LAST);
            }
            // ## Open => Open: it was sent before, and says nothing new.
            State::Open { .. } => {}
        }
    }

    /// The call that began then is given up, if it has not ended. A try that shows nothing makes room for the next.
    pub(super) fn abandon(&mut self, begun: Instant) {
        // ## HalfOpen => Open, and over
        if matches!(self.state, State::HalfOpen { since, .. } if since == begun) {
            self.state = State::Open { until: begun };
        }
    }

    /// Failures in a row, as far as they are counted.
    pub(super) fn failures(&self) -> u32 {
        match self.state {
            State::Closed { failures } => failures,
            State::Open { .. } | State::HalfOpen { .. } => TOO_MANY,
        }
    }

    pub(super) fn health(&self, now: Instant) -> Health {
        match self.state {
            State::Closed { .. } => Health::Closed,
            State::Open { .. } if !self.lets_pass(now) => Health::Open,
            State::Open { .. } | State::HalfOpen { .. } => Health::HalfOpen,
        }
    }
}

// === impl Blow ===

impl Blow {
    fn weight(self) -> u32 {
        match self {
            Self::Failure => 1,
            Self::Hang => HANG,
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

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Call(Option<Blow>),
        Who,
        Wait(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            3 => prop_oneof![
                3 => Just(None),
                2 => Just(Some(Blow::Failure)),
                1 => Just(Some(Blow::Hang)),
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
            let mut breaker = Breaker::new();
            // What failures in a row weigh, and how often it has opened since the last answer.
            let (mut weigh, mut opened, mut shut) = (0u32, 0u32, None::<Instant>);
            let mut stirred = false;
            for event in events {
                match event {
                    Event::Wait(millis) => now += Duration::from_millis(millis),
                    Event::Who => {
                        breaker.begin(now);
                        breaker.stir(now);
                        if let Some(until) = shut.filter(|_| !stirred) {
                            (shut, stirred) = (Some(until.min(now)), true);
                        }
                    }
                    Event::Call(blow) => {
                        let passes = breaker.lets_pass(now);
                        prop_assert_eq!(passes, shut.is_none_or(|until| now >= until));
                        if !passes {
                            continue;
                        }
                        breaker.begin(now);
                        if let Some(blow) = blow {
                            breaker.fail(blow, now);
                            weigh += if blow == Blow::Hang { HANG } else { 1 };
                            if weigh >= TOO_MANY {
                                shut = Some(now + (FIRST * 2u32.pow(opened.min(16))).min(LAST));
                                opened += 1;
                            }
                        } else {
                            breaker.succeed();
                            (weigh, opened, shut) = (0, 0, None);
                            stirred = false;
                        }
                    }
                }
                prop_assert!(breaker.lets_pass(now + LAST), "it would be left alone for too long");
            }
        }

        /// However many are waiting, one tries.
        #[test]
        fn half_open_lets_one_pass(waiting in 2usize..20) {
            let now = Instant::now();
            let mut breaker = Breaker::new();
            for _ in 0..TOO_MANY {
                breaker.fail(Blow::Failure, now);
            }
            prop_assert_eq!(breaker.health(now), Health::Open);
            let later = now + FIRST;
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
        let mut breaker = Breaker::new();
        breaker.begin(now);
        assert!(!breaker.is_tried_slowly(now + LAST), "it is no try");
        (0..TOO_MANY).for_each(|_| breaker.fail(Blow::Failure, now));
        assert!(!breaker.is_tried_slowly(now + LAST), "nobody tries");
        let tried = now + FIRST;
        breaker.begin(tried);
        let slow = tried + SLOW;
        assert!(!breaker.is_tried_slowly(slow - Duration::from_millis(1)) && breaker.is_tried_slowly(slow));
        assert!(!breaker.lets_pass(slow), "others would wait as long");
        // What is asked beside it takes nothing from it, and counts as it does.
        breaker.begin(slow);
        breaker.abandon(slow);
        assert!(breaker.is_tried_slowly(slow));
        let mut failed = breaker;
        failed.fail(Blow::Failure, slow);
        assert!(!failed.is_tried_slowly(slow + LAST) && !failed.lets_pass(slow));
        breaker.succeed();
        assert!(!breaker.is_tried_slowly(slow) && breaker.lets_pass(slow));
    }

    #[test]
    fn two_calls_in_a_row_that_wait_for_nothing_are_too_many() {
        let now = Instant::now();
        let mut breaker = Breaker::new();
        breaker.fail(Blow::Failure, now);
        assert!(breaker.lets_pass(now));
        breaker.fail(Blow::Hang, now);
        assert!(!breaker.lets_pass(now));
    }

    #[test]
    fn a_try_that_is_given_up_makes_room_for_the_next() {
        let now = Instant::now();
        let mut breaker = Breaker::new();
        (0..TOO_MANY).for_each(|_| breaker.fail(Blow::Failure, now));
        let later = now + FIRST;
        breaker.begin(later);
        breaker.abandon(now);
        assert!(!breaker.lets_pass(later), "another's end is not its own");
        breaker.abandon(later);
        assert!(breaker.lets_pass(later));
        breaker.begin(later);
        breaker.succeed();
        breaker.abandon(later);
        assert_eq!(breaker, Breaker::new());
    }
}
