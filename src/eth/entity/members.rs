//! Finds members of JSON objects, and parses hashes and quantities.

use std::{borrow::Cow, ops::Range};

use alloy_primitives::{Address, B256, Bloom, hex};

use super::{Header, Span};
use crate::{
    eth::{BlockHash, BlockNumber, TxHash, TxPosition, quantity},
    jsonrpc::{JsonKind, Scanner, SyntaxError, unescape},
};

/// Error of reading a response that does not have the expected shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// The response is not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// The response is not JSON.
    #[error("not JSON: {0}")]
    NotJson(SyntaxError),
    /// The response is longer than a 32-bit offset can address.
    #[error("larger than 4 GiB")]
    TooLarge,
    /// A value is not of the expected kind.
    #[error("{what} is not {expected}")]
    Not {
        /// Name of the value.
        what: &'static str,
        /// Expected kind.
        expected: &'static str,
    },
    /// A required member is missing, or an object has a member twice.
    #[error("member {0} is missing or duplicated")]
    Member(&'static str),
}

impl From<SyntaxError> for ShapeError {
    fn from(error: SyntaxError) -> Self {
        Self::NotJson(error)
    }
}

/// Returns a response as text.
pub(super) fn text(bytes: &[u8]) -> Result<&str, ShapeError> {
    if u32::try_from(bytes.len()).is_err() {
        return Err(ShapeError::TooLarge);
    }
    std::str::from_utf8(bytes).map_err(|_| ShapeError::NotUtf8)
}

pub(super) fn span(range: &Range<usize>) -> Span {
    // The casts do not truncate, because `text` rejects longer responses.
    Span { start: range.start as u32, end: range.end as u32 }
}

/// Scans the next object and returns the spans of the members `names`.
pub(super) fn pick<const N: usize>(
    scanner: &mut Scanner<'_>,
    text: &str,
    what: &'static str,
    names: [&'static str; N],
) -> Result<[Option<Span>; N], ShapeError> {
    if scanner.peek() != Some(b'{') {
        return Err(ShapeError::Not { what, expected: "an object" });
    }
    scanner.enter();
    let mut spans = [None; N];
    let mut first = true;
    while let Some(name) = scanner.next_member(&mut first)? {
        let value = scanner.value()?;
        let name = &text[name];
        // Names are compared unescaped, because other JSON readers unescape names, too.
        let name = if name.contains('\\') { unescape(name) } else { Cow::Borrowed(&name[1..name.len() - 1]) };
        if let Some(place) = names.iter().position(|candidate| *candidate == name) {
            if spans[place].is_some() {
                return Err(ShapeError::Member(names[place]));
            }
            spans[place] = Some(span(&value));
        }
    }
    Ok(spans)
}

/// Returns the text between the quotes of a string, without unescaping it.
fn plain<'a>(text: &'a str, span: Span, what: &'static str) -> Result<&'a str, ShapeError> {
    let raw = &text[span.range()];
    match JsonKind::of(raw.as_bytes()) {
        JsonKind::String => Ok(&raw[1..raw.len() - 1]),
        _ => Err(ShapeError::Not { what, expected: "a string" }),
    }
}

pub(super) fn hash(text: &str, span: Option<Span>, what: &'static str) -> Result<B256, ShapeError> {
    let span = span.ok_or(ShapeError::Member(what))?;
    let hash: BlockHash =
        plain(text, span, what)?.parse().map_err(|_| ShapeError::Not { what, expected: "a hash" })?;
    Ok(hash.0)
}

pub(super) fn address(text: &str, span: Option<Span>, what: &'static str) -> Result<Address, ShapeError> {
    let span = span.ok_or(ShapeError::Member(what))?;
    plain(text, span, what)?.parse().map_err(|_| ShapeError::Not { what, expected: "an address" })
}

/// Parses the bloom of a block; `None` if it is missing or malformed.
pub(super) fn bloom(bytes: &[u8], span: Option<Span>) -> Option<Bloom> {
    let quoted = &bytes[span?.range()];
    let digits = quoted.strip_prefix(b"\"0x")?.strip_suffix(b"\"")?;
    let mut bloom = Bloom::ZERO;
    hex::decode_to_slice(digits, bloom.as_mut_slice()).ok()?;
    Some(bloom)
}

pub(super) fn number(text: &str, span: Option<Span>, what: &'static str) -> Result<u64, ShapeError> {
    let span = span.ok_or(ShapeError::Member(what))?;
    quantity::parse(plain(text, span, what)?).map_err(|_| ShapeError::Not { what, expected: "a quantity" })
}

/// Reads a member that may be `null` or absent.
pub(super) fn optional<T>(
    text: &str,
    span: Option<Span>,
    read: impl FnOnce(Option<Span>) -> Result<T, ShapeError>,
) -> Result<Option<T>, ShapeError> {
    match span {
        Some(span) if &text[span.range()] != "null" => read(Some(span)).map(Some),
        _ => Ok(None),
    }
}

/// Returns the spans of the elements of the array at `span`.
pub(super) fn elements(text: &str, span: Span, what: &'static str) -> Result<Vec<Span>, ShapeError> {
    let mut scanner = Scanner::new(&text[span.range()]);
    if scanner.peek() != Some(b'[') {
        return Err(ShapeError::Not { what, expected: "an array" });
    }
    scanner.enter();
    let mut spans = Vec::new();
    let mut first = true;
    while scanner.next_element(&mut first)? {
        let value = scanner.value()?;
        spans.push(Span { start: span.start + value.start as u32, end: span.start + value.end as u32 });
    }
    scanner.end()?;
    Ok(spans)
}

/// Members of a block.
pub(super) struct BlockMembers {
    pub(super) header: Header,
    pub(super) bloom: Option<Span>,
    pub(super) transactions: Span,
}

/// Reads the header members of a block, and finds its bloom and its transactions.
pub(super) fn block(text: &str) -> Result<BlockMembers, ShapeError> {
    const NAMES: [&str; 8] = [
        "hash",
        "parentHash",
        "number",
        "transactionsRoot",
        "uncles",
        "timestamp",
        "logsBloom",
        "transactions",
    ];
    let mut scanner = Scanner::new(text);
    let [hash_at, parent, number_at, root, uncles, timestamp, bloom, transactions] =
        pick(&mut scanner, text, "the block", NAMES)?;
    scanner.end()?;
    let header = Header {
        hash: BlockHash(hash(text, hash_at, "hash")?),
        parent: BlockHash(hash(text, parent, "parentHash")?),
        number: BlockNumber(number(text, number_at, "number")?),
        transactions_root: hash(text, root, "transactionsRoot")?,
        uncles: match uncles {
            Some(span) => elements(text, span, "uncles")?.len() as u32,
            None => 0,
        },
        timestamp: number(text, timestamp, "timestamp").ok(),
    };
    Ok(BlockMembers { header, bloom, transactions: transactions.ok_or(ShapeError::Member("transactions"))? })
}

/// Hash and location that a transaction or a receipt names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) hash: TxHash,
    pub(super) hash_at: Span,
    pub(super) block: Option<BlockHash>,
    pub(super) number: Option<BlockNumber>,
    pub(super) index: Option<TxPosition>,
}

/// Scans a transaction (`hash_name` is `hash`) or a receipt (`transactionHash`).
pub(super) fn named(
    scanner: &mut Scanner<'_>,
    text: &str,
    what: &'static str,
    hash_name: &'static str,
) -> Result<Named, ShapeError> {
    let names = [hash_name, "blockHash", "blockNumber", "transactionIndex"];
    let [hash_at, block, number_at, index] = pick(scanner, text, what, names)?;
    Ok(Named {
        hash: TxHash(hash(text, hash_at, hash_name)?),
        hash_at: hash_at.ok_or(ShapeError::Member(hash_name))?,
        block: optional(text, block, |span| hash(text, span, "blockHash"))?.map(BlockHash),
        number: optional(text, number_at, |span| number(text, span, "blockNumber"))?.map(BlockNumber),
        index: optional(text, index, |span| number(text, span, "transactionIndex"))?.map(TxPosition),
    })
}
