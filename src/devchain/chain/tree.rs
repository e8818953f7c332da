//! All blocks ever built, and the canonical branch.

use crate::devchain::content::block::Block;
use alloy_primitives::{B256, TxHash};
use std::{collections::HashMap, sync::Arc};

/// A tree of blocks with one canonical branch from the genesis to the head.
#[derive(Clone, Debug)]
pub(in crate::devchain) struct Tree {
    blocks: HashMap<B256, Arc<Block>>,
    /// Indexed by number; never empty, because the genesis is always canonical.
    canonical: Vec<Arc<Block>>,
    /// Places of the transactions of the canonical branch, lowest first. A transaction that several blocks contain
    /// has several places.
    places: HashMap<TxHash, Vec<TxPlace>>,
}

#[derive(Clone, Copy, Debug)]
struct TxPlace {
    number: u64,
    index: usize,
}

// === impl Tree ===

impl Tree {
    pub(in crate::devchain) fn new(genesis: Block) -> Self {
        let genesis = Arc::new(genesis);
        Self {
            blocks: HashMap::from([(genesis.hash(), Arc::clone(&genesis))]),
            canonical: vec![genesis],
            places: HashMap::new(),
        }
    }

    /// Adds a block, without making it canonical.
    pub(in crate::devchain) fn insert(&mut self, block: Block) -> Arc<Block> {
        let block = Arc::new(block);
        self.share(Arc::clone(&block));
        block
    }

    /// Adds a block that another tree may share, without making it canonical.
    pub(in crate::devchain) fn share(&mut self, block: Arc<Block>) {
        self.blocks.insert(block.hash(), block);
    }

    pub(in crate::devchain) fn head(&self) -> &Arc<Block> {
        self.canonical.last().expect("the genesis is always canonical")
    }

    /// Returns a block, canonical or not.
    pub(in crate::devchain) fn get(&self, hash: B256) -> Option<&Arc<Block>> {
        self.blocks.get(&hash)
    }

    /// Returns the canonical block of a number.
    pub(in crate::devchain) fn at(&self, number: u64) -> Option<&Arc<Block>> {
        self.canonical.get(usize::try_from(number).ok()?)
    }

    pub(in crate::devchain) fn is_canonical(&self, block: &Block) -> bool {
        self.at(block.number()).is_some_and(|canonical| canonical.hash() == block.hash())
    }

    /// Returns the canonical block that holds a transaction, and its index there. If several blocks contain it,
    /// returns the highest.
    pub(in crate::devchain) fn find(&self, tx: TxHash) -> Option<(&Arc<Block>, usize)> {
        self.find_up_to(tx, u64::MAX)
    }

    /// Finds a transaction as [`Tree::find`] does, in blocks up to a number.
    pub(in crate::devchain) fn find_up_to(&self, tx: TxHash, number: u64) -> Option<(&Arc<Block>, usize)> {
        let place = self.places.get(&tx)?.iter().rfind(|place| place.number <= number)?;
        Some((self.at(place.number)?, place.index))
    }

    /// Makes the branch that ends with `hash` canonical. If `hash` is an ancestor of the head, this is a rollback.
    ///
    /// Returns `false`, and changes nothing, if there is no such block.
    pub(in crate::devchain) fn set_head(&mut self, hash: B256) -> bool {
        let Some(head) = self.get(hash) else { return false };
        let mut ancestor = Arc::clone(head);
        let mut branch = Vec::new();
        while !self.is_canonical(&ancestor) {
            let parent = self.get(ancestor.header.parent_hash).cloned();
            let parent = parent.expect("blocks are only built on blocks of the tree");
            branch.push(std::mem::replace(&mut ancestor, parent));
        }
        while self.head().hash() != ancestor.hash() {
            self.retract();
        }
        branch.into_iter().rev().for_each(|block| self.extend(block));
        true
    }

    /// Returns the orphaned blocks, ordered by number and hash.
    pub(in crate::devchain) fn orphans(&self) -> Vec<&Arc<Block>> {
        let mut orphans: Vec<_> = self.blocks.values().filter(|block| !self.is_canonical(block)).collect();
        orphans.sort_unstable_by_key(|block| (block.number(), block.hash()));
        orphans
    }

    fn extend(&mut self, block: Arc<Block>) {
        for (index, tx) in block.transactions.iter().enumerate() {
            let place = TxPlace { number: block.number(), index };
            self.places.entry(*tx.tx_hash()).or_default().push(place);
        }
        self.canonical.push(block);
    }

    fn retract(&mut self) {
        let block = self.canonical.pop().expect("the genesis is an ancestor of every block");
        for tx in &block.transactions {
            // A transaction that lower blocks also contain keeps its places there.
            if let Some(places) = self.places.get_mut(tx.tx_hash()) {
                places.retain(|place| place.number < block.number());
                if places.is_empty() {
                    self.places.remove(tx.tx_hash());
                }
            }
        }
    }
}
