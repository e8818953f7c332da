//! Checks that did not finish in time.

/// Reason why the checks of an answer did not finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Overdue {
    /// The queue for proof threads was full.
    QueueFull,
    /// No proof thread was free in time.
    QueueWait,
    /// The checks began, but took longer than `Config::patience`.
    Slow,
    /// The checks panicked.
    Panicked,
}

// === impl Overdue ===

impl Overdue {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::QueueFull, Self::QueueWait, Self::Slow, Self::Panicked];

    /// Returns the reason's name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether the checks never started, so that the answer is not at fault.
    pub fn is_overload(self) -> bool {
        matches!(self, Self::QueueFull | Self::QueueWait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_that_never_started_are_overload() {
        let overloads = Overdue::ALL.into_iter().filter(|overdue| overdue.is_overload());
        assert_eq!(overloads.collect::<Vec<_>>(), [Overdue::QueueFull, Overdue::QueueWait]);
    }
}
