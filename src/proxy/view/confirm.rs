//! Holds what tiers say of numbers against the upstream.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tracing::{error, warn};

use super::{View, refresh::Unnamed, single::UnderWay};
use crate::{
    cache::{Era, Unconfirmed, tier::ChainKey},
    eth::{BlockHash, BlockNumber},
    upstream::UpstreamError,
};

/// Nobody waits longer for it: what tiers have, the upstream has too.
const PATIENCE: Duration = Duration::from_secs(1);

/// It is tried again after this, and not with every call …
const PAUSE: Duration = Duration::from_secs(1);
/// … and where the upstream could not tell, after twice as long each time, up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Where there was another doubt it is tried sooner, and yet not all the time: those who share a tier can doubt in turns.
const HASTE: Duration = Duration::from_millis(250);

/// When it has come to this it is said, once.
const WORTH_SAYING: Duration = PAUSE.saturating_mul(8);

/// The last attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tried {
    ended: Instant,
    pause: Duration,
    /// When it began. What was doubted since is worth another.
    era: Era,
}

// === impl View ===

impl View {
    /// Makes sure that what tiers say of numbers counts: of each that has not been held against the upstream since the start,
    /// or since there was reason to doubt it, it is asked what stands at the number that was the highest final one when it was
    /// last told. If that is another block now, this tier is told to forget.
    pub(in crate::proxy) async fn confirm_tiers(self: &Arc<Self>, chain: ChainKey) {
        if let Some(attempt) = self.begin_to_confirm(chain) {
            attempt.wait(PATIENCE).await;
        }
    }

    /// The same, and nobody waits for it.
    pub(super) fn confirm_meanwhile(self: &Arc<Self>, chain: ChainKey) {
        self.begin_to_confirm(chain);
    }

    /// The same, with the highest final block, which was so in this era.
    pub(super) async fn confirm_tiers_by(
        self: &Arc<Self>,
        chain: ChainKey,
        final_now: (BlockNumber, BlockHash),
        era: Era,
    ) {
        if let Some(attempt) = self.begin_attempt(chain, final_now, era) {
            attempt.wait(PATIENCE).await;
        }
    }

    fn begin_to_confirm(self: &Arc<Self>, chain: ChainKey) -> Option<UnderWay> {
        // Before it is looked: what is found out from here on may be that this is not final.
        let era = self.tiers.era();
        // Before anything is known to be final, what tiers say is held to nothing.
        let final_now = self.tracker().finalized()?;
        self.begin_attempt(chain, final_now, era)
    }

    fn begin_attempt(
        self: &Arc<Self>,
        chain: ChainKey,
        final_now: (BlockNumber, BlockHash),
        era: Era,
    ) -> Option<UnderWay> {
        let attempt = || {
            let this = self.clone();
            async move { this.attempt(chain, final_now, era).await }
        };
        self.may_confirm().then(|| self.confirming.begin(attempt))
    }

    /// Is there anything to confirm, and was it not just tried?
    fn may_confirm(&self) -> bool {
        let is_worth_it = |tried: Tried| {
            let pause = if tried.era == self.tiers.era() { tried.pause } else { HASTE };
            tried.ended.elapsed() >= pause
        };
        !self.tiers.is_confirmed() && self.times().tried.is_none_or(is_worth_it)
    }

    async fn attempt(self: &Arc<Self>, chain: ChainKey, final_now: (BlockNumber, BlockHash), era: Era) {
        let confirmed = self.try_to_confirm(chain, final_now, era).await;
        let pause = {
            let mut times = self.times();
            let last = times.tried.map_or(PAUSE, |tried| tried.pause);
            let pause = if confirmed.is_ok() { PAUSE } else { (last * 2).min(LONGEST_PAUSE) };
            times.tried = Some(Tried { ended: Instant::now(), pause, era });
            pause
        };
        if let Err(error) = confirmed
            && pause == WORTH_SAYING
        {
            let what = "it answers by hash alone, and is not written to";
            warn!(%error, "what a tier says of numbers cannot be held against the upstream: {what}");
        }
    }

    /// Fails if one of them could not be confirmed, and that is not soon to be otherwise.
    async fn try_to_confirm(
        self: &Arc<Self>,
        chain: ChainKey,
        final_now: (BlockNumber, BlockHash),
        era: Era,
    ) -> Result<(), UpstreamError> {
        let unconfirmed = self.tiers.unconfirmed(chain).await;
        // Another doubt, perhaps an alarm: what was final when this began may be so no more.
        if unconfirmed.is_empty() || self.tiers.era() != era {
            return Ok(());
        }
        let finalized = self.tracker().finalized();
        // Where others found out that what was final is not, it may be so here too, and not be known yet.
        if let Some((number, hash)) = finalized
            && let Some(found) = self.replaced_by(number, hash, final_now.0).await?
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
        let mut told = Ok(());
        for tier in unconfirmed {
            let replaced = match tier.finalized {
                Some((number, hash)) if finalized != tier.finalized => {
                    self.replaced_by(number, hash, final_now.0).await
                }
                _ => Ok(None),
            };
            match replaced {
                Ok(None) if self.tiers.confirm(chain, tier, final_now).await => {}
                Ok(None) => told = Err(UpstreamError::Empty),
                Ok(Some(_)) => self.disown(chain, &tier),
                // What one says cannot be held against anything; others are not to suffer for it.
                Err(error) => told = Err(error),
            }
        }
        if let Some(finalized) = finalized {
            self.tiers.note_finalized(chain, finalized, era);
        }
        told
    }

    fn disown(&self, chain: ChainKey, Unconfirmed { tier, finalized, .. }: &Unconfirmed) {
        let (number, hash) = finalized.unzip();
        error!(
            number = number.map(|number| number.0),
            hash = hash.map(|hash| hash.to_string()),
            tier = tier.as_str(),
            "ALARM: a block that was final before changed; what the tier says of canonicity is forgotten"
        );
        self.metrics.alarm();
        self.tiers.forget_one(chain, *tier);
    }

    /// What stands at this number in place of this block; `None` if that still does. An error if it cannot be told, or a
    /// stranger was asked.
    ///
    /// What is older than what is final now, and gone, is taken to stand: the node has pruned it, and cannot be asked; and it
    /// may have been imported for just that reason. But it must be the node, and as far as what is final: one that is behind
    /// has no such block either.
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
