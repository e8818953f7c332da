//! Checks that did not end in time.

/// Why the checks of an answer have not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// The queue for proof threads was full.
    QueueFull,
    /// No proof thread was free in time.
    QueueWait,
    /// The checks took longer than `verify.patience`.
    Slow,
    /// The checks panicked.
    Panicked,
}

// === impl Overdue ===

impl Overdue {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::QueueFull, Self::QueueWait, Self::Slow, Self::Panicked];

    /// Its name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::QueueWait => "queue_wait",
            Self::Slow => "slow",
            Self::Panicked => "panicked",
        }
    }

    /// Returns whether the checks never began, so that they say nothing of the answer.
    pub fn is_overload(self) -> bool {
        matches!(self, Self::QueueFull | Self::QueueWait)
    }
}
