//! Calls of the clients.

use alloy_primitives::B256;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    method::{BLOCK_BY_HASH, BLOCK_BY_NUMBER, LOGS, RECEIPT, RECEIPTS, TRANSACTION},
    nodes::hex,
};

/// The block that a call names.
#[derive(Clone, Copy, Debug)]
pub enum At {
    Tag(&'static str),
    Number(u64),
    Hash(B256),
}

#[derive(Clone, Copy, Debug)]
pub enum Call {
    BlockNumber,
    /// A block, with whole transactions if the second field is set.
    Block(At, bool),
    Receipts(At),
    Transaction(B256),
    Receipt(B256),
    /// The logs from one number to another.
    Logs(u64, u64),
}

/// A call that a client sent.
#[derive(Debug)]
pub struct SentCall {
    pub call: Call,
    pub at: Instant,
    /// Highest finalized number that the proxy had shown before.
    pub finalized: u64,
}

// === impl At ===

impl At {
    fn param(self) -> String {
        match self {
            Self::Tag(tag) => tag.to_owned(),
            Self::Number(number) => hex(number),
            Self::Hash(hash) => hex(hash),
        }
    }
}

// === impl Call ===

impl Call {
    pub fn body(self) -> Value {
        let (method, params) = match self {
            Self::BlockNumber => ("eth_blockNumber", json!([])),
            Self::Block(At::Hash(hash), full) => (BLOCK_BY_HASH, json!([hash, full])),
            Self::Block(at, full) => (BLOCK_BY_NUMBER, json!([at.param(), full])),
            Self::Receipts(at) => (RECEIPTS, json!([at.param()])),
            Self::Transaction(hash) => (TRANSACTION, json!([hash])),
            Self::Receipt(hash) => (RECEIPT, json!([hash])),
            Self::Logs(from, to) => (LOGS, json!([{ "fromBlock": hex(from), "toBlock": hex(to) }])),
        };
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
    }

    /// Returns the tag that this call names.
    pub fn tag(self) -> Option<&'static str> {
        match self {
            Self::BlockNumber => Some("latest"),
            Self::Block(At::Tag(tag), _) | Self::Receipts(At::Tag(tag)) => Some(tag),
            _ => None,
        }
    }

    /// Returns number and hash of the block that this result names, as far as it names them.
    pub fn block_of(self, result: &Value) -> (Option<u64>, Option<B256>) {
        let one = if result.is_array() { &result[0] } else { result };
        match self {
            Self::BlockNumber => (number(one), None),
            Self::Block(..) => (number(&one["number"]), hash(&one["hash"])),
            _ => (number(&one["blockNumber"]), hash(&one["blockHash"])),
        }
    }
}

pub fn number(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok()
}

pub fn hash(value: &Value) -> Option<B256> {
    value.as_str()?.parse().ok()
}
