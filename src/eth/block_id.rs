//! A block by its number or by what it is to the chain.

use std::{fmt, str::FromStr};

use super::{
    BlockNumber,
    quantity::{self, QuantityError},
};

/// A block's number, or a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NumberOrTag {
    /// A height on the canonical chain.
    Number(BlockNumber),
    /// Whatever block the tag means now.
    Tag(Tag),
}

/// A name for a block that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    /// The head.
    Latest,
    /// The newest block that honest nodes will not reorganise away under normal conditions.
    Safe,
    /// The newest block that consensus has made final.
    Finalized,
    /// The oldest block the node has: not block 0 on a pruned one.
    Earliest,
    /// The block being made.
    Pending,
}

/// Text that is neither a number nor a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberOrTagError {
    /// Starts like a number.
    #[error(transparent)]
    Number(QuantityError),
    /// Anything else.
    #[error("expected a hex number such as 0x1b4, or latest, safe, finalized, earliest or pending")]
    UnknownTag,
}

// === impl NumberOrTag ===

impl FromStr for NumberOrTag {
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

impl fmt::Display for NumberOrTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Tag(tag) => f.write_str(tag.as_str()),
        }
    }
}

// === impl Tag ===

impl Tag {
    /// Every tag.
    pub const ALL: [Self; 5] = [Self::Latest, Self::Safe, Self::Finalized, Self::Earliest, Self::Pending];

    /// The tag as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Latest => "latest",
            Self::Safe => "safe",
            Self::Finalized => "finalized",
            Self::Earliest => "earliest",
            Self::Pending => "pending",
        }
    }
}
