//! Confirms tiers: asks the upstream whether the finalized block that a tier has noted still stands.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tracing::{error, warn};

use super::{View, background::UnderWay, refresh::Unnamed};
use crate::{
    backoff::Backoff,
    cache::{Checkpoint, Generation, Unconfirmed},
    chain::Tracker,
    eth::{BlockHash, BlockNumber},
    upstream::UpstreamError,
};

/// Longest wait of a call for the confirmation: the upstream has all that the tiers have.
const PATIENCE: Duration = Duration::from_secs(1);

/// The pause after an attempt. It doubles while the upstream cannot tell.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The last attempt to confirm tiers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    ended: Instant,
    backoff: Backoff,
    generation: Generation,
}

// === impl View ===

impl View {
    /// Returns the finalized block for tiers, if the tracker that knows it also passes this check. `None` on a chain that is
    /// not [stored](Self::stored_as).
    pub(super) fn checkpoint(&self, check: impl FnOnce(&Tracker) -> bool) -> Option<Checkpoint> {
        let chain = self.stored_as()?;
        // First: a doubt from here on may concern the block that the tracker is about to return.
        let generation = self.tiers.generation();
        let tracker = self.tracker();
        let block = tracker.finalized().filter(|_| check(&tracker))?;
        Some(Checkpoint { chain, block, generation })
    }

    /// Confirms the unconfirmed tiers, if a finalized block is known.
    pub(in crate::proxy) async fn confirm_tiers(self: &Arc<Self>) {
        if let Some(checkpoint) = self.checkpoint(|_| true) {
            self.confirm_tiers_by(checkpoint).await;
        }
    }

    /// Confirms the unconfirmed tiers with this finalized block, which the tracker may not know yet.
    pub(super) async fn confirm_tiers_by(self: &Arc<Self>, checkpoint: Checkpoint) {
        if let Some(attempt) = self.start_confirming(checkpoint) {
            attempt.wait(PATIENCE).await;
        }
    }

    /// Starts to confirm the unconfirmed tiers, unless the last attempt was just now.
    pub(super) fn start_confirming(self: &Arc<Self>, checkpoint: Checkpoint) -> Option<UnderWay> {
        let is_due = |last: Attempt| {
            // A doubt is a reason to try again soon, but instances that share a tier can doubt it in turns.
            let is_doubted = last.generation != self.tiers.generation();
            let pause = if is_doubted { FIRST_PAUSE } else { last.backoff.last_pause() };
            last.ended.elapsed() >= pause
        };
        if self.tiers.is_confirmed() || !self.times.lock().confirm_attempt.is_none_or(is_due) {
            return None;
        }
        let this = self.clone();
        Some(self.confirming.begin(|| async move { this.attempt_to_confirm(checkpoint).await }))
    }

    async fn attempt_to_confirm(self: &Arc<Self>, checkpoint: Checkpoint) {
        let confirmed = self.try_to_confirm(checkpoint).await;
        let mut times = self.times.lock();
        let new = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut backoff = times.confirm_attempt.map_or(new, |last| last.backoff);
        match confirmed {
            Ok(()) => backoff.reset(),
            Err(error) if backoff.next_pause() == LONGEST_PAUSE => {
                warn!(%error, "the upstream cannot confirm a cache tier; it answers by hash only and is not written to");
            }
            Err(_) => {}
        }
        times.confirm_attempt =
            Some(Attempt { ended: Instant::now(), backoff, generation: checkpoint.generation });
    }

    /// Fails if the upstream could not tell for one of the tiers.
    async fn try_to_confirm(self: &Arc<Self>, checkpoint: Checkpoint) -> Result<(), UpstreamError> {
        let Checkpoint { chain, block: (final_now, _), generation } = checkpoint;
        let unconfirmed = self.tiers.unconfirmed(chain).await;
        // After another doubt, perhaps an alarm, this block may not be final any more.
        if unconfirmed.is_empty() || self.tiers.generation() != generation {
            return Ok(());
        }
        let finalized = self.tracker().finalized();
        // Another instance may have found that a finalized block was replaced, before this one did.
        if let Some((number, hash)) = finalized
            && let Some(found) = self.replaced_by(number, hash, final_now).await?
        {
            let now = self.clock.now();
            let is_news = self.change(|tracker| {
                // Not if somebody else was faster, and something else is known by now.
                let is_news = tracker.finalized() == finalized;
                if is_news {
                    tracker.forget(now);
                }
                is_news
            });
            if is_news {
                self.alarm(number, &format!("{hash} became {found}"));
            }
            return Ok(());
        }
        let mut result = Ok(());
        for tier in unconfirmed {
            let replaced = match tier.finalized {
                Some((number, hash)) if finalized != tier.finalized => {
                    self.replaced_by(number, hash, final_now).await
                }
                _ => Ok(None),
            };
            match replaced {
                Ok(None) if self.tiers.confirm(tier, checkpoint).await => {}
                Ok(None) => result = Err(UpstreamError::Empty),
                Ok(Some(found)) => self.alarm_of_tier(checkpoint, &tier, found),
                // The other tiers can still be confirmed.
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
            "ALARM: a block that was final before changed; what the tier says of canonicity is forgotten"
        );
        self.metrics.alarm();
        self.tiers.forget(checkpoint.chain, &[tier.tier]);
    }

    /// Returns the hash that replaced this block; `None` if the block still stands. Fails if the upstream does not tell, or
    /// serves another chain.
    ///
    /// A block below the finalized one that the node does not have is taken to stand: the node has pruned it. But the node
    /// must have reached the finalized block: one that is behind has no such block either.
    pub(super) async fn replaced_by(
        self: &Arc<Self>,
        number: BlockNumber,
        hash: BlockHash,
        final_now: BlockNumber,
    ) -> Result<Option<BlockHash>, UpstreamError> {
        let heard = self.hear(number, self.clock.now()).await?;
        match heard {
            Ok(named) if named.thin.hash() == hash => Ok(None),
            Ok(named) => self.recognise(named.by).await.map(|()| Some(named.thin.hash())),
            Err(Unnamed::Absent(Some(by)))
                if number < final_now && self.upstream.has_reached(by, final_now) =>
            {
                self.recognise(Some(by)).await.map(|()| None)
            }
            Err(_) => Err(UpstreamError::Empty),
        }
    }
}
