//! One tier with its timeouts and circuit breakers.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::{metrics::Metrics, status::TierStatus};
use crate::{
    breaker::{Breaker, Health, Policy},
    cache::tier::{Tier, TierError, TierKind, Tiered},
    display::seconds,
    log_throttle::LogThrottle,
    outage::Outage,
    timeout::timeout,
};

/// Timeout of a write. It is longer than the timeout of a read, since no client waits for a write.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// Policy of a tier's circuit breakers. Holdfast can answer without a tier, so these breakers open soon and stay open
/// longer than an endpoint's. A half-open breaker lets one trial call pass and rejects others until it knows the
/// outcome, but for one second at most, because the client may cancel the trial call.
const BREAKER: Policy = Policy {
    failures: 3,
    first: Duration::from_millis(500),
    longest: Duration::from_secs(30),
    attempt: Duration::from_secs(1),
};

/// A tier with its circuit breakers.
#[derive(Debug)]
pub(super) struct Guarded {
    tier: Arc<dyn Tier>,
    /// Timeout of a read.
    patience: Duration,
    /// One breaker for each kind of [`Access`].
    breakers: [Mutex<Breaker>; 3],
    /// One outage for each kind of [`Access`].
    outages: [Mutex<Outage>; 3],
    metrics: Metrics,
    said: LogThrottle,
}

/// Kind of a call to a tier. Each kind has its own breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Reads content, or looks up a transaction.
    Content,
    /// Reads a fact, such as the hash at a number. A tier may have facts in memory, so such a read can succeed while
    /// the tier's storage hangs.
    Fact,
    /// Writes. They have their own breaker, because a full disk can still be read.
    Write,
}

// === impl Access ===

impl Access {
    /// Returns the kind as the log shows it.
    fn as_str(self) -> &'static str {
        match self {
            Self::Content => "read",
            Self::Fact => "read index",
            Self::Write => "write",
        }
    }
}

// === impl Guarded ===

impl Guarded {
    pub(super) fn new(tier: Arc<dyn Tier>, patience: Duration, metrics: Metrics) -> Self {
        Self {
            tier,
            patience,
            breakers: std::array::from_fn(|_| Mutex::new(Breaker::new(BREAKER))),
            outages: Default::default(),
            metrics,
            said: LogThrottle::default(),
        }
    }

    pub(super) fn kind(&self) -> TierKind {
        self.tier.kind()
    }

    /// Reads content, or looks up a transaction. Counts a hit or a miss.
    pub(super) async fn look<T>(&self, ask: impl FnOnce(&dyn Tier) -> Tiered<'_, Option<T>>) -> Option<T> {
        let begun = Instant::now();
        let found = self.call(Access::Content, begun, ask).await?;
        // A tier with its index in memory reports a miss even while its storage hangs. Only a hit shows that the
        // storage works.
        if found.is_some() || !self.tier.knows_what_it_has() {
            self.succeed(Access::Content, begun);
        } else {
            self.breaker(Access::Content).abandon(begun);
        }
        self.metrics.read(self.kind(), found.is_some(), begun.elapsed());
        found
    }

    /// Reads a [fact](Access::Fact); `None` if the tier fails or the breaker is open.
    pub(super) async fn ask<T>(&self, ask: impl FnOnce(&dyn Tier) -> Tiered<'_, T>) -> Option<T> {
        let begun = Instant::now();
        let said = self.call(Access::Fact, begun, ask).await?;
        self.succeed(Access::Fact, begun);
        Some(said)
    }

    /// Writes to the tier and returns whether the write succeeded.
    pub(super) async fn write(&self, write: impl FnOnce(&dyn Tier) -> Tiered<'_, ()>) -> bool {
        let begun = Instant::now();
        let is_written = self.call(Access::Write, begun, write).await.is_some();
        if is_written {
            self.succeed(Access::Write, begun);
        }
        is_written
    }

    /// Same as [`write`](Self::write), for a method of the tier that returns `false` if there was nothing to write.
    /// This also counts as a success, but does not close the breaker, because it does not show that the tier is
    /// writable.
    pub(super) async fn write_if_needed(&self, write: impl FnOnce(&dyn Tier) -> Tiered<'_, bool>) -> bool {
        let begun = Instant::now();
        let is_written = self.call(Access::Write, begun, write).await;
        match is_written {
            Some(true) => self.succeed(Access::Write, begun),
            Some(false) => self.breaker(Access::Write).abandon(begun),
            None => {}
        }
        is_written.is_some()
    }

    /// Calls the tier; `None` if it fails or the breaker is open. The caller reports success to the breaker.
    async fn call<T>(
        &self,
        access: Access,
        begun: Instant,
        call: impl FnOnce(&dyn Tier) -> Tiered<'_, T>,
    ) -> Option<T> {
        let (is_read, kind) = (access != Access::Write, self.kind());
        if !self.begin_call(access, begun) {
            if is_read {
                self.metrics.skipped(kind);
            }
            return None;
        }
        let patience = if is_read { self.patience } else { WRITE_PATIENCE };
        match timeout(patience, call(&*self.tier)).await.unwrap_or(Err(TierError::TimedOut(patience))) {
            Ok(done) => Some(done),
            Err(error) => {
                self.breaker(access).fail(1, Instant::now());
                if is_read {
                    self.metrics.failed(kind);
                }
                let is_logged = match error {
                    // The tier logs the loss of its connection itself.
                    TierError::Disconnected(_) => {
                        debug!(tier = kind.as_str(), operation = access.as_str(), %error, "cache tier error");
                        false
                    }
                    error => self.say(access.as_str(), &error),
                };
                self.outages[access as usize].lock().fail(Instant::now(), is_logged);
                None
            }
        }
    }

    fn begin_call(&self, access: Access, now: Instant) -> bool {
        let mut breaker = self.breaker(access);
        let passes = breaker.lets_pass(now);
        if passes {
            breaker.begin(now);
        }
        passes
    }

    /// Returns whether the breaker rejects writes now.
    pub(super) fn is_left_alone(&self) -> bool {
        !self.breaker(Access::Write).lets_pass(Instant::now())
    }

    /// Records the success of a call that began at `begun`. If it ends an outage that was logged, logs the end.
    fn succeed(&self, access: Access, begun: Instant) {
        self.breaker(access).succeed();
        let end = self.outages[access as usize].lock().succeed(begun, Instant::now());
        if let Some(length) = end.and_then(|end| end.logged) {
            let (tier, operation) = (self.kind().as_str(), access.as_str());
            info!(tier, operation, outage_seconds = seconds(length), "cache tier works again");
        }
    }

    /// Logs an error. Repetitions of the same kind within a short time go to the debug level. Returns whether this one
    /// was not such a repetition.
    pub(super) fn say(&self, operation: &'static str, error: &dyn fmt::Display) -> bool {
        let tier = self.kind().as_str();
        let is_due = self.said.is_due(operation);
        if is_due {
            warn!(tier, operation, %error, "cache tier error; continuing without it");
        } else {
            debug!(tier, operation, %error, "cache tier error");
        }
        is_due
    }

    pub(super) fn status(&self, stores: bool) -> TierStatus {
        TierStatus {
            kind: self.kind(),
            usage: self.tier.usage(),
            reads: self.works(Access::Content) && self.works(Access::Fact),
            writes: self.works(Access::Write),
            stores,
            errors: self.metrics.errors(self.kind()),
        }
    }

    /// Returns whether the breaker is closed. While the breaker is half-open, the tier has yet to show that it works
    /// again.
    fn works(&self, access: Access) -> bool {
        self.breaker(access).health(Instant::now()) == Health::Closed
    }

    fn breaker(&self, access: Access) -> MutexGuard<'_, Breaker> {
        self.breakers[access as usize].lock()
    }
}
