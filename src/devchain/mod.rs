//! A deterministic Ethereum node in memory, with true data.
//!
//! Blocks carry real signatures, hashes, roots and blooms, so whoever verifies them has something to
//! verify; what is toy is the execution, which has no EVM. The same [`Config`] and the same
//! sequence of commands give the same chain, byte for byte, on every machine.
//!
//! # Floors
//! Each line imports only from the lines below it.
//!
//! ```text
//! node        serves a chain: requests in, responses or faults out; sockets and subscriptions
//! control     DevChain: mine, fork, reorg, lag, prune, inspect
//! faults      faults and lies, and which call they strike
//! rpc         the methods, answered as geth would
//! chain       state: tree of blocks, mempool, filters, and the part that clients see
//! content     blocks: transactions, toy execution, header, roots, receipts, JSON
//! config      seed, chain id, genesis, distances
//! ```
//!
//! A test drives the chain through [`DevChain`] and compares what a client was told with the truth:
//!
//! ```text
//! let node = DevChain::new(Config::default());
//! node.mine_many(20, 3);
//! node.fail(Fault::Status(503)).on("eth_getBlockReceipts").times(2);
//! node.reorg(2, 3);
//! let truth = node.answer("eth_getBlockByNumber", ("latest", true));
//! ```
//!
//! It lives in memory; [`DevNode`] puts it on sockets, one of them for those who subscribe to `newHeads`. It reads no clock and never refuses a transaction for its nonce or its sender's
//! balance when a test places it in a block.

mod chain;
mod config;
mod content;
mod control;
mod faults;
mod node;
mod rpc;

#[cfg(test)]
mod tests;

pub use self::{
    chain::{
        error::RpcError,
        visibility::{Pruned, TagTarget},
    },
    config::Config,
    content::{accounts::Account, transactions::TransactionKind},
    control::{
        handle::{BlockRef, DevChain},
        record::RecordedCall,
    },
    faults::fault::{Fault, FaultBuilder, Lie},
    node::{serve::NodeResponse, socket::DevNode},
};
