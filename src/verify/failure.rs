//! Reasons why an answer failed verification.

use std::fmt;

use crate::eth::ShapeError;

/// Reason why an answer failed verification and must not be cached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The answer does not have the requested shape.
    #[error("{0}")]
    Shape(ShapeError),
    /// A member has a wrong value.
    #[error("{}{field} is {got}, not {expected}", Within(*.part))]
    Field {
        /// The check that failed.
        reason: Reason,
        /// Part of the answer that contains the member.
        part: Option<Part>,
        /// Name of the member.
        field: &'static str,
        /// Expected value.
        expected: String,
        /// Actual value.
        got: String,
    },
    /// The list of transactions is empty although its root is not that of an empty list, or the other way round.
    #[error("the list of transactions is {0}, which contradicts transactionsRoot")]
    Emptied(&'static str),
    /// The number of receipts differs from the number of transactions.
    #[error("there are {got} receipts for {expected} transactions")]
    Count {
        /// Expected number.
        expected: usize,
        /// Actual number.
        got: usize,
    },
    /// The number of logs of a block differs from the number in its proved receipts.
    #[error("there are {got} logs that match, not {expected} as in the receipts of the block")]
    Logs {
        /// Expected number.
        expected: usize,
        /// Actual number.
        got: usize,
    },
    /// The list of receipts is empty, and the block that could show whether that is right is unknown.
    #[error("the list of receipts is empty and its block is unknown")]
    Unfounded,
    /// A required member is absent or `null`. The rest of the answer may be right.
    #[error("{}{field} is missing or null; the answer cannot be proved without it", Within(*.part))]
    Missing {
        /// Part of the answer that contains the member.
        part: Option<Part>,
        /// Name of the member.
        field: &'static str,
    },
    /// The answer contains something that this version does not know and so cannot hash. The answer may be right.
    #[error("{}{what} is unknown to this version, so the hash cannot be checked", Within(*.part))]
    Unprovable {
        /// Part of the answer that contains the member.
        part: Option<Part>,
        /// The unknown thing: the name of a member, or a type of transaction.
        what: String,
    },
}

/// The check that an answer did not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    /// The answer names another block or transaction than the request, or its parts contradict each other.
    Names,
    /// A member is malformed or duplicated, or its name differs from a known name only in case.
    Member,
    /// Hash of a header.
    HeaderHash,
    /// Hash of a transaction.
    TransactionHash,
    /// Chain id of a transaction.
    Chain,
    /// Signer of a transaction.
    Signer,
    /// A member that follows from other members.
    Derived,
    /// Root of the transactions.
    TransactionsRoot,
    /// Root of the withdrawals.
    WithdrawalsRoot,
    /// Root of the receipts.
    ReceiptsRoot,
    /// Bloom filter of logs.
    Bloom,
}

/// A part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The transaction at this index.
    Transaction(usize),
    /// The withdrawal at this index.
    Withdrawal(usize),
    /// The receipt at this index.
    Receipt(usize),
    /// A log: the index of its receipt, and its index in that receipt.
    Log(usize, usize),
}

/// Formats a part as the prefix of a member's path, such as `receipts[3].logs[0].`.
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

    /// Names of all failures that prove an answer wrong, for metrics.
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

    /// Returns the failure's name in logs and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Shape(_) => "shape",
            Self::Field { reason, .. } => reason.as_str(),
            Self::Emptied(_) => "emptied",
            Self::Count { .. } | Self::Logs { .. } => "count",
            Self::Unfounded => "unfounded",
            Self::Missing { .. } | Self::Unprovable { .. } => "unprovable",
        }
    }

    /// Returns whether the answer may still be right, because something in it is missing or unknown.
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
    /// Returns the reason's name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
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
