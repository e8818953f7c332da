//! Block tags.

use super::quantity::QuantityError;

/// A block tag: a name whose block changes over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Tag {
    /// The head.
    Latest,
    /// The newest block that no reorg removes under normal conditions, if most validators are honest.
    Safe,
    /// The newest block that consensus has finalized.
    Finalized,
    /// The oldest block that the node has. On a pruned node this is not block 0.
    Earliest,
    /// The block under construction.
    Pending,
}

/// Error of parsing text that is neither a block number nor a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberOrTagError {
    /// Text that starts with `0x` but is not a quantity.
    #[error(transparent)]
    Number(QuantityError),
    /// Any other text.
    #[error("expected a hex number such as 0x1b4, or latest, safe, finalized, earliest or pending")]
    UnknownTag,
}

// === impl Tag ===

impl Tag {
    /// Every tag.
    pub const ALL: [Self; 5] = [Self::Latest, Self::Safe, Self::Finalized, Self::Earliest, Self::Pending];

    /// Returns the tag as JSON-RPC spells it.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
