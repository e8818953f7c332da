//! What is wrong with an answer.

use std::fmt;

use crate::eth::ShapeError;

/// An answer that must not be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It is not what was asked for at all.
    #[error("{0}")]
    Shape(ShapeError),
    /// One of its members is not what it must be.
    #[error("{field} is {got}, not {expected}")]
    Field {
        /// Which.
        field: &'static str,
        /// What it must be.
        expected: String,
        /// What it is.
        got: String,
    },
    /// It names its transactions' root and leaves them out, or the other way round.
    #[error("the list of transactions is {0}, and its root says otherwise")]
    Emptied(&'static str),
    /// The number of its parts is not that of what they belong to.
    #[error("there are {got} receipts for {expected} transactions")]
    Count {
        /// How many there must be.
        expected: usize,
        /// How many there are.
        got: usize,
    },
}

// === impl Failure ===

impl Failure {
    pub(super) fn field(field: &'static str, expected: impl fmt::Display, got: impl fmt::Display) -> Self {
        Self::Field { field, expected: expected.to_string(), got: got.to_string() }
    }

    /// Its name in logs and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Shape(_) => "shape",
            Self::Field { .. } => "field",
            Self::Emptied(_) => "emptied",
            Self::Count { .. } => "count",
        }
    }
}

impl From<ShapeError> for Failure {
    fn from(error: ShapeError) -> Self {
        Self::Shape(error)
    }
}
