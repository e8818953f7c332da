//! The handle with which tests and tools drive the chain.

use super::record::CallLog;
use crate::devchain::{
    chain::{
        error::RpcError,
        state::State,
        visibility::{Pruned, TagTarget},
    },
    config::Config,
    content::{
        block::Block,
        transactions::{TransactionKind, Tx},
    },
    faults::fault::{Fault, FaultBuilder, Faults},
};
use alloy_consensus::TxEnvelope;
use alloy_primitives::{B256, TxHash};
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
}

pub(in crate::devchain) struct Shared {
    pub(in crate::devchain) state: Mutex<State>,
    pub(in crate::devchain) faults: Mutex<Faults>,
    pub(in crate::devchain) record: Mutex<CallLog>,
    head: watch::Sender<BlockRef>,
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
        f.debug_struct("DevChain").field("head", &*self.shared.head.borrow()).finish_non_exhaustive()
    }
}

/// Creation and mining.
impl DevChain {
    /// Creates a chain that has only a genesis.
    pub fn new(config: Config) -> Self {
        let record = Mutex::new(CallLog::new(config.keep_calls));
        let state = State::new(config);
        let head = watch::Sender::new(BlockRef::from(state.tree.head().as_ref()));
        let shared = Shared { state: Mutex::new(state), faults: Mutex::default(), record, head };
        Self { shared: Arc::new(shared) }
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
        let txs = admit(&mut state, txs);
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
        self.shared.head.subscribe()
    }

    /// Sends the head to the watchers, under the lock of the state so that heads arrive in order.
    pub(in crate::devchain) fn announce(&self, state: &State) -> BlockRef {
        let head = BlockRef::from(state.tree.head().as_ref());
        self.shared.head.send_if_modified(|seen| std::mem::replace(seen, head) != head);
        head
    }
}

/// Records a test's transactions, with the senders recovered from their signatures.
pub(in crate::devchain) fn admit(state: &mut State, txs: Vec<TxEnvelope>) -> Vec<Tx> {
    let admit = |tx| state.admit(tx).expect("the transaction is signed");
    txs.into_iter().map(admit).collect()
}
