//! What clients are let see: the chain behind lag, finality, pruning and forgotten orphans.

use super::state::State;
use crate::devchain::{content::block::Block, rpc::RpcError};
use alloy_primitives::{B256, TxHash};
use std::sync::Arc;

/// What the tag `safe` or `finalized` stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finality {
    /// The block at the config's distance from the head, or the genesis while the chain is shorter.
    #[default]
    Trailing,
    /// The block of this number, or the head while the chain is shorter.
    At(u64),
    /// No block: the answer is `null`.
    Null,
    /// No block: the answer is an error, as geth gives before the first finalized block.
    Error,
}

/// How a node answers for history that it has pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pruned {
    /// With `null`.
    Null,
    /// With the error 4444 of EIP-4444; transactions and receipts asked by hash are `null` all the same,
    /// because the node cannot know that they existed.
    Error4444,
}

/// What a client can name a block by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::devchain) enum BlockId {
    Hash { hash: B256, canonical_only: bool },
    Number(u64),
    Latest,
    Safe,
    Finalized,
    Earliest,
    Pending,
}

/// How the view differs from the truth.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::devchain) struct Sight {
    pub(in crate::devchain) lag: u64,
    pub(in crate::devchain) safe: Finality,
    pub(in crate::devchain) finalized: Finality,
    pub(in crate::devchain) pruned: Option<(u64, Pruned)>,
}

/// The chain as clients see it.
#[derive(Clone, Copy, Debug)]
pub(in crate::devchain) struct View<'a> {
    pub(in crate::devchain) state: &'a State,
}

// === impl Finality ===

impl From<u64> for Finality {
    fn from(number: u64) -> Self {
        Self::At(number)
    }
}

impl From<Option<u64>> for Finality {
    fn from(number: Option<u64>) -> Self {
        number.map_or(Self::Trailing, Self::At)
    }
}

// === impl View ===

impl<'a> View<'a> {
    pub(in crate::devchain) const fn new(state: &'a State) -> Self {
        Self { state }
    }

    /// The highest block in sight.
    pub(in crate::devchain) fn head(&self) -> &'a Arc<Block> {
        let head = self.state.tree.head();
        let number = head.number().saturating_sub(self.state.sight.lag);
        self.state.tree.at(number).unwrap_or(head)
    }

    /// The block that a client means, if it is there.
    pub(in crate::devchain) fn block(&self, id: BlockId) -> Result<Option<Arc<Block>>, RpcError> {
        match id {
            BlockId::Hash { hash, canonical_only } => self.by_hash(hash, canonical_only),
            BlockId::Number(number) => self.by_number(number),
            BlockId::Latest => Ok(Some(Arc::clone(self.head()))),
            BlockId::Earliest => self.by_number(0),
            BlockId::Pending => Ok(Some(Arc::new(self.state.pending()))),
            BlockId::Safe => {
                self.final_block("safe", self.state.sight.safe, self.state.rules.config.safe_distance)
            }
            BlockId::Finalized => {
                let distance = self.state.rules.config.finalized_distance;
                self.final_block("finalized", self.state.sight.finalized, distance)
            }
        }
    }

    /// The canonical block in sight that holds a transaction, and its index there.
    pub(in crate::devchain) fn find(&self, tx: TxHash) -> Option<(&'a Arc<Block>, usize)> {
        let (block, index) = self.state.tree.find_up_to(tx, self.head().number())?;
        self.pruned(block).is_none().then_some((block, index))
    }

    /// The number that `finalized` stands for, where it stands for one.
    pub(in crate::devchain) fn final_number(&self, finality: Finality, distance: u64) -> Option<u64> {
        let head = self.head().number();
        match finality {
            Finality::Trailing => Some(head.saturating_sub(distance)),
            Finality::At(number) => Some(number.min(head)),
            Finality::Null | Finality::Error => None,
        }
    }

    fn by_hash(&self, hash: B256, canonical_only: bool) -> Result<Option<Arc<Block>>, RpcError> {
        let Some(block) = self.state.tree.get(hash) else {
            return Ok(None);
        };
        let canonical = self.state.tree.is_canonical(block);
        let beyond_sight = self.state.sight.lag > 0 && block.number() > self.head().number();
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

    fn final_block(&self, tag: &str, mode: Finality, distance: u64) -> Result<Option<Arc<Block>>, RpcError> {
        match self.final_number(mode, distance) {
            Some(number) => self.by_number(number),
            None if mode == Finality::Error => Err(RpcError::server(format!("{tag} block not found"))),
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

    /// How a block is pruned, if it is. The genesis never is.
    fn pruned(&self, block: &Block) -> Option<Pruned> {
        let (floor, how) = self.state.sight.pruned?;
        (0 < block.number() && block.number() < floor).then_some(how)
    }
}
