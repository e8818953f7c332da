//! One tier, which is never waited for longer than it is worth, and is left alone while it keeps failing.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{
    Checkpoint, Metrics, TierStatus,
    trust::{Accept, GenerationCounter, Trust},
};
use crate::{
    breaker::{Breaker, Health, Policy},
    cache::tier::{ChainKey, Tier, TierError, TierKind, Tiered},
    seldom::Seldom,
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
    /// For what is read from where it is kept …
    values: Mutex<Breaker>,
    /// … and apart for what a tier knows by heart: one that hangs may answer that all the time.
    facts: Mutex<Breaker>,
    /// Apart: a disk that is full can be read.
    writes: Mutex<Breaker>,
    pub(super) trust: Trust,
    metrics: Metrics,
    said: Seldom,
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
            values: Mutex::new(Breaker::new(BREAKER)),
            facts: Mutex::new(Breaker::new(BREAKER)),
            writes: Mutex::new(Breaker::new(BREAKER)),
            trust: Trust::new(generations),
            metrics,
            said: Seldom::default(),
        }
    }

    pub(super) fn kind(&self) -> TierKind {
        self.tier.kind()
    }

    /// Looks for what is kept.
    pub(super) async fn look<T>(&self, ask: impl FnOnce(&dyn Tier) -> Tiered<'_, Option<T>>) -> Option<T> {
        let begun = Instant::now();
        let found = self.read(&self.values, begun, ask).await?;
        // That it has nothing it may know by heart, and hang all the same when it has.
        if found.is_some() || !self.tier.knows_what_it_has() {
            self.values.lock().succeed();
        } else {
            self.values.lock().abandon(begun);
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
        self.read(&self.facts, Instant::now(), ask).await.inspect(|_| self.facts.lock().succeed())
    }

    async fn read<T>(
        &self,
        breaker: &Mutex<Breaker>,
        begun: Instant,
        ask: impl FnOnce(&dyn Tier) -> Tiered<'_, T>,
    ) -> Option<T> {
        if !begin(breaker, begun) {
            self.metrics.skipped(self.kind());
            return None;
        }
        match self.within(self.patience, ask).await {
            Ok(said) => Some(said),
            Err(TierError::Forgotten) => {
                breaker.lock().succeed();
                self.trust.doubt();
                None
            }
            Err(error) => {
                breaker.lock().fail(1, Instant::now());
                self.metrics.failed(self.kind());
                self.say("read", &error);
                None
            }
        }
    }

    /// Tells whether it was done.
    pub(super) async fn write(&self, write: impl FnOnce(&dyn Tier) -> Tiered<'_, ()>) -> bool {
        self.try_to_write(Instant::now(), write).await.inspect(|()| self.writes.lock().succeed()).is_some()
    }

    /// The same for what may be there, or gone, already: then nothing is written, and nothing learnt.
    pub(super) async fn write_if_needed(&self, write: impl FnOnce(&dyn Tier) -> Tiered<'_, bool>) -> bool {
        let begun = Instant::now();
        let is_written = self.try_to_write(begun, write).await;
        match is_written {
            Some(true) => self.writes.lock().succeed(),
            Some(false) => self.writes.lock().abandon(begun),
            None => {}
        }
        is_written.is_some()
    }

    /// `None` if it failed, or is left alone.
    async fn try_to_write<T>(
        &self,
        begun: Instant,
        write: impl FnOnce(&dyn Tier) -> Tiered<'_, T>,
    ) -> Option<T> {
        if !begin(&self.writes, begun) {
            return None;
        }
        match self.within(WRITE_PATIENCE, write).await {
            Ok(written) => Some(written),
            Err(TierError::Forgotten) => {
                // Somebody found that what was final is not. It may be so here too.
                self.writes.lock().succeed();
                self.trust.doubt();
                None
            }
            Err(error) => {
                self.writes.lock().fail(1, Instant::now());
                self.say("write", &error);
                None
            }
        }
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
        !self.writes.lock().lets_pass(Instant::now())
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
            reads: works(&self.values) && works(&self.facts),
            writes: works(&self.writes),
            is_confirmed: self.trust.answers(Accept::Confirmed),
            errors: self.metrics.errors(self.kind()),
        }
    }

    async fn within<T>(
        &self,
        patience: Duration,
        ask: impl FnOnce(&dyn Tier) -> Tiered<'_, T>,
    ) -> Result<T, TierError> {
        timeout(patience, ask(&*self.tier)).await.unwrap_or(Err(TierError::TimedOut(patience)))
    }
}

/// Lets a call pass, if it may.
fn begin(breaker: &Mutex<Breaker>, now: Instant) -> bool {
    let mut breaker = breaker.lock();
    let passes = breaker.lets_pass(now);
    if passes {
        breaker.begin(now);
    }
    passes
}

/// Returns whether calls succeed. A tier whose time is over has not shown yet that it works again.
fn works(breaker: &Mutex<Breaker>) -> bool {
    breaker.lock().health(Instant::now()) == Health::Closed
}
