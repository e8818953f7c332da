//! The true content of the chain, with which tests compare answers. Faults do not apply here, and these calls are not
//! recorded.

use super::{
    handle::{BlockRef, DevChain},
    record::RecordedCall,
};
use crate::devchain::{
    chain::{error::RpcError, view::ClientView, visibility::BlockId},
    config::Config,
    content::{accounts::Account, render::json},
    rpc::methods::call,
};
use alloy_consensus::TxEnvelope;
use alloy_primitives::{B256, TxHash};
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

/// The true chain, independent of the view of clients.
impl DevChain {
    /// Returns the configuration of the chain.
    pub fn config(&self) -> Config {
        self.shared.state.lock().rules.config.clone()
    }

    /// Returns the accounts that sign the generated transactions. They hold ether.
    pub fn accounts(&self) -> Vec<Account> {
        self.shared.state.lock().rules.cast.senders.clone()
    }

    /// Returns the last block of the canonical chain, without lag.
    pub fn head(&self) -> BlockRef {
        BlockRef::from(self.shared.state.lock().tree.head().as_ref())
    }

    /// Returns the canonical block of a number.
    pub fn block_ref(&self, number: u64) -> Option<BlockRef> {
        self.shared.state.lock().tree.at(number).map(|block| BlockRef::from(block.as_ref()))
    }

    /// Returns the hash of the canonical block of a number.
    pub fn hash_at(&self, number: u64) -> Option<B256> {
        self.block_ref(number).map(|block| block.hash)
    }

    /// Returns whether a block is canonical.
    pub fn is_canonical(&self, hash: B256) -> bool {
        let state = self.shared.state.lock();
        state.tree.get(hash).is_some_and(|block| state.tree.is_canonical(block))
    }

    /// Returns the parent of any block, orphaned or not; the genesis has none.
    pub fn parent_of(&self, hash: B256) -> Option<BlockRef> {
        let state = self.shared.state.lock();
        let parent = state.tree.get(hash)?.header.parent_hash;
        state.tree.get(parent).map(|block| BlockRef::from(block.as_ref()))
    }

    /// Returns the hashes of the transactions of any block, in order; empty if there is no such block.
    pub fn transactions_of(&self, hash: B256) -> Vec<TxHash> {
        let state = self.shared.state.lock();
        let block = state.tree.get(hash);
        block.map_or_else(Vec::new, |block| block.transactions.iter().map(|tx| *tx.tx_hash()).collect())
    }

    /// Returns any transaction that was generated, submitted or put into a block.
    pub fn transaction(&self, hash: TxHash) -> Option<TxEnvelope> {
        self.shared.state.lock().transaction(hash).map(|tx| tx.inner().clone())
    }

    /// Returns the location of a transaction on the canonical chain: the block's hash and the index in it.
    pub fn location(&self, tx: TxHash) -> Option<(B256, usize)> {
        self.shared.state.lock().tree.find(tx).map(|(block, index)| (block.hash(), index))
    }

    /// Returns the hashes of the transactions in the mempool.
    pub fn mempool(&self) -> Vec<TxHash> {
        self.shared.state.lock().pool.transactions().iter().map(|tx| *tx.tx_hash()).collect()
    }

    /// Returns the number that `finalized` stands for in the view of clients, if any.
    pub fn finalized(&self) -> Option<u64> {
        let state = self.shared.state.lock();
        ClientView::new(&state)
            .final_number(state.visibility.finalized, state.rules.config.finalized_distance)
    }

    /// Returns the number that `safe` stands for in the view of clients, if any.
    pub fn safe(&self) -> Option<u64> {
        let state = self.shared.state.lock();
        ClientView::new(&state).final_number(state.visibility.safe, state.rules.config.safe_distance)
    }

    /// Returns any block as JSON, with whole transactions or with their hashes.
    pub fn block_json(&self, hash: B256, full: bool) -> Option<Bytes> {
        let block = self.shared.state.lock().tree.get(hash).cloned()?;
        Some(if full { block.full_json() } else { block.hashes_json() })
    }

    /// Returns the receipts of any block as JSON.
    pub fn receipts_json(&self, hash: B256) -> Option<Bytes> {
        let block = self.shared.state.lock().tree.get(hash).cloned()?;
        Some(block.receipts_json())
    }

    /// Returns a transaction of any block as JSON.
    pub fn transaction_json(&self, block: B256, index: usize) -> Option<Bytes> {
        let block = self.shared.state.lock().tree.get(block).cloned()?;
        block.transaction_json(index)
    }

    /// Returns a receipt of any block as JSON.
    pub fn receipt_json(&self, block: B256, index: usize) -> Option<Bytes> {
        let block = self.shared.state.lock().tree.get(block).cloned()?;
        block.receipt_json(index)
    }
}

/// The node as clients see it.
impl DevChain {
    /// Returns the node's answer to a call without faults. Lag, finality and pruning apply.
    ///
    /// The params are any value that serialises to a list: `("latest", true)`, `json!(["0x1", false])`, `()`.
    ///
    /// # Errors
    /// The error object that the node returns.
    pub fn answer(&self, method: &str, params: impl Serialize) -> Result<Bytes, RpcError> {
        let params = RawValue::from_string(json(&params)).map_err(|_| RpcError::parse())?;
        call(&mut self.shared.state.lock(), method, Some(&params))
    }

    /// Returns the hash of the block that `finalized` stands for in the view of clients.
    pub fn finalized_hash(&self) -> Option<B256> {
        ClientView::new(&self.shared.state.lock())
            .block(BlockId::Finalized)
            .ok()
            .flatten()
            .map(|block| block.hash())
    }
}

/// The calls received through [`DevChain::serve`].
impl DevChain {
    /// Returns the newest [`Config::keep_calls`] calls, oldest first.
    pub fn calls(&self) -> Vec<RecordedCall> {
        self.shared.record.lock().calls()
    }

    /// Returns the number of calls of a method.
    pub fn count(&self, method: &str) -> u64 {
        self.shared.record.lock().count(method)
    }

    /// Returns the number of calls.
    pub fn calls_total(&self) -> u64 {
        self.shared.record.lock().calls_total()
    }

    /// Returns the number of HTTP requests, malformed ones included.
    pub fn requests_total(&self) -> u64 {
        self.shared.record.lock().requests_total()
    }

    /// Returns the number of answers that a [`Lie`](crate::devchain::Lie) changed.
    pub fn lies_total(&self) -> u64 {
        self.shared.record.lock().lies_total()
    }

    /// Returns the highest number of HTTP requests in progress at a time. A request that hangs is no longer counted
    /// as in progress.
    pub fn most_at_once(&self) -> usize {
        self.shared.record.lock().most_at_once()
    }

    /// Forgets all calls and counts.
    pub fn clear_calls(&self) {
        self.shared.record.lock().clear();
    }
}
