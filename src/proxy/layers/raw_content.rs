//! The content of raw answers: which block it names, its encoding, and geth's answers if there is none.

use alloy_primitives::hex;
use bytes::Bytes;

use crate::{
    eth::{At, Block, BlockWithHashes, Home, Query, RawForm, SingleTransaction},
    jsonrpc::Answer,
    proxy::call::{read_call::ReadCall, slice::NULL},
    verify::{Failure, prove::raw},
};

/// Codes of nodes for a method that they do not have, or do not serve under this plan.
const LACKING: [i64; 2] = [-32601, -32004];

/// The content that a call names.
pub(super) enum Named {
    /// There is none, or it is pending.
    Absent,
    /// The node's error.
    Refused(Answer),
    Content {
        json: Bytes,
        /// The block that the content names.
        home: Option<Home>,
    },
}

/// The content of an answer that is encoded on the proof threads.
pub(super) enum WholeContent {
    Block { block: Bytes, uncles: Vec<Bytes> },
    Receipts { receipts: Bytes, block: Bytes },
}

// === impl Named ===

impl Named {
    pub(super) fn of(answer: &Answer, form: RawForm, must_prove: bool) -> Self {
        let Answer::Result(json) = answer else { return Self::Refused(answer.clone()) };
        if *json == NULL {
            return Self::Absent;
        }
        let home = match form {
            RawForm::JsonHeader | RawForm::Header => {
                BlockWithHashes::read(json.clone()).ok().map(|block| block.header().home())
            }
            RawForm::Block | RawForm::Receipts => {
                Block::read(json.clone()).ok().map(|(block, _)| block.header().home())
            }
            RawForm::Transaction => {
                let transaction = SingleTransaction::read(json.clone()).ok();
                let place = transaction.as_ref().and_then(SingleTransaction::place);
                if transaction.is_some() && place.is_none() && !must_prove {
                    return Self::Absent;
                }
                place.map(|place| place.home())
            }
        };
        Self::Content { json: json.clone(), home }
    }

    /// Returns the block that the content names.
    pub(super) fn home(&self) -> Option<Home> {
        match self {
            Self::Content { home, .. } => *home,
            Self::Absent | Self::Refused(_) => None,
        }
    }

    /// Returns whether this is the content that the query names. A node may answer with other content, which proves
    /// to be right, too.
    pub(super) fn fits(&self, query: Query) -> bool {
        let Self::Content { json, home } = self else { return false };
        let transaction = || SingleTransaction::read(json.clone()).ok();
        let is_at_index = |index| {
            transaction()
                .and_then(|transaction| transaction.place())
                .is_some_and(|place| place.index == index)
        };
        let is_there = match query.at {
            At::Hash(hash) => home.is_some_and(|home| home.block == hash),
            At::Number(number) => home.is_some_and(|home| home.number == number),
            At::Tag(_) => true,
            At::Tx(hash) => transaction().is_some_and(|transaction| transaction.hash() == hash),
        };
        is_there && query.index.is_none_or(is_at_index)
    }
}

// === impl WholeContent ===

impl WholeContent {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Block { block, .. } => block.len(),
            Self::Receipts { receipts, block } => receipts.len() + block.len(),
        }
    }

    pub(super) fn encode(&self) -> Result<Bytes, Failure> {
        match self {
            Self::Block { block, uncles } => raw::block(block, uncles).map(|encoded| quoted(&encoded)),
            Self::Receipts { receipts, block } => {
                let encoded = raw::receipts(receipts, block)?;
                let texts: Vec<_> = encoded.iter().map(hex::encode_prefixed).collect();
                Ok(serde_json::Value::from(texts).to_string().into())
            }
        }
    }
}

/// Returns bytes as a JSON string.
pub(super) fn quoted(bytes: &[u8]) -> Bytes {
    format!("\"{}\"", hex::encode_prefixed(bytes)).into()
}

/// Returns whether an answer says that the node does not have the method.
pub(super) fn is_lacking(answer: &Answer) -> bool {
    answer.error_code().is_some_and(|code| LACKING.contains(&code))
}

/// Returns whether an answer says that the content does not exist.
pub(super) fn is_nothing(call: &ReadCall, answer: &Answer) -> bool {
    *answer == unknown(call) || answer.is_null()
}

/// Returns geth's answer for content that does not exist.
pub(super) fn unknown(call: &ReadCall) -> Answer {
    match call.method.as_str() {
        "debug_getRawBlock" => Answer::Error(Bytes::from_static(br#"{"code":-32000,"message":"not found"}"#)),
        "debug_getRawReceipts" | "eth_getHeaderByHash" | "eth_getHeaderByNumber" => Answer::Result(NULL),
        _ => Answer::Result(Bytes::from_static(b"\"0x\"")),
    }
}
