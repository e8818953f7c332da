//! The chain as clients see it, after lag, finality, pruning and the removal of orphans are applied.

use super::{
    error::RpcError,
    state::State,
    visibility::{BlockId, Pruned, TagTarget},
};
use crate::devchain::content::block::Block;
use alloy_primitives::{B256, TxHash};
use std::sync::Arc;

/// The chain as clients see it.
#[derive(Clone, Copy, Debug)]
pub(in crate::devchain) struct ClientView<'a> {
    pub(in crate::devchain) state: &'a State,
}

// === impl ClientView ===

impl<'a> ClientView<'a> {
    pub(in crate::devchain) const fn new(state: &'a State) -> Self {
        Self { state }
    }

    /// Returns the highest visible block.
    pub(in crate::devchain) fn head(&self) -> &'a Arc<Block> {
        self.state.visible_head()
    }

    /// Returns the block that `id` names, if it is visible.
    pub(in crate::devchain) fn block(&self, id: BlockId) -> Result<Option<Arc<Block>>, RpcError> {
        match id {
            BlockId::Hash { hash, canonical_only } => self.by_hash(hash, canonical_only),
            BlockId::Number(number) => self.by_number(number),
            BlockId::Latest => Ok(Some(Arc::clone(self.head()))),
            BlockId::Earliest => self.by_number(0),
            BlockId::Pending => Ok(Some(Arc::new(self.state.pending()))),
            BlockId::Safe => {
                self.final_block("safe", self.state.visibility.safe, self.state.rules.config.safe_distance)
            }
            BlockId::Finalized => {
                let distance = self.state.rules.config.finalized_distance;
                self.final_block("finalized", self.state.visibility.finalized, distance)
            }
        }
    }

    /// Returns the visible canonical block that holds a transaction, and its index there.
    pub(in crate::devchain) fn find(&self, tx: TxHash) -> Option<(&'a Arc<Block>, usize)> {
        let (block, index) = self.state.tree.find_up_to(tx, self.head().number())?;
        self.pruned(block).is_none().then_some((block, index))
    }

    /// Returns the blocks from `seen` down that are no longer canonical, highest first, and the visible canonical blocks
    /// after them, lowest first.
    pub(in crate::devchain) fn branches_since(
        &self,
        seen: B256,
    ) -> (Vec<&'a Arc<Block>>, Vec<&'a Arc<Block>>) {
        let tree = &self.state.tree;
        let mut orphaned = Vec::new();
        let mut ancestor = tree.get(seen);
        while let Some(block) = ancestor.filter(|block| !tree.is_canonical(block)) {
            orphaned.push(block);
            ancestor = tree.get(block.header.parent_hash);
        }
        let first = ancestor.map_or(0, |block| block.number() + 1);
        (orphaned, (first..=self.head().number()).filter_map(|number| tree.at(number)).collect())
    }

    /// Returns the number of the block that a tag stands for, if it stands for one.
    pub(in crate::devchain) fn final_number(&self, finality: TagTarget, distance: u64) -> Option<u64> {
        let head = self.head().number();
        match finality {
            TagTarget::Trailing => Some(head.saturating_sub(distance)),
            TagTarget::At(number) => Some(number.min(head)),
            TagTarget::Null | TagTarget::Error => None,
        }
    }

    fn by_hash(&self, hash: B256, canonical_only: bool) -> Result<Option<Arc<Block>>, RpcError> {
        let Some(block) = self.state.tree.get(hash) else {
            return Ok(None);
        };
        let canonical = self.state.tree.is_canonical(block);
        let beyond_sight = self.state.visibility.lag > 0 && block.number() > self.head().number();
        if beyond_sight || (!canonical && !self.state.rules.config.keep_orphans) {
            return Ok(None);
        }
        if canonical_only && !canonical {
            return Err(RpcError::server("hash is not currently canonical"));
        }
        self.unless_pruned(block)
    }

    fn by_number(&self, number: u64) -> Result<Option<Arc<Block>>, RpcError> {
        match self.state.tree.at(number) {
            Some(block) if number <= self.head().number() => self.unless_pruned(block),
            _ => Ok(None),
        }
    }

    fn final_block(&self, tag: &str, mode: TagTarget, distance: u64) -> Result<Option<Arc<Block>>, RpcError> {
        match self.final_number(mode, distance) {
            Some(number) => self.by_number(number),
            None if mode == TagTarget::Error => Err(RpcError::server(format!("{tag} block not found"))),
            None => Ok(None),
        }
    }

    fn unless_pruned(&self, block: &Arc<Block>) -> Result<Option<Arc<Block>>, RpcError> {
        match self.pruned(block) {
            None => Ok(Some(Arc::clone(block))),
            Some(Pruned::Null) => Ok(None),
            Some(Pruned::Error4444) => Err(RpcError::pruned()),
        }
    }

    /// Returns how the node answers for a block if it is pruned. The genesis is never pruned.
    fn pruned(&self, block: &Block) -> Option<Pruned> {
        let (floor, how) = self.state.visibility.pruned?;
        (0 < block.number() && block.number() < floor).then_some(how)
    }
}
