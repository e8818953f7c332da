//! A deterministic Ethereum node in memory, with true data.
//!
//! Blocks carry real signatures, hashes, roots and blooms, so a verifier can check all of them. Only the
//! execution is a toy: there is no EVM. The same [`Config`] and the same sequence of commands give the same
//! chain, byte for byte, on every machine.
//!
//! # Floors
//! Each line imports only from the lines below it.
//!
//! ```text
//! node        serves a chain on sockets, with subscriptions
//! control     DevChain: mine, fork, reorg, lag, prune, inspect; requests in, responses or faults out
//! faults      faults and lies, and which call they strike
//! rpc         the methods, answered as geth would
//! chain       state: tree of blocks, mempool, filters, and the part that clients see
//! content     blocks: transactions, toy execution, header, roots, receipts, JSON
//! config      seed, chain id, genesis, distances
//! ```
//!
//! A test drives the chain through [`DevChain`] and compares the answers to a client with the truth:
//!
//! ```text
//! let node = DevChain::new(Config::default());
//! node.mine_many(20, 3);
//! node.fail(Fault::Status(503)).on("eth_getBlockReceipts").times(2);
//! node.reorg(2, 3);
//! let truth = node.answer("eth_getBlockByNumber", ("latest", true));
//! ```
//!
//! The chain lives in memory; [`DevNode`] serves it on two sockets, one for HTTP and one for WebSockets with
//! `newHeads` subscriptions. The chain reads no clock, and accepts any transaction that a test puts into a block,
//! even with a wrong nonce or without the balance to pay for it.

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
        serve::NodeResponse,
    },
    faults::fault::{Fault, FaultBuilder, Lie},
    node::socket::DevNode,
};
