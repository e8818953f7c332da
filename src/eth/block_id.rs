//! Names of blocks that move.

use super::quantity::QuantityError;

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
