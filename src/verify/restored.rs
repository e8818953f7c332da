//! Verifies entries loaded from a cache tier like upstream answers, except that the results do not decide whether the
//! chain is provable.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;

use super::{
    Demand, Failure, Kind, Origin, Verified, Verifier,
    prove::{self, Proof},
    structural,
};
use crate::eth::{At, Block, BlockHash, Receipts};

/// Verifies the entries of one tier.
#[derive(Clone, Copy, Debug)]
pub struct TierVerifier<'a> {
    verifier: &'a Verifier,
    tier: &'a Arc<str>,
}

/// Reason for not loading an entry from a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The entry is wrong.
    Wrong,
    /// It is unknown whether the entry is right, because the proof did not finish or was not conclusive.
    Unsure,
}

// === impl TierVerifier ===

impl<'a> TierVerifier<'a> {
    /// Returns a verifier of the entries of `tier`.
    pub const fn new(verifier: &'a Verifier, tier: &'a Arc<str>) -> Self {
        Self { verifier, tier }
    }

    /// Verifies the block that a tier stored under this hash.
    ///
    /// # Errors
    /// If the entry is not that block, or if it is unknown whether it is.
    pub async fn block(self, text: Bytes, hash: BlockHash) -> Result<Verified<Block>, Doubt> {
        let (chain_id, size) = (self.verifier.anchored_chain(), text.len());
        let prove = move || {
            let block = structural::block(&text, At::Hash(hash))?;
            Ok(prove::block_by_parts(block, chain_id, true))
        };
        let proof = self.prove(size, prove).await?;
        self.judge(proof)
    }

    /// Verifies the receipts that a tier stored for this block.
    ///
    /// # Errors
    /// If the entry does not contain that block's receipts, or if it is unknown whether it does.
    pub async fn receipts(
        self,
        text: Bytes,
        block: Arc<Verified<Block>>,
    ) -> Result<Verified<Receipts>, Doubt> {
        let size = text.len();
        let prove = move || {
            let header = block.header();
            let receipts = structural::receipts(&text, header.hash, header.number, Some(&block))?;
            Ok(match prove::receipts(receipts.clone(), &block) {
                Ok(content) => Proof { content, failure: None },
                Err(failure) => Proof { content: receipts, failure: Some((Kind::Receipts, failure)) },
            })
        };
        let proof = self.prove(size, prove).await?;
        self.judge(proof)
    }

    async fn prove<T: Send + 'static>(
        &self,
        size: usize,
        prove: impl FnOnce() -> Result<Proof<T>, Failure> + Send + 'static,
    ) -> Result<Proof<T>, Doubt> {
        // The wait is short even if unproved answers are rejected, because the upstream has the content, too.
        let proof = self.verifier.prove_apart(size, self.verifier.short_patience(), prove).await;
        // An entry that fails a structural check is wrong on any chain.
        proof.map_err(|_| Doubt::Unsure)?.map_err(|_| Doubt::Wrong)
    }

    /// Decides whether to load an entry. On chains without proofs every entry is loaded, because tiers store only
    /// content that was fetched when its block was final.
    fn judge<T>(&self, Proof { mut content, failure }: Proof<T>) -> Result<Verified<T>, Doubt> {
        if let Some((kind, failure)) = failure
            && self.verifier.demands(kind) != Demand::Structural
        {
            // If this chain's blocks are provable, the tier stored only proved entries, so a conclusive failure means
            // that the entry is wrong.
            let decides = if kind == Kind::Header { Kind::Header } else { Kind::Transactions };
            let is_wrong = self.verifier.rules().is_sure(decides) && !failure.is_unprovable();
            return Err(if is_wrong { Doubt::Wrong } else { Doubt::Unsure });
        }
        let origin = Origin { endpoint: self.tier.clone(), time: SystemTime::now() };
        content.said_by(&origin);
        Ok(content.settled(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::{Config, Metrics};

    /// Returns the judgement on an entry of a listed or unlisted chain whose proof failed.
    fn judge(level: Demand, is_listed: bool, failure: Failure) -> Result<bool, Doubt> {
        let ethereum_chains = if is_listed { vec![77] } else { Vec::new() };
        let config = Config { level, ethereum_chains, ..Config::default() };
        let (verifier, tier) = (Verifier::new(config, Metrics::default()), Arc::from("disk"));
        verifier.follow(77, None);
        let proof = Proof { content: Verified::structurally(()), failure: Some((Kind::Receipts, failure)) };
        TierVerifier::new(&verifier, &tier).judge(proof).map(|content| content.is_settled())
    }

    #[test]
    fn entry_is_wrong_only_if_its_failure_is_conclusive() {
        let (conclusive, unknown) = (Failure::Count { expected: 1, got: 2 }, Failure::Unfounded);
        for level in [Demand::Auto, Demand::Full] {
            assert_eq!(judge(level, true, conclusive.clone()), Err(Doubt::Wrong));
            assert_eq!(judge(level, true, unknown.clone()), Err(Doubt::Unsure));
            assert_eq!(judge(level, false, conclusive.clone()), Err(Doubt::Unsure));
        }
        for is_listed in [false, true] {
            assert_eq!(judge(Demand::Structural, is_listed, conclusive.clone()), Ok(true));
        }
    }
}
