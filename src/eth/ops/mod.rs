//! One file an operation: what its parameters mean, and how they are written for a node.
//!
//! Adding an operation is a file here and a line in [`Operation`](super::Operation).

mod block_by_hash;
mod block_by_number;
mod receipt;
mod transaction_by_block_hash;
mod transaction_by_block_number;
mod transaction_by_hash;

pub use self::{
    block_by_hash::BlockByHash, block_by_number::BlockByNumber, receipt::Receipt,
    transaction_by_block_hash::TransactionByBlockHash, transaction_by_block_number::TransactionByBlockNumber,
    transaction_by_hash::TransactionByHash,
};

/// What the parameters are called in messages, and what they look like.
const BLOCK_HASH: (&str, &str) = ("block_hash", HASH);
const TX_HASH: (&str, &str) = ("tx_hash", HASH);
const HASH: &str = "a string of 0x and 64 hex digits";
const NUMBER_OR_TAG: &str =
    "a string: a hex number such as \"0x1b4\", or latest, safe, finalized, earliest or pending";
const FULL: &str = "return_full_txns";
const INDEX: &str = "index";
