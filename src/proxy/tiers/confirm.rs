//! Confirms tiers: asks the upstream whether the finalized block of a tier is still canonical.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{error, warn};

use super::chain::StoredChain;
use crate::{
    backoff::Backoff,
    cache::{Checkpoint, Generation, Tiers, Unconfirmed},
    chain::Tracker,
    eth::BlockHash,
    proxy::{
        head::{
            FinalCheck, FinalityTracker, SharedView,
            background::{RunningTask, SingleTask},
        },
        metrics::Metrics,
        parts::ProxyParts,
    },
    upstream::UpstreamError,
};

/// Longest wait of a call for a confirmation. After that, the call goes on without one, because the upstream has all
/// content of the tiers too.
const PATIENCE: Duration = Duration::from_secs(1);

/// Pause after the first attempt. The pause doubles up to [`LONGEST_PAUSE`] while the upstream gives no clear answer.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Confirms tiers. Clones share the last attempt.
#[derive(Clone, Debug)]
pub(super) struct Confirmation(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    tiers: Tiers,
    chain: StoredChain,
    view: Arc<SharedView>,
    finality: Arc<FinalityTracker>,
    metrics: Metrics,
    under_way: SingleTask,
    last: Mutex<Option<Attempt>>,
}

/// The last attempt to confirm tiers.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    ended: Instant,
    backoff: Backoff,
    generation: Generation,
}

// === impl Confirmation ===

impl Confirmation {
    pub(super) fn new(chain: StoredChain, finality: Arc<FinalityTracker>, parts: &ProxyParts) -> Self {
        let ProxyParts { tiers, metrics, .. } = parts.clone();
        let view = chain.view().clone();
        let (under_way, last) = (SingleTask::default(), Mutex::default());
        Self(Arc::new(Inner { tiers, chain, view, finality, metrics, under_way, last }))
    }

    /// Returns the finalized block as a checkpoint for tiers, if the tracker also passes `check`. `None` if this
    /// chain is not [stored](StoredChain::key).
    pub(super) fn checkpoint(&self, check: impl FnOnce(&Tracker) -> bool) -> Option<Checkpoint> {
        let Inner { tiers, chain, view, .. } = &*self.0;
        let chain = chain.key()?;
        // Read the generation before the finalized block. If the confirmation of the tiers is withdrawn in between,
        // perhaps because of this very block, the tiers then ignore the checkpoint.
        let generation = tiers.generation();
        let tracker = view.tracker();
        let block = tracker.finalized().filter(|_| check(&tracker))?;
        Some(Checkpoint { chain, block, generation })
    }

    /// Confirms the unconfirmed tiers, if a finalized block is known.
    pub(super) async fn confirm(&self) {
        if let Some(checkpoint) = self.checkpoint(|_| true) {
            self.confirm_by(checkpoint).await;
        }
    }

    /// Confirms the unconfirmed tiers with this finalized block, which the tracker may not know yet.
    pub(super) async fn confirm_by(&self, checkpoint: Checkpoint) {
        if let Some(attempt) = self.start(checkpoint) {
            attempt.wait(PATIENCE).await;
        }
    }

    /// Starts an attempt to confirm the unconfirmed tiers. Returns `None` if all tiers are confirmed, or if the pause
    /// after the last attempt is not over.
    pub(super) fn start(&self, checkpoint: Checkpoint) -> Option<RunningTask> {
        let Inner { tiers, under_way, last, .. } = &*self.0;
        let is_due = |last: Attempt| {
            // If the confirmation was withdrawn since the last attempt, retry soon, but not at once: two instances that
            // share a tier could cause such withdrawals for each other again and again.
            let is_doubted = last.generation != tiers.generation();
            let pause = if is_doubted { FIRST_PAUSE } else { last.backoff.last_pause() };
            last.ended.elapsed() >= pause
        };
        if tiers.is_confirmed() || !last.lock().is_none_or(is_due) {
            return None;
        }
        let this = self.0.clone();
        Some(under_way.begin(|| async move { this.attempt(checkpoint).await }))
    }
}

// === impl Inner ===

impl Inner {
    async fn attempt(&self, checkpoint: Checkpoint) {
        let confirmed = self.try_to_confirm(checkpoint).await;
        let mut last = self.last.lock();
        let new = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut backoff = last.map_or(new, |last| last.backoff);
        match confirmed {
            Ok(()) => backoff.reset(),
            Err(error) if backoff.next_pause() == LONGEST_PAUSE => {
                warn!(%error, "the upstream cannot confirm a cache tier; the tier answers only calls by hash and receives no writes");
            }
            Err(_) => {}
        }
        *last = Some(Attempt { ended: Instant::now(), backoff, generation: checkpoint.generation });
    }

    /// Tries to confirm each unconfirmed tier. Fails if the upstream gives no clear answer for one of them.
    async fn try_to_confirm(&self, checkpoint: Checkpoint) -> Result<(), UpstreamError> {
        let Checkpoint { chain, block: (final_now, _), generation } = checkpoint;
        let unconfirmed = self.tiers.unconfirmed(chain).await;
        // If the confirmation was withdrawn meanwhile, for example because of an alarm, the block of `checkpoint` may
        // no longer be final.
        if unconfirmed.is_empty() || self.tiers.generation() != generation {
            return Ok(());
        }
        let finalized = self.view.tracker().finalized();
        // First check the finalized block of this proxy, because another instance may have noticed earlier that the
        // chain replaced it.
        if let Some((number, hash)) = finalized
            && let Some(found) = self.finality.replaced_by(number, hash, final_now).await?
        {
            return match self.finality.contradicted((number, hash), found) {
                FinalCheck::Doubted => Err(UpstreamError::Empty),
                _ => Ok(()),
            };
        }
        let mut result = Ok(());
        for tier in unconfirmed {
            let replaced = match tier.finalized {
                Some((number, hash)) if finalized != tier.finalized => {
                    self.finality.replaced_by(number, hash, final_now).await
                }
                _ => Ok(None),
            };
            match replaced {
                Ok(None) if self.tiers.confirm(tier, checkpoint).await => {}
                Ok(None) => result = Err(UpstreamError::Empty),
                Ok(Some(found)) => self.alarm_of_tier(checkpoint, &tier, found),
                // Go on with the other tiers.
                Err(error) => result = Err(error),
            }
        }
        if let Some(block) = finalized {
            self.tiers.note_finalized(Checkpoint { block, ..checkpoint });
        }
        result
    }

    fn alarm_of_tier(&self, checkpoint: Checkpoint, tier: &Unconfirmed, found: BlockHash) {
        let (number, hash) = tier.finalized.unzip();
        error!(
            number = number.map(|number| number.0),
            hash = hash.map(|hash| hash.to_string()),
            %found,
            tier = tier.tier.as_str(),
            "ALARM: a finalized block of a cache tier changed; discarding the tier's index of block numbers"
        );
        self.metrics.alarm();
        self.tiers.forget(checkpoint.chain, &[tier.tier]);
    }
}
