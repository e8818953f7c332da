//! `--blocks A..B`

use std::fmt;

use crate::{eth::BlockNumber, proxy::Subject};

/// A range of blocks, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    pub(super) from: u64,
    /// The last block; `None` is the newest one.
    pub(super) to: Option<u64>,
}

// === impl Blocks ===

impl Blocks {
    /// Parses `A..B`, where `B` can be `latest`.
    pub(super) fn until_latest(text: &str) -> Result<Self, String> {
        let expected =
            || "expected A..B, both ends included, such as 19000000..19000999 or 19000000..latest".to_owned();
        let (from, to) = text.split_once("..").ok_or_else(expected)?;
        let number = |text: &str| match text.parse() {
            Ok(Subject::Number(BlockNumber(number))) => Ok(number),
            Ok(Subject::Hash(_)) | Err(_) => Err(expected()),
        };
        let from = number(from)?;
        let to = if to.trim() == "latest" { None } else { Some(number(to)?) };
        if to.is_some_and(|to| to < from) {
            return Err(format!("{from} is after {}; write the lower number first", to.unwrap_or_default()));
        }
        Ok(Self { from, to })
    }
}

impl fmt::Display for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to {
            Some(to) => write!(f, "{}..{to}", self.from),
            None => write!(f, "{}..latest", self.from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_inclusive_and_may_end_at_latest() {
        let read = Blocks::until_latest;
        assert_eq!(read("3..5"), Ok(Blocks { from: 3, to: Some(5) }));
        assert_eq!(read("3..3"), Ok(Blocks { from: 3, to: Some(3) }));
        assert_eq!(read("0x10..latest"), Ok(Blocks { from: 16, to: None }));
        assert_eq!(Blocks { from: 3, to: None }.to_string(), "3..latest");
        let malformed = [
            "",
            "3",
            "3..",
            "..5",
            "a..b",
            "3...5",
            "3..=5",
            "latest..5",
            "-1..5",
            "3..earliest",
            "3..finalized",
        ];
        for text in malformed {
            let error = read(text).unwrap_err();
            assert!(error.ends_with("19000000..19000999 or 19000000..latest"), "{text}: {error}");
        }
        assert_eq!(read("5..3"), Err("5 is after 3; write the lower number first".to_owned()));
    }
}
