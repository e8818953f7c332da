//! Branches beside the canonical chain, and switching to them.

use super::handle::{BlockRef, DevChain, admit};
use crate::devchain::{
    chain::state::State,
    content::{block::Block, transactions::Tx},
};
use alloy_consensus::TxEnvelope;
use alloy_primitives::B256;
use std::sync::Arc;

/// Two primitives, [`DevChain::build_on`] and [`DevChain::set_head`], and common combinations of them.
impl DevChain {
    /// Builds a block with exactly these transactions on `parent`, and leaves the canonical chain as it is.
    ///
    /// No two built blocks have the same hash, even with equal content. Any transaction may be in any block.
    ///
    /// # Panics
    /// If `parent` is not a block of this chain, or the signature of a transaction recovers to no address.
    pub fn build_on(&self, parent: B256, txs: Vec<TxEnvelope>) -> B256 {
        let mut state = self.shared.state.lock();
        let parent = state.tree.get(parent).cloned().expect("the parent is a block of this chain");
        let txs = admit(&mut state, txs);
        state.build(&parent, txs).hash()
    }

    /// Makes the branch that ends with `hash` canonical. If `hash` is an ancestor of the head, rolls back to it.
    ///
    /// # Panics
    /// If `hash` is not a block of this chain.
    pub fn set_head(&self, hash: B256) -> BlockRef {
        let mut state = self.shared.state.lock();
        let found = state.set_head(hash);
        assert!(found, "{hash} is not a block of this chain");
        self.announce(&state)
    }

    /// Adopts the branch of `other` that ends with `hash`, like a replica that has caught up to there.
    ///
    /// Both chains must have the same genesis. They share the blocks. Transactions of the branch leave the mempool, and
    /// none enter it. A replica has only the blocks of branches that it adopted; it must not build blocks itself,
    /// because `other` could build equal blocks.
    ///
    /// # Panics
    /// If `hash` is not a block of `other`, or the two chains have no block in common.
    pub fn adopt(&self, other: &Self, hash: B256) -> BlockRef {
        let branch = other.branch_from(hash, |hash| self.shared.state.lock().tree.get(hash).is_some());
        let mut state = self.shared.state.lock();
        branch.into_iter().for_each(|block| state.tree.share(block));
        let found = state.set_head(hash);
        assert!(found, "{hash} is not a block of the other chain");
        self.announce(&state)
    }

    /// Returns the blocks from `hash` down to the first `known` block, which is not included.
    fn branch_from(&self, hash: B256, known: impl Fn(B256) -> bool) -> Vec<Arc<Block>> {
        let (mut branch, mut next) = (Vec::new(), hash);
        while !known(next) {
            let block =
                self.shared.state.lock().tree.get(next).cloned().expect("the chains have a block in common");
            next = block.header.parent_hash;
            branch.push(block);
        }
        branch
    }

    /// Replaces the last `depth` blocks by `length` new blocks that contain the same transactions in the same order.
    ///
    /// The first new block takes the transactions of the first old block, and so on; the last takes all that are
    /// left. A length of 0 is a rollback. The genesis stays: a greater depth replaces all blocks above it.
    pub fn reorg(&self, depth: u64, length: usize) -> BlockRef {
        let mut state = self.shared.state.lock();
        let replaced = replaced(&state, depth);
        let mut contents: Vec<Vec<Tx>> = vec![Vec::new(); length];
        for (n, block) in replaced.iter().enumerate() {
            if let Some(content) = contents.get_mut(n.min(length.saturating_sub(1))) {
                content.extend(block.transactions.iter().cloned());
            }
        }
        self.replace(&mut state, replaced.len(), contents)
    }

    /// Replaces the last `depth` blocks by new blocks with exactly these transactions. The new blocks can leave out
    /// transactions, or contain them at other heights.
    ///
    /// # Panics
    /// If the signature of a transaction recovers to no address.
    pub fn reorg_with(&self, depth: u64, contents: Vec<Vec<TxEnvelope>>) -> BlockRef {
        let mut state = self.shared.state.lock();
        let contents = contents.into_iter().map(|txs| admit(&mut state, txs)).collect();
        let depth = replaced(&state, depth).len();
        self.replace(&mut state, depth, contents)
    }

    /// Removes the last `depth` blocks, down to the genesis at most.
    pub fn rollback(&self, depth: u64) -> BlockRef {
        self.reorg(depth, 0)
    }

    fn replace(&self, state: &mut State, depth: usize, contents: Vec<Vec<Tx>>) -> BlockRef {
        let fork = state.tree.head().number() - depth as u64;
        let mut tip = state.tree.at(fork).cloned().expect("no deeper than the genesis");
        for txs in contents {
            tip = state.build(&tip, txs);
        }
        state.set_head(tip.hash());
        self.announce(state)
    }
}

/// Returns the last `depth` blocks above the genesis, lowest first.
fn replaced(state: &State, depth: u64) -> Vec<Arc<Block>> {
    let head = state.tree.head().number();
    (head.saturating_sub(depth)..head).filter_map(|below| state.tree.at(below + 1).cloned()).collect()
}
