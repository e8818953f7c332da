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
    #[error("{}{field} is {got}, not {expected}", Within(*.part))]
    Field {
        /// Which check found it.
        reason: Reason,
        /// Which part of the answer.
        part: Option<Part>,
        /// Which member.
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
    /// It is empty, and without its block nobody can tell whether it should be.
    #[error("the list of receipts is empty, and its block is not known")]
    Unfounded,
    /// A required member is absent or `null`: the rest may be right.
    #[error("{}{field} is missing or null, and the answer is unprovable without it", Within(*.part))]
    Missing {
        /// Which part of the answer.
        part: Option<Part>,
        /// Which member.
        field: &'static str,
    },
    /// It has something in it that is unknown here, and without it no hash comes out: it may be right.
    #[error("{}{what} is unknown to this version, and without it the hash does not come out", Within(*.part))]
    Unprovable {
        /// Which part of the answer.
        part: Option<Part>,
        /// What is unknown: a member's name, a type of transaction.
        what: String,
    },
}

/// Which check an answer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It does not name what was asked for, or its parts do not name each other.
    Names,
    /// A member that must be there is not, or is not what such a member can be.
    Member,
    /// The hash of a header.
    HeaderHash,
    /// The hash of a transaction.
    TransactionHash,
    /// The chain that a transaction is for.
    Chain,
    /// Who signed a transaction.
    Signer,
    /// A member that follows from others.
    Derived,
    /// The root of a block's transactions.
    TransactionsRoot,
    /// The root of its withdrawals.
    WithdrawalsRoot,
    /// The root of its receipts.
    ReceiptsRoot,
    /// A bloom of logs.
    Bloom,
}

/// A part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// One of its transactions.
    Transaction(usize),
    /// One of its withdrawals.
    Withdrawal(usize),
    /// One of its receipts.
    Receipt(usize),
    /// One of a receipt's logs.
    Log(usize, usize),
}

/// A part, as the beginning of a path.
struct Within(Option<Part>);

// === impl Failure ===

impl Failure {
    pub(super) fn field(
        reason: Reason,
        part: Option<Part>,
        field: &'static str,
        expected: impl fmt::Display,
        got: impl fmt::Display,
    ) -> Self {
        Self::Field { reason, part, field, expected: expected.to_string(), got: got.to_string() }
    }

    /// Every name that speaks against an answer.
    pub const REASONS: [&str; 14] = [
        "shape",
        "emptied",
        "count",
        "names",
        "member",
        "header_hash",
        "transaction_hash",
        "chain",
        "signer",
        "derived",
        "transactions_root",
        "withdrawals_root",
        "receipts_root",
        "bloom",
    ];

    /// Its name in logs and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Shape(_) => "shape",
            Self::Field { reason, .. } => reason.as_str(),
            Self::Emptied(_) => "emptied",
            Self::Count { .. } => "count",
            Self::Unfounded => "unfounded",
            Self::Missing { .. } | Self::Unprovable { .. } => "unprovable",
        }
    }

    /// Does nothing speak against it but that it is not known well enough?
    pub fn is_unprovable(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Unprovable { .. } | Self::Unfounded)
    }
}

impl From<ShapeError> for Failure {
    fn from(error: ShapeError) -> Self {
        Self::Shape(error)
    }
}

// === impl Reason ===

impl Reason {
    /// Its name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Names => "names",
            Self::Member => "member",
            Self::HeaderHash => "header_hash",
            Self::TransactionHash => "transaction_hash",
            Self::Chain => "chain",
            Self::Signer => "signer",
            Self::Derived => "derived",
            Self::TransactionsRoot => "transactions_root",
            Self::WithdrawalsRoot => "withdrawals_root",
            Self::ReceiptsRoot => "receipts_root",
            Self::Bloom => "bloom",
        }
    }
}

// === impl Within ===

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(Part::Transaction(index)) => write!(f, "transactions[{index}]."),
            Some(Part::Withdrawal(index)) => write!(f, "withdrawals[{index}]."),
            Some(Part::Receipt(index)) => write!(f, "receipts[{index}]."),
            Some(Part::Log(receipt, index)) => write!(f, "receipts[{receipt}].logs[{index}]."),
        }
    }
}
