//! Hashes of blocks and of transactions, as distinct types.

use std::{
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
};

use alloy_primitives::{B256, hex};

/// The hash of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockHash(pub B256);

/// The hash of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TxHash(pub B256);

impl Hash for BlockHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_words(self.0, state);
    }
}

impl Hash for TxHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_words(self.0, state);
    }
}

/// Feeds the hasher four words. Feeding it a byte slice would take several times as long, on every cache hit.
fn hash_words<H: Hasher>(hash: B256, state: &mut H) {
    hash.0.as_chunks().0.iter().for_each(|word| state.write_u64(u64::from_ne_bytes(*word)));
}

/// Error of parsing a hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    /// The text has no `0x` prefix, which nodes require, too.
    #[error("a hash starts with 0x")]
    NoPrefix,
    /// The text has fewer or more than 64 digits.
    #[error("a hash has 64 hex digits, not {0}")]
    Length(usize),
    /// A character is not a hex digit.
    #[error("a hash has only hex digits")]
    Digit,
}

fn parse(text: &[u8]) -> Result<B256, HashError> {
    let digits = text.strip_prefix(b"0x").ok_or(HashError::NoPrefix)?;
    let mut hash = B256::ZERO;
    // If the digits start with a second `0x`, the decoder strips it, finds too few digits, and fails.
    if digits.len() == 64 && hex::decode_to_slice(digits, hash.as_mut_slice()).is_ok() {
        return Ok(hash);
    }
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    Err(if is_hex { HashError::Length(digits.len()) } else { HashError::Digit })
}

// === impl BlockHash ===

impl FromStr for BlockHash {
    type Err = HashError;

    fn from_str(text: &str) -> Result<Self, HashError> {
        parse(text.as_bytes()).map(Self)
    }
}

/// Formats the hash as requests to upstreams contain it: `0x` and lower-case digits.
impl fmt::Display for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl TxHash ===

impl TxHash {
    /// Parses a hash from bytes that need not be valid UTF-8.
    pub(super) fn from_ascii(text: &[u8]) -> Result<Self, HashError> {
        parse(text).map(Self)
    }
}

impl FromStr for TxHash {
    type Err = HashError;

    fn from_str(text: &str) -> Result<Self, HashError> {
        parse(text.as_bytes()).map(Self)
    }
}

/// Formats the hash as requests to upstreams contain it: `0x` and lower-case digits.
impl fmt::Display for TxHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for TxHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_parses_in_any_case_and_prints_in_lower_case() {
        let lower = format!("0x{}", "ab".repeat(32));
        let upper = format!("0x{}", "AB".repeat(32));
        assert_eq!(lower.parse::<TxHash>().unwrap(), upper.parse().unwrap());
        assert_eq!(upper.parse::<BlockHash>().unwrap().to_string(), lower);
    }

    #[test]
    fn hash_errors_are_specific() {
        let parse = |text: &str| text.parse::<BlockHash>().unwrap_err();
        assert_eq!(parse(&"a".repeat(64)), HashError::NoPrefix);
        assert_eq!(parse(&format!("0X{}", "a".repeat(64))), HashError::NoPrefix);
        assert_eq!(parse("0x"), HashError::Length(0));
        assert_eq!(parse(&format!("0x{}", "a".repeat(63))), HashError::Length(63));
        assert_eq!(parse(&format!("0x{}", "a".repeat(65))), HashError::Length(65));
        assert_eq!(parse(&format!("0x{}", "g".repeat(64))), HashError::Digit);
        assert_eq!(parse(&format!("0x0x{}", "a".repeat(62))), HashError::Digit);
        assert_eq!(parse(&format!("0x{}", "é".repeat(32))), HashError::Digit);
    }
}
