//! The whole state of the node, and the operations that change it.

use super::{
    filters::Filters,
    mempool::{Mempool, TxRefusal},
    tree::Tree,
    visibility::Visibility,
};
use crate::devchain::{
    config::Config,
    content::{
        accounts::Cast,
        block::{Block, ChainRules},
        transactions::{Forge, Nonces, TransactionKind, Tx},
    },
};
use alloy_consensus::{Transaction as _, TxEnvelope, transaction::SignerRecoverable};
use alloy_primitives::{B256, Bytes, TxHash};
use std::{collections::HashMap, sync::Arc};

/// The state behind the lock of the handle.
#[derive(Clone, Debug)]
pub(in crate::devchain) struct State {
    pub(in crate::devchain) rules: ChainRules,
    pub(in crate::devchain) tree: Tree,
    pub(in crate::devchain) pool: Mempool,
    /// The part of the tree that clients see.
    pub(in crate::devchain) visibility: Visibility,
    /// Filters that clients poll.
    pub(in crate::devchain) filters: Filters,
    /// Every transaction seen so far, so that each sender is recovered only once.
    known: HashMap<TxHash, Tx>,
    forge: Forge,
    /// Number of blocks built. Each block carries this number as a mark, so that no two blocks are equal.
    built: u64,
}

// === impl State ===

impl State {
    pub(in crate::devchain) fn new(config: Config) -> Self {
        let cast = Arc::new(Cast::new(config.seed));
        let forge = Forge::new(&config, Arc::clone(&cast));
        let rules = ChainRules { config, cast };
        Self {
            tree: Tree::new(rules.root(0)),
            rules,
            pool: Mempool::default(),
            visibility: Visibility::default(),
            filters: Filters::default(),
            known: HashMap::new(),
            forge,
            built: 0,
        }
    }

    /// Returns the highest block that clients see.
    pub(in crate::devchain) fn visible_head(&self) -> &Arc<Block> {
        let head = self.tree.head();
        let number = head.number().saturating_sub(self.visibility.lag);
        self.tree.at(number).unwrap_or(head)
    }

    /// Returns the transaction with this hash, if the node has seen it.
    pub(in crate::devchain) fn transaction(&self, hash: TxHash) -> Option<&Tx> {
        self.known.get(&hash)
    }

    /// Recovers the sender of a transaction and records the transaction. Drops its blobs, which no block contains.
    pub(in crate::devchain) fn admit(&mut self, envelope: TxEnvelope) -> Result<Tx, TxRefusal> {
        if let Some(known) = self.known.get(envelope.tx_hash()) {
            return Ok(Arc::clone(known));
        }
        let envelope = match envelope {
            TxEnvelope::Eip4844(signed) => TxEnvelope::Eip4844(signed.map(|tx| tx.drop_sidecar())),
            other => other,
        };
        let tx = envelope.try_into_recovered().map_err(|_| TxRefusal::InvalidSender)?;
        Ok(self.remember(Arc::new(tx)))
    }

    /// Records a test's transactions, with the senders recovered from their signatures.
    ///
    /// # Panics
    /// If the signature of a transaction recovers to no address.
    pub(in crate::devchain) fn admit_all(&mut self, txs: Vec<TxEnvelope>) -> Vec<Tx> {
        txs.into_iter().map(|tx| self.admit(tx).expect("the transaction is signed")).collect()
    }

    /// Adds a client's transaction to the mempool.
    pub(in crate::devchain) fn submit(&mut self, envelope: TxEnvelope) -> Result<TxHash, TxRefusal> {
        let want = self.rules.config.chain_id;
        if let Some(have) = envelope.chain_id().filter(|have| *have != want) {
            return Err(TxRefusal::WrongChain { have, want });
        }
        let tx = self.admit(envelope)?;
        let hash = *tx.tx_hash();
        let head = Arc::clone(self.visible_head());
        self.pool.submit(&head.world, tx)?;
        Ok(hash)
    }

    /// Makes transactions that follow the transactions `before` in a block on `parent`.
    pub(in crate::devchain) fn generate(&mut self, parent: &Block, before: &[Tx], count: usize) -> Vec<Tx> {
        let made = self.forge.make_many(&parent.world, before, parent.next_prices(), count);
        made.into_iter().map(|tx| self.remember(tx)).collect()
    }

    /// Makes one transaction of this kind for the next block.
    pub(in crate::devchain) fn generate_kind(&mut self, kind: TransactionKind) -> Tx {
        let head = self.tree.head();
        let mut nonces = Nonces::after(&head.world, self.pool.transactions());
        let made = self.forge.make(kind, &mut nonces, head.next_prices());
        self.remember(made)
    }

    /// Builds a block on `parent` and adds it to the tree, without changing the head.
    pub(in crate::devchain) fn build(&mut self, parent: &Block, transactions: Vec<Tx>) -> Arc<Block> {
        self.built += 1;
        let mark = [b"devchain".as_slice(), &self.built.to_be_bytes()].concat();
        self.tree.insert(self.rules.child(parent, transactions, mark.into()))
    }

    /// Builds the next block from the mempool and `count` generated transactions.
    pub(in crate::devchain) fn mine(&mut self, count: usize) -> Arc<Block> {
        let head = Arc::clone(self.tree.head());
        let mut transactions = self.pool.transactions().to_vec();
        let generated = self.generate(&head, &transactions, count);
        transactions.extend(generated);
        let block = self.build(&head, transactions);
        self.set_head(block.hash());
        block
    }

    /// Changes the head, as [`Tree::set_head`] describes. Transactions that become canonical leave the mempool.
    /// Transactions that stop being canonical do not return to it.
    pub(in crate::devchain) fn set_head(&mut self, hash: B256) -> bool {
        let found = self.tree.set_head(hash);
        self.pool.drop_included(|tx| self.tree.find(tx).is_some());
        found
    }

    /// Returns the last `depth` blocks above the genesis, lowest first.
    pub(in crate::devchain) fn last_blocks(&self, depth: u64) -> Vec<Arc<Block>> {
        let head = self.tree.head().number();
        (head.saturating_sub(depth)..head).filter_map(|below| self.tree.at(below + 1).cloned()).collect()
    }

    /// Replaces the last `depth` blocks by `length` new blocks that contain the same transactions in the same order.
    pub(in crate::devchain) fn reorg(&mut self, depth: u64, length: usize) {
        let replaced = self.last_blocks(depth);
        let mut contents: Vec<Vec<Tx>> = vec![Vec::new(); length];
        for (n, block) in replaced.iter().enumerate() {
            if let Some(content) = contents.get_mut(n.min(length.saturating_sub(1))) {
                content.extend(block.transactions.iter().cloned());
            }
        }
        self.replace(replaced.len(), contents);
    }

    /// Replaces the last `depth` blocks, which must be above the genesis, by new blocks with these transactions.
    pub(in crate::devchain) fn replace(&mut self, depth: usize, contents: Vec<Vec<Tx>>) {
        let fork = self.tree.head().number() - depth as u64;
        let mut tip = self.tree.at(fork).cloned().expect("no deeper than the genesis");
        for txs in contents {
            tip = self.build(&tip, txs);
        }
        self.set_head(tip.hash());
    }

    /// Returns the visible canonical blocks that are not on the branch of `seen`, lowest first. After a rollback, returns
    /// the new head.
    pub(in crate::devchain) fn new_blocks(&self, seen: B256) -> Vec<Arc<Block>> {
        let head = self.visible_head();
        if head.hash() == seen {
            return Vec::new();
        }
        let parent = |block: &Arc<Block>| self.tree.get(block.header.parent_hash).cloned();
        let (mut old, mut at) = (self.tree.get(seen).cloned(), Some(Arc::clone(head)));
        let mut new = Vec::new();
        // Walks down both branches to their common ancestor.
        while let (Some(left), Some(block)) = (&old, &at) {
            if left.hash() == block.hash() {
                break;
            }
            if left.number() > block.number() {
                old = parent(left);
            } else {
                let below = parent(block);
                new.push(block.clone());
                at = below;
            }
        }
        if new.is_empty() {
            new.push(Arc::clone(head));
        }
        new.reverse();
        new
    }

    /// Builds the pending block on the visible head. It never enters the tree.
    pub(in crate::devchain) fn pending(&self) -> Block {
        let mark = Bytes::from_static(b"devchain/pending");
        self.rules.child(self.visible_head(), self.pool.transactions().to_vec(), mark)
    }

    fn remember(&mut self, tx: Tx) -> Tx {
        self.known.insert(*tx.tx_hash(), Arc::clone(&tx));
        tx
    }
}
