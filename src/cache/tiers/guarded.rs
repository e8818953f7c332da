//! One tier, which is never waited for longer than it is worth, and is left alone while it keeps failing.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{
    checkpoint::Checkpoint,
    metrics::Metrics,
    status::TierStatus,
    trust::{Accept, GenerationCounter, Trust},
};
use crate::{
    breaker::{Breaker, Health, Policy},
    cache::tier::{ChainKey, Tier, TierError, TierKind, Tiered},
    log_throttle::LogThrottle,
    timeout::timeout,
};

/// Whoever writes can wait longer than whoever reads: nobody waits for it.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// Calls do without a tier, so it opens soon, and stays open longer than that of an endpoint. A read that its client has
/// given up keeps others out for a second only.
const BREAKER: Policy = Policy {
    failures: 3,
    first: Duration::from_millis(500),
    longest: Duration::from_secs(30),
    attempt: Duration::from_secs(1),
};

/// A tier, and what is known of how it does.
#[derive(Debug)]
pub(super) struct Guarded {
    tier: Arc<dyn Tier>,
    /// How long a read may take.
    patience: Duration,
    /// One for each [`Access`].
    breakers: [Mutex<Breaker>; 3],
    pub(super) trust: Trust,
    metrics: Metrics,
    said: LogThrottle,
}

/// What a call to a tier does. Each fails, and is left alone, by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Reads content, or looks where a transaction is.
    Content,
    /// Reads a fact that a tier has in memory: one that hangs may answer that all the time.
    Fact,
    /// Writes: a disk that is full can be read.
    Write,
}

// === impl Guarded ===

impl Guarded {
    pub(super) fn new(
        tier: Arc<dyn Tier>,
        patience: Duration,
        generations: GenerationCounter,
        metrics: Metrics,
    ) -> Self {
        Self {
            tier,
            patience,
            breakers: std::array::from_fn(|_| Mutex::new(Breaker::new(BREAKER))),
            trust: Trust::new(generations),
            metrics,
            said: LogThrottle::default(),
        }
    }

    pub(super) fn kind(&self) -> TierKind {
        self.tier.kind()
    }

    /// Looks for what is kept.
    pub(super) async fn look<T>(&self, ask: impl FnOnce(&dyn Tier) -> Tiered<'_, Option<T>>) -> Option<T> {
        let begun = Instant::now();
        let found = self.call(Access::Content, begun, ask).await?;
        // That it has nothing it may know by heart, and hang all the same when it has.
        if found.is_some() || !self.tier.knows_what_it_has() {
            self.breaker(Access::Content).succeed();
        } else {
            self.breaker(Access::Content).abandon(begun);
        }
        self.metrics.read(self.kind(), found.is_some(), begun.elapsed());
        found
    }

    /// Looks for a fact.
    pub(super) async fn look_up<T>(&self, ask: impl FnOnce(&dyn Tier) -> Tiered<'_, Option<T>>) -> Option<T> {
        let begun = Instant::now();
        let found = self.ask(ask).await?;
        self.metrics.read(self.kind(), found.is_some(), begun.elapsed());
        found
    }

    /// What it says, if it does.
    pub(super) async fn ask<T>(&self, ask: impl FnOnce(&dyn Tier) -> Tiered<'_, T>) -> Option<T> {
        let said = self.call(Access::Fact, Instant::now(), ask).await?;
        self.breaker(Access::Fact).succeed();
        Some(said)
    }

    /// Tells whether it was done.
    pub(super) async fn write(&self, write: impl FnOnce(&dyn Tier) -> Tiered<'_, ()>) -> bool {
        let is_written = self.call(Access::Write, Instant::now(), write).await.is_some();
        if is_written {
            self.breaker(Access::Write).succeed();
        }
        is_written
    }

    /// The same for what may be there, or gone, already: then nothing is written, and nothing learnt.
    pub(super) async fn write_if_needed(&self, write: impl FnOnce(&dyn Tier) -> Tiered<'_, bool>) -> bool {
        let begun = Instant::now();
        let is_written = self.call(Access::Write, begun, write).await;
        match is_written {
            Some(true) => self.breaker(Access::Write).succeed(),
            Some(false) => self.breaker(Access::Write).abandon(begun),
            None => {}
        }
        is_written.is_some()
    }

    /// Calls the tier; `None` if it failed, or is left alone. That it did not fail is for the caller to count.
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
            Err(TierError::Forgotten) => {
                // Another instance found that a finalized block was replaced. It may be so here, too.
                self.breaker(access).succeed();
                self.trust.doubt();
                None
            }
            Err(error) => {
                self.breaker(access).fail(1, Instant::now());
                if is_read {
                    self.metrics.failed(kind);
                }
                self.say(if is_read { "read" } else { "write" }, &error);
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

    /// Forgets the index, if it must be forgotten.
    pub(super) async fn forget(&self, chain: ChainKey) {
        if self.trust.must_forget() && self.write(|tier| tier.forget_canonicity(chain)).await {
            self.trust.forgot();
        }
    }

    /// Forgets the index and starts with this finalized block, unless another instance has just noted one. Returns whether
    /// it did.
    pub(super) async fn begin(&self, checkpoint: Checkpoint) -> bool {
        let Checkpoint { chain, block: (number, hash), .. } = checkpoint;
        match self.ask(|tier| tier.finalized(chain)).await {
            Some(None) => self.write(|tier| tier.begin(chain, number, hash)).await,
            _ => false,
        }
    }

    /// Is nothing written to it for now?
    pub(super) fn is_left_alone(&self) -> bool {
        !self.breaker(Access::Write).lets_pass(Instant::now())
    }

    /// Warns, but not again and again.
    pub(super) fn say(&self, what: &'static str, why: &dyn fmt::Display) {
        let tier = self.kind().as_str();
        if self.said.is_due(what) {
            warn!(tier, what, "a tier fails, and is done without: {why}");
        } else {
            debug!(tier, what, "a tier fails: {why}");
        }
    }

    pub(super) fn status(&self) -> TierStatus {
        TierStatus {
            kind: self.kind(),
            usage: self.tier.usage(),
            reads: self.works(Access::Content) && self.works(Access::Fact),
            writes: self.works(Access::Write),
            is_confirmed: self.trust.answers(Accept::Confirmed),
            errors: self.metrics.errors(self.kind()),
        }
    }

    /// Returns whether calls succeed. A tier whose time is over has not shown yet that it works again.
    fn works(&self, access: Access) -> bool {
        self.breaker(access).health(Instant::now()) == Health::Closed
    }

    fn breaker(&self, access: Access) -> MutexGuard<'_, Breaker> {
        self.breakers[access as usize].lock()
    }
}
