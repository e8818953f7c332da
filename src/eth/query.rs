//! A question about chain content.
//!
//! [`Query::METHODS`] are parsed strictly: invalid parameters are an error. The proxy returns this error under `strict`
//! and where clients get proved data only; otherwise it forwards the call. Other methods are parsed leniently: a call
//! with parameters in an unknown form is not a query, and goes to the upstream as it is.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::Deserialize;

use super::{
    BlockHash, BlockNumber, ParamError, Tag, TxHash, TxPosition,
    block_id::NumberOrTagError,
    params,
    quantity::{self, QuantityError},
};
use crate::jsonrpc::{JsonKind, Params, unescape};

const BLOCK_BY_HASH: &str = "eth_getBlockByHash";
const BLOCK_BY_NUMBER: &str = "eth_getBlockByNumber";
const TRANSACTION_BY_HASH: &str = "eth_getTransactionByHash";
const TRANSACTION_BY_BLOCK_HASH: &str = "eth_getTransactionByBlockHashAndIndex";
const TRANSACTION_BY_BLOCK_NUMBER: &str = "eth_getTransactionByBlockNumberAndIndex";
const RECEIPT: &str = "eth_getTransactionReceipt";
const RECEIPTS: &str = "eth_getBlockReceipts";
const TRANSACTION_COUNT_BY_HASH: &str = "eth_getBlockTransactionCountByHash";
const TRANSACTION_COUNT_BY_NUMBER: &str = "eth_getBlockTransactionCountByNumber";
const UNCLE_COUNT_BY_HASH: &str = "eth_getUncleCountByBlockHash";
const UNCLE_COUNT_BY_NUMBER: &str = "eth_getUncleCountByBlockNumber";
const NUMBER: &str = "eth_blockNumber";

/// Expected forms of parameters, for error messages.
const HASH: &str = "a string of 0x and 64 hex digits";
const NUMBER_OR_TAG: &str =
    "a string: a hex number such as \"0x1b4\", or latest, safe, finalized, earliest or pending";

/// A part of the chain's content. The cache stores the first five parts, and its labels have the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// A block with full transactions.
    Block,
    /// A block with the hashes of its transactions.
    BlockWithHashes,
    /// All receipts of a block.
    Receipts,
    /// A transaction.
    Transaction,
    /// The receipt of a transaction.
    Receipt,
    /// Number of transactions of a block.
    TransactionCount,
    /// Number of uncles of a block.
    UncleCount,
    /// Number of a block.
    Number,
}

/// The block or transaction that a query names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// The block with this hash, canonical or not.
    Hash(BlockHash),
    /// The canonical block at this number.
    Number(BlockNumber),
    /// The block that a tag currently resolves to.
    Tag(Tag),
    /// The transaction with this hash.
    Tx(TxHash),
}

/// A question about chain content. Every cacheable call and every fetch is a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Query {
    /// The requested part.
    pub part: Part,
    /// The block or transaction that the part belongs to.
    pub at: At,
    /// Position of the transaction in its block, if the query names the transaction by position.
    pub index: Option<TxPosition>,
}

/// A block as a parameter in the form of EIP-1898.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BlockObject<'a> {
    #[serde(borrow)]
    block_hash: Option<Cow<'a, str>>,
    #[serde(borrow)]
    block_number: Option<Cow<'a, str>>,
    #[serde(default)]
    require_canonical: bool,
}

// === impl Part ===

impl Part {
    /// Number of parts.
    pub const COUNT: usize = Self::Number as usize + 1;

    /// Returns the part that contains this part: the full block, or all receipts of a block.
    pub fn whole(self) -> Self {
        match self {
            Self::Receipts | Self::Receipt => Self::Receipts,
            _ => Self::Block,
        }
    }
}

// === impl At ===

impl At {
    /// Returns the block or transaction as a request parameter.
    fn param(self) -> String {
        match self {
            Self::Hash(hash) => hash.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Tag(tag) => tag.as_str().to_owned(),
            Self::Tx(hash) => hash.to_string(),
        }
    }
}

/// Parses a number or a tag.
impl FromStr for At {
    type Err = NumberOrTagError;

    fn from_str(text: &str) -> Result<Self, NumberOrTagError> {
        if let Some(tag) = Tag::ALL.into_iter().find(|tag| tag.as_str() == text) {
            return Ok(Self::Tag(tag));
        }
        match quantity::parse(text) {
            Ok(number) => Ok(Self::Number(BlockNumber(number))),
            Err(QuantityError::NoPrefix) => Err(NumberOrTagError::UnknownTag),
            Err(error) => Err(NumberOrTagError::Number(error)),
        }
    }
}

impl From<BlockHash> for At {
    fn from(hash: BlockHash) -> Self {
        Self::Hash(hash)
    }
}

impl From<BlockNumber> for At {
    fn from(number: BlockNumber) -> Self {
        Self::Number(number)
    }
}

impl From<Tag> for At {
    fn from(tag: Tag) -> Self {
        Self::Tag(tag)
    }
}

impl From<TxHash> for At {
    fn from(hash: TxHash) -> Self {
        Self::Tx(hash)
    }
}

/// Formats the value for log lines and error messages.
impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hash(hash) => write!(f, "block {hash}"),
            Self::Number(number) => write!(f, "block {}", number.0),
            Self::Tag(_) => f.write_str("tagged block"),
            Self::Tx(hash) => write!(f, "{hash}"),
        }
    }
}

// === impl Query ===

impl Query {
    /// Methods whose parameters are parsed strictly.
    pub const METHODS: &[&str] = &[
        BLOCK_BY_HASH,
        BLOCK_BY_NUMBER,
        TRANSACTION_BY_HASH,
        TRANSACTION_BY_BLOCK_HASH,
        TRANSACTION_BY_BLOCK_NUMBER,
        RECEIPT,
    ];

    /// Returns a query for a part of a block, or for the transaction or receipt with a given transaction hash.
    pub fn new(part: Part, at: impl Into<At>) -> Self {
        Self { part, at: at.into(), index: None }
    }

    /// Returns a query for the transaction at a position of a block.
    pub fn transaction_in(block: impl Into<At>, index: TxPosition) -> Self {
        Self { part: Part::Transaction, at: block.into(), index: Some(index) }
    }

    /// Returns the query for another part of the same block.
    pub fn with_part(self, part: Part) -> Self {
        Self { part, ..self }
    }

    /// Returns the query for the same part of `block`.
    pub fn pinned(self, block: impl Into<At>) -> Self {
        Self { at: block.into(), ..self }
    }

    /// Returns whether the query names its block by hash, so that the answer does not depend on the canonical chain.
    pub fn names_hash(self) -> bool {
        matches!(self.at, At::Hash(_))
    }

    /// Returns the number by which the query names its block.
    pub fn number(self) -> Option<BlockNumber> {
        match self.at {
            At::Number(number) => Some(number),
            At::Hash(_) | At::Tag(_) | At::Tx(_) => None,
        }
    }

    /// Returns the tag by which the query names its block.
    pub fn tag(self) -> Option<Tag> {
        match self.at {
            At::Tag(tag) => Some(tag),
            At::Hash(_) | At::Number(_) | At::Tx(_) => None,
        }
    }

    /// Returns the hash of the transaction that the query names.
    pub fn transaction(self) -> Option<TxHash> {
        match self.at {
            At::Tx(hash) => Some(hash),
            At::Hash(_) | At::Number(_) | At::Tag(_) => None,
        }
    }

    /// Returns whether the query asks for a count of a block other than the pending block. Only the block itself can
    /// prove a count.
    pub fn is_count(self) -> bool {
        matches!(self.part, Part::TransactionCount | Part::UncleCount) && self.at != At::Tag(Tag::Pending)
    }

    /// Returns whether an answer to this query can be verified. Counts, block numbers and the pending block cannot.
    pub fn is_verifiable(self) -> bool {
        !matches!(self.part, Part::TransactionCount | Part::UncleCount | Part::Number)
            && self.at != At::Tag(Tag::Pending)
    }

    /// Returns the query for the full block or the receipts list that contains the answer; `None` for a tag, because
    /// the block that a tag resolves to changes. A query by transaction hash names no block, so it stays the same.
    pub fn whole(self) -> Option<Self> {
        match self.at {
            At::Tag(_) => None,
            At::Tx(_) => Some(self),
            At::Hash(_) | At::Number(_) => Some(Self::new(self.part.whole(), self.at)),
        }
    }

    /// Returns whether the cache can answer this method, if its parameters have a known form.
    pub fn is_method(method: &str) -> bool {
        const LENIENT: [&str; 6] = [
            RECEIPTS,
            TRANSACTION_COUNT_BY_HASH,
            TRANSACTION_COUNT_BY_NUMBER,
            UNCLE_COUNT_BY_HASH,
            UNCLE_COUNT_BY_NUMBER,
            NUMBER,
        ];
        Self::METHODS.contains(&method) || LENIENT.contains(&method)
    }

    /// Parses a call; `None` if the method is not that of a query, or if a leniently parsed method has parameters in an
    /// unknown form.
    pub fn read(method: &str, params: &Params) -> Option<Result<Self, ParamError>> {
        let strictly = Self::read_strictly(method, params).transpose();
        strictly.or_else(|| Self::read_leniently(method, params).map(Ok))
    }

    /// Returns whether the parameters of this query demand that its block is canonical. Only an object with
    /// a block hash can.
    pub(crate) fn requires_canonical(self, params: &Params) -> bool {
        self.part == Part::Receipts
            && self.names_hash()
            && params.elements().next().is_some_and(requires_canonical)
    }

    fn read_strictly(method: &str, params: &Params) -> Result<Option<Self>, ParamError> {
        let of_transaction = if method == RECEIPT { Part::Receipt } else { Part::Transaction };
        if let TRANSACTION_BY_HASH | RECEIPT = method
            && let Some(hash) = params::single_hash(params)
        {
            return Ok(Some(Self::new(of_transaction, hash)));
        }
        let mut reader = params::read(params);
        let (at, part) = match method {
            TRANSACTION_BY_HASH | RECEIPT => (At::Tx(reader.string("tx_hash", HASH)?), Some(of_transaction)),
            BLOCK_BY_HASH => (At::Hash(reader.string("block_hash", HASH)?), None),
            BLOCK_BY_NUMBER => (reader.string("block_number", NUMBER_OR_TAG)?, None),
            TRANSACTION_BY_BLOCK_HASH => {
                (At::Hash(reader.string("block_hash", HASH)?), Some(Part::Transaction))
            }
            TRANSACTION_BY_BLOCK_NUMBER => {
                (reader.string("block_tag", NUMBER_OR_TAG)?, Some(Part::Transaction))
            }
            _ => return Ok(None),
        };
        let query = match (part, at) {
            (Some(part), At::Tx(_)) => Self::new(part, at),
            (Some(part), _) => Self { part, at, index: Some(reader.position("index")?) },
            (None, _) if reader.boolean("return_full_txns")? => Self::new(Part::Block, at),
            (None, _) => Self::new(Part::BlockWithHashes, at),
        };
        reader.end()?;
        Ok(Some(query))
    }

    fn read_leniently(method: &str, params: &Params) -> Option<Self> {
        let (part, read): (_, fn(&str) -> Option<At>) = match method {
            NUMBER => {
                let is_empty = params.elements().next().is_none();
                return is_empty.then(|| Self::new(Part::Number, Tag::Latest));
            }
            RECEIPTS => (Part::Receipts, read_block),
            TRANSACTION_COUNT_BY_HASH => (Part::TransactionCount, read_hash),
            TRANSACTION_COUNT_BY_NUMBER => (Part::TransactionCount, read_number_or_tag),
            UNCLE_COUNT_BY_HASH => (Part::UncleCount, read_hash),
            UNCLE_COUNT_BY_NUMBER => (Part::UncleCount, read_number_or_tag),
            _ => return None,
        };
        let mut elements = params.elements();
        match (elements.next(), elements.next()) {
            (Some(block), None) => Some(Self::new(part, read(block)?)),
            _ => None,
        }
    }

    /// Returns the JSON-RPC method of the query.
    pub fn method(self) -> &'static str {
        let by_hash = self.names_hash();
        match self.part {
            Part::Block | Part::BlockWithHashes if by_hash => BLOCK_BY_HASH,
            Part::Block | Part::BlockWithHashes => BLOCK_BY_NUMBER,
            Part::Transaction if self.transaction().is_some() => TRANSACTION_BY_HASH,
            Part::Transaction if by_hash => TRANSACTION_BY_BLOCK_HASH,
            Part::Transaction => TRANSACTION_BY_BLOCK_NUMBER,
            Part::Receipts => RECEIPTS,
            Part::Receipt => RECEIPT,
            Part::TransactionCount if by_hash => TRANSACTION_COUNT_BY_HASH,
            Part::TransactionCount => TRANSACTION_COUNT_BY_NUMBER,
            Part::UncleCount if by_hash => UNCLE_COUNT_BY_HASH,
            Part::UncleCount => UNCLE_COUNT_BY_NUMBER,
            Part::Number => NUMBER,
        }
    }

    /// Returns the parameters of the query in canonical form, so that equal queries have equal bytes.
    pub fn params(self) -> Params {
        let at = self.at.param();
        Params::from_own(match (self.part, self.index) {
            (Part::Number, _) => "[]".to_owned(),
            (Part::Block, _) => format!(r#"["{at}",true]"#),
            (Part::BlockWithHashes, _) => format!(r#"["{at}",false]"#),
            // Nodes require the index in hex.
            (_, Some(index)) => format!(r#"["{at}","{index}"]"#),
            (_, None) => format!(r#"["{at}"]"#),
        })
    }
}

/// Formats the value for log lines and error messages.
impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match (self.part, self.index) {
            (Part::Block, _) => write!(f, "{at}"),
            (Part::BlockWithHashes, _) => write!(f, "{at} with transaction hashes"),
            (Part::Receipts, _) => write!(f, "receipts of {at}"),
            (Part::Transaction, Some(index)) => write!(f, "transaction {} of {at}", index.0),
            (Part::Transaction, None) => write!(f, "transaction {at}"),
            (Part::Receipt, _) => write!(f, "receipt of {at}"),
            (Part::TransactionCount, _) => write!(f, "transaction count of {at}"),
            (Part::UncleCount, _) => write!(f, "uncle count of {at}"),
            (Part::Number, _) => write!(f, "number of {at}"),
        }
    }
}

pub(super) fn read_hash(raw: &str) -> Option<At> {
    unquote(raw)?.parse().ok().map(At::Hash)
}

pub(super) fn read_number_or_tag(raw: &str) -> Option<At> {
    unquote(raw)?.parse().ok()
}

/// Parses a block in every form that nodes accept.
pub(super) fn read_block(raw: &str) -> Option<At> {
    if JsonKind::of(raw.as_bytes()) == JsonKind::Object {
        return match serde_json::from_str(raw).ok()? {
            BlockObject { block_hash: Some(hash), block_number: None, .. } => hash.parse().ok().map(At::Hash),
            BlockObject { block_hash: None, block_number: Some(number), .. } => number.parse().ok(),
            BlockObject { .. } => None,
        };
    }
    read_hash(raw).or_else(|| read_number_or_tag(raw))
}

/// Returns whether a block parameter is an object that demands a canonical block.
pub(super) fn requires_canonical(raw: &str) -> bool {
    JsonKind::of(raw.as_bytes()) == JsonKind::Object
        && serde_json::from_str::<BlockObject<'_>>(raw).is_ok_and(|block| block.require_canonical)
}

fn unquote(raw: &str) -> Option<Cow<'_, str>> {
    (JsonKind::of(raw.as_bytes()) == JsonKind::String).then(|| unescape(raw))
}

#[cfg(test)]
mod tests;
