//! Checks what a tier gave back, as if an upstream had said it; but it has no vote on what rules the chain keeps.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;

use super::{AskedBlock, Demand, Failure, Kind, Origin, Verified, Verifier, prove, structural};
use crate::eth::{Block, BlockHash, Receipts};

/// Why something is not taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It is not what it was kept as.
    Wrong,
    /// It cannot be proved; it may be another day, when more is known of the chain.
    Unsure,
}

// === impl Verifier ===

impl Verifier {
    /// A block that a tier kept under this hash.
    ///
    /// # Errors
    /// If it is not that block, or it cannot be told.
    pub async fn restore_block(
        &self,
        text: Bytes,
        hash: BlockHash,
        tier: &Arc<str>,
    ) -> Result<Verified<Block>, Doubt> {
        let chain_id = self.anchored_chain();
        let prove = move || {
            let block = structural::block(&text, AskedBlock::ByHash(hash))?;
            Ok((block.clone(), prove::block(block, chain_id)))
        };
        let (read, proved) = self.apart(prove).await.ok_or(Doubt::Unsure)?.map_err(wrong)?;
        self.judge_restored(Kind::Blocks, read, proved, tier)
    }

    /// The receipts that a tier kept for this block.
    ///
    /// # Errors
    /// If they are not that block's, or it cannot be told.
    pub async fn restore_receipts(
        &self,
        text: Bytes,
        block: Arc<Verified<Block>>,
        tier: &Arc<str>,
    ) -> Result<Verified<Receipts>, Doubt> {
        let prove = move || {
            let header = block.header();
            let receipts = structural::receipts(&text, header.hash, header.number, Some(&block))?;
            Ok((receipts.clone(), prove::receipts(receipts, &block)))
        };
        let (read, proved) = self.apart(prove).await.ok_or(Doubt::Unsure)?.map_err(wrong)?;
        self.judge_restored(Kind::Receipts, read, proved, tier)
    }

    /// Where nothing can be proved, only what was said when it was final was ever kept.
    fn judge_restored<T>(
        &self,
        kind: Kind,
        read: Verified<T>,
        proved: Result<Verified<T>, Failure>,
        tier: &Arc<str>,
    ) -> Result<Verified<T>, Doubt> {
        let restored = match proved {
            Ok(proved) => proved,
            Err(_) if self.demands(kind) == Demand::Structural => read,
            Err(failure) if self.is_sure() && !failure.is_unprovable() => return Err(Doubt::Wrong),
            Err(_) => return Err(Doubt::Unsure),
        };
        let origin = Origin { endpoint: tier.clone(), time: SystemTime::now() };
        Ok(restored.settled(true).said_by(&origin))
    }
}

/// What is wrong with the shape is wrong on any chain.
fn wrong(_: Failure) -> Doubt {
    Doubt::Wrong
}
