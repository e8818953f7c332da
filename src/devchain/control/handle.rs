//! The handle with which tests and tools drive the chain.

use super::{
    record::{CallLog, RecordedCall},
    serve::{NodeResponse, Shared},
};
use crate::devchain::{
    chain::{
        error::RpcError,
        state::State,
        view::ClientView,
        visibility::{BlockId, Pruned, TagTarget},
    },
    config::Config,
    content::{accounts::Account, block::Block, render::json, transactions::TransactionKind},
    faults::fault::{Fault, FaultBuilder},
    rpc::methods::call,
};
use alloy_consensus::TxEnvelope;
use alloy_primitives::{B256, TxHash};
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::watch;

/// A block's hash and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockRef {
    /// Hash of the block.
    pub hash: B256,
    /// Number of the block.
    pub number: u64,
}

/// A development chain. Clones are handles to the same chain.
///
/// Commands take effect at once, in order. Only [`DevChain::serve`] waits, if a fault requires a wait.
#[derive(Clone)]
pub struct DevChain {
    pub(in crate::devchain) shared: Arc<Shared>,
    head: Arc<watch::Sender<BlockRef>>,
}

// === impl BlockRef ===

impl From<&Block> for BlockRef {
    fn from(block: &Block) -> Self {
        Self { hash: block.hash(), number: block.number() }
    }
}

// === impl DevChain ===

/// Prints only the head, because a whole chain would hide the message of a failed assertion.
impl fmt::Debug for DevChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevChain").field("head", &*self.head.borrow()).finish_non_exhaustive()
    }
}

/// Creation and mining.
impl DevChain {
    /// Creates a chain that has only a genesis.
    pub fn new(config: Config) -> Self {
        Self::of(State::new(config))
    }

    /// Copies the chain as it is now, without its faults and record of calls. The copies share their blocks, so this is
    /// much cheaper than to build an equal chain.
    pub fn copy(&self) -> Self {
        Self::of(self.shared.state.lock().clone())
    }

    fn of(state: State) -> Self {
        let record = Mutex::new(CallLog::new(state.rules.config.keep_calls));
        let head = watch::Sender::new(BlockRef::from(state.tree.head().as_ref()));
        let shared = Shared { state: Mutex::new(state), faults: Mutex::default(), record };
        Self { shared: Arc::new(shared), head: Arc::new(head) }
    }

    /// Starts over with another genesis. Resets mempool, lag, finality and pruning; keeps faults and the record of
    /// calls.
    pub fn restart(&self, config: Config) {
        let mut state = self.shared.state.lock();
        *state = State::new(config);
        self.announce(&state);
    }

    /// Mines a block with the transactions of the mempool, followed by `txs` generated transactions of all kinds in
    /// turn.
    pub fn mine(&self, txs: usize) -> BlockRef {
        let mut state = self.shared.state.lock();
        state.mine(txs);
        self.announce(&state)
    }

    /// Mines `blocks` blocks; see [`DevChain::mine`].
    pub fn mine_many(&self, blocks: usize, txs: usize) -> BlockRef {
        (0..blocks).fold(self.head(), |_, _| self.mine(txs))
    }

    /// Mines a block every `period`, for ever, each with `txs()` generated transactions.
    pub async fn mine_every(self, period: Duration, mut txs: impl FnMut() -> usize) {
        loop {
            tokio::time::sleep(period).await;
            self.mine(txs());
        }
    }

    /// Generates `count` transactions that could be mined next, without submitting them.
    ///
    /// They follow the head and the mempool. A second call before the next block generates different transactions,
    /// which may use the same nonces.
    pub fn generate(&self, count: usize) -> Vec<TxEnvelope> {
        let mut state = self.shared.state.lock();
        let head = Arc::clone(state.tree.head());
        let before = state.pool.transactions().to_vec();
        state.generate(&head, &before, count).iter().map(|tx| tx.inner().clone()).collect()
    }

    /// Generates one transaction of a kind; see [`DevChain::generate`].
    pub fn generate_kind(&self, kind: TransactionKind) -> TxEnvelope {
        self.shared.state.lock().generate_kind(kind).inner().clone()
    }

    /// Puts a transaction into the mempool, with the checks of `eth_sendRawTransaction`.
    ///
    /// # Errors
    /// The error that `eth_sendRawTransaction` would return.
    pub fn submit(&self, tx: TxEnvelope) -> Result<TxHash, RpcError> {
        Ok(self.shared.state.lock().submit(tx)?)
    }

    /// Replaces the content of the mempool, unchecked.
    ///
    /// # Panics
    /// If the signature of a transaction recovers to no address.
    pub fn set_mempool(&self, txs: Vec<TxEnvelope>) {
        let mut state = self.shared.state.lock();
        let txs = state.admit_all(txs);
        state.pool.set(txs);
    }
}

/// The view of clients.
impl DevChain {
    /// Answers as if the head were `blocks` lower. Clients cannot see higher blocks in any way. A lag of 0 makes all
    /// blocks visible again.
    pub fn lag(&self, blocks: u64) {
        self.shared.state.lock().visibility.lag = blocks;
    }

    /// Sets the block that `finalized` stands for: a number, `None` for the configured distance, or a [`TagTarget`].
    pub fn set_finalized(&self, finality: impl Into<TagTarget>) {
        self.shared.state.lock().visibility.finalized = finality.into();
    }

    /// Sets the block that `safe` stands for; see [`DevChain::set_finalized`].
    pub fn set_safe(&self, finality: impl Into<TagTarget>) {
        self.shared.state.lock().visibility.safe = finality.into();
    }

    /// Prunes the blocks below `number` except the genesis. 0 restores them.
    pub fn prune_below(&self, number: u64, pruned: Pruned) {
        self.shared.state.lock().visibility.pruned = Some((number, pruned));
    }
}

/// Faults.
impl DevChain {
    /// Prepares a fault:
    ///
    /// ```text
    /// node.fail(Fault::Hang).on("eth_getBlock*").times(3);
    /// node.fail(Lie::WrongHash).once();
    /// ```
    pub fn fail(&self, fault: impl Into<Fault>) -> FaultBuilder<'_> {
        FaultBuilder::new(&self.shared.faults, fault.into())
    }

    /// Ends all faults.
    pub fn clear_faults(&self) {
        self.shared.faults.lock().clear();
    }
}

/// Waiting.
impl DevChain {
    /// Waits until the head changes, and returns it.
    pub async fn mined(&self) -> BlockRef {
        let mut heads = self.subscribe();
        // The sender lives as long as `self`, so the channel cannot close while this waits.
        let _ = heads.changed().await;
        *heads.borrow()
    }

    /// Watches the true head, without lag.
    pub fn subscribe(&self) -> watch::Receiver<BlockRef> {
        self.head.subscribe()
    }

    /// Sends the head to the watchers, under the lock of the state so that heads arrive in order.
    fn announce(&self, state: &State) -> BlockRef {
        let head = BlockRef::from(state.tree.head().as_ref());
        self.head.send_if_modified(|seen| std::mem::replace(seen, head) != head);
        head
    }
}

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
        let txs = state.admit_all(txs);
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
        state.reorg(depth, length);
        self.announce(&state)
    }

    /// Replaces the last `depth` blocks by new blocks with exactly these transactions. The new blocks can leave out
    /// transactions, or contain them at other heights.
    ///
    /// # Panics
    /// If the signature of a transaction recovers to no address.
    pub fn reorg_with(&self, depth: u64, contents: Vec<Vec<TxEnvelope>>) -> BlockRef {
        let mut state = self.shared.state.lock();
        let contents = contents.into_iter().map(|txs| state.admit_all(txs)).collect();
        let depth = state.last_blocks(depth).len();
        state.replace(depth, contents);
        self.announce(&state)
    }

    /// Removes the last `depth` blocks, down to the genesis at most.
    pub fn rollback(&self, depth: u64) -> BlockRef {
        self.reorg(depth, 0)
    }
}

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

/// The node as a server.
impl DevChain {
    /// Answers an HTTP request with this body: records its calls, applies faults, and waits if a fault requires a
    /// wait.
    ///
    /// Accepts any bytes. Answers malformed requests as geth does.
    pub async fn serve(&self, body: Bytes) -> NodeResponse {
        self.shared.serve(body).await
    }

    /// Returns the visible canonical blocks that are not on the branch of `seen`, lowest first. After a rollback,
    /// returns the new head.
    pub(in crate::devchain) fn new_blocks(&self, seen: BlockRef) -> Vec<Arc<Block>> {
        self.shared.state.lock().new_blocks(seen.hash)
    }
}
