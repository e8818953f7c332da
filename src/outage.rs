//! The time in which a component fails, for the log.

use std::time::Duration;

use tokio::time::Instant;

/// Period from a failure to the next success.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outage {
    since: Option<Instant>,
    /// Whether the log has a warning of this outage. Repeated warnings are throttled, so it may have none.
    is_logged: bool,
}

/// The end of an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutageEnd {
    /// Length of the outage, if the log has a warning of it: an end without a start would confuse the reader.
    pub(crate) logged: Option<Duration>,
}

// === impl Outage ===

impl Outage {
    /// Returns the time of the first failure, if the outage lasts.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Returns whether the log has a warning of the outage that lasts.
    pub(crate) fn is_logged(&self) -> bool {
        self.is_logged
    }

    /// Records a failure. `is_logged` says whether it is logged as a warning.
    pub(crate) fn fail(&mut self, now: Instant, is_logged: bool) {
        self.since.get_or_insert(now);
        self.is_logged |= is_logged;
    }

    /// Records the success of a call that began at `begun`. A call that began before the first failure says nothing
    /// about the time after it.
    pub(crate) fn succeed(&mut self, begun: Instant, now: Instant) -> Option<OutageEnd> {
        let since = self.since.take_if(|since| *since <= begun)?;
        let is_logged = std::mem::take(&mut self.is_logged);
        Some(OutageEnd { logged: is_logged.then(|| now.saturating_duration_since(since)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn logged_outage_ends_with_its_length() {
        let (mut outage, start) = (Outage::default(), Instant::now());
        assert_eq!(outage.succeed(start, start), None);
        outage.fail(start, false);
        outage.fail(start + SECOND, true);
        let end = outage.succeed(start + SECOND, start + 3 * SECOND);
        assert_eq!(end, Some(OutageEnd { logged: Some(3 * SECOND) }));
        assert_eq!(outage.succeed(start + 4 * SECOND, start + 4 * SECOND), None);
    }

    #[tokio::test(start_paused = true)]
    async fn outage_without_a_warning_has_no_logged_end() {
        let (mut outage, start) = (Outage::default(), Instant::now());
        outage.fail(start, false);
        assert_eq!(outage.succeed(start, start), Some(OutageEnd { logged: None }));
        // The next outage is another one.
        outage.fail(start + SECOND, true);
        assert_eq!(outage.since(), Some(start + SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn call_that_began_before_the_outage_does_not_end_it() {
        let (mut outage, start) = (Outage::default(), Instant::now());
        outage.fail(start + SECOND, true);
        assert_eq!(outage.succeed(start, start + 2 * SECOND), None);
        assert_eq!(outage.since(), Some(start + SECOND));
    }
}
