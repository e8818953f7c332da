//! Leaves a tier alone that keeps failing.

use std::{mem, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

/// So many failures in a row, and it is left alone.
const FAILURES: u32 = 3;

/// For so long at first, and twice as long each time that it still fails.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

/// Whether a tier is asked.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// Until then it is left alone.
    until: Option<Instant>,
    /// One tries it.
    tried: bool,
}

// === impl Breaker ===

impl Breaker {
    /// May it be asked now? One may, when its time is over, and the others may not before it is known what came of it.
    pub(super) fn lets_pass(&self, now: Instant) -> bool {
        let mut state = self.lock();
        match state.until {
            Some(until) if now < until => false,
            Some(_) => {
                state.until = Some(now + pause(state.failures));
                state.tried = true;
                true
            }
            None => true,
        }
    }

    pub(super) fn succeed(&self) {
        *self.lock() = State::default();
    }

    /// What was asked says neither this nor that: if it was a try, the next one may.
    pub(super) fn learn_nothing(&self, now: Instant) {
        let mut state = self.lock();
        if mem::take(&mut state.tried) {
            state.until = Some(now);
        }
    }

    pub(super) fn fail(&self, now: Instant) {
        let mut state = self.lock();
        // Of those that were under way when it failed, each says no more than the first.
        if state.until.is_some() && !mem::take(&mut state.tried) {
            return;
        }
        state.failures = state.failures.saturating_add(1);
        if state.failures >= FAILURES {
            state.until = Some(now + pause(state.failures));
        }
    }

    /// Is it left alone?
    pub(super) fn is_open(&self, now: Instant) -> bool {
        self.lock().until.is_some_and(|until| now < until)
    }

    /// Has it kept failing, and not done anything right since? That its time is over does not say that it works again.
    pub(super) fn is_failing(&self) -> bool {
        self.lock().until.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

fn pause(failures: u32) -> Duration {
    FIRST.saturating_mul(1 << failures.saturating_sub(FAILURES).min(8)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_left_alone_after_a_few_failures_and_tried_again_by_one() {
        let breaker = Breaker::default();
        for _ in 0..FAILURES {
            assert!(breaker.lets_pass(Instant::now()));
            breaker.fail(Instant::now());
        }
        assert!(!breaker.lets_pass(Instant::now()));
        // Those that were under way with them make it no worse.
        for _ in 0..20 {
            breaker.fail(Instant::now());
        }
        tokio::time::advance(FIRST).await;
        assert!(breaker.lets_pass(Instant::now()));
        assert!(!breaker.lets_pass(Instant::now()), "one tries it, not all");
        breaker.fail(Instant::now());
        tokio::time::advance(FIRST).await;
        assert!(!breaker.lets_pass(Instant::now()), "longer than before");
        tokio::time::advance(LONGEST).await;
        assert!(breaker.lets_pass(Instant::now()));
        breaker.succeed();
        assert!(breaker.lets_pass(Instant::now()) && breaker.lets_pass(Instant::now()));
    }
}
