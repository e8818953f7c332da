//! A deterministic Ethereum node in memory, with true data.
//!
//! Blocks carry real signatures, hashes, roots and blooms, so whoever verifies them has something to
//! verify; what is toy is the execution, which has no EVM. The same [`Config`] and the same
//! sequence of commands give the same chain, byte for byte, on every machine.
//!
//! ```text
//!  handle   DevChain: mine, fork, reorg, lag, prune …      serve    a request in, an answer or a fault out
//!     │                                                      │
//!     ▼                                                      ▼
//!  state    tree of blocks, mempool, what a client may see ◀── rpc  the methods
//!     │
//!     ▼
//!  block    header, roots, receipts ◀── execute (toy rules over world) ◀── transactions (signed)
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

mod accounts;
mod bend;
mod block;
mod config;
mod dice;
mod draft;
mod execute;
mod fault;
mod feed;
mod fork;
mod handle;
mod inspect;
mod lie;
mod mempool;
mod omit;
mod record;
mod render;
mod rpc;
mod serve;
mod socket;
mod state;
mod transactions;
mod tree;
mod view;
mod world;

#[cfg(test)]
mod tests;

pub use self::{
    accounts::Account,
    config::Config,
    fault::{Fault, FaultBuilder, Lie},
    handle::{BlockRef, DevChain},
    record::Recorded,
    rpc::RpcError,
    serve::Served,
    socket::DevNode,
    transactions::Kind,
    view::{Finality, Pruned},
};
