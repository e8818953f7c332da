//! Values that passed verification.

use std::{ops::Deref, sync::Arc, time::SystemTime};

/// Level of verification that a value reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Level {
    /// The value has the right shape, and its parts agree with each other and with the request.
    Structural,
    /// The value's own hash matches. Content that this hash does not cover is unverified: the list of a block with
    /// transaction hashes, the place of a single transaction, or the transactions of a block if those cannot be proved.
    Partial,
    /// Ethereum's hashes, starting from the block hash, confirm the whole value.
    Proved,
}

/// A value that passed verification, and the level that it reached. Only the module `verify` can create a `Verified`.
#[derive(Clone, Debug)]
pub struct Verified<T> {
    value: T,
    level: Level,
    /// Whether the value's block was final when the answer was requested.
    settled: bool,
    origin: Option<Origin>,
}

/// Source of a value, and the time of its verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Name of the endpoint or tier.
    pub endpoint: Arc<str>,
    /// Time of the verification.
    pub time: SystemTime,
}

// === impl Level ===

impl Level {
    /// Returns the level's name in logs, metrics and the status.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

// === impl Verified ===

impl<T> Verified<T> {
    pub(super) fn structurally(value: T) -> Self {
        Self { value, level: Level::Structural, settled: false, origin: None }
    }

    /// Sets the level of verification.
    pub(super) fn raised(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// Sets whether the value's block was final when the answer was requested.
    pub(super) fn settled(self, settled: bool) -> Self {
        Self { settled, ..self }
    }

    /// Sets the origin.
    pub(super) fn said_by(&mut self, origin: &Origin) {
        self.origin = Some(origin.clone());
    }

    /// Returns the endpoint or tier that the value came from, if known.
    pub fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// Returns whether the value's block was final when the answer was requested. If it was not, and the value is not
    /// proved, Holdfast fetches the value again once its block is final.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// Returns whether the value is proved or its block was final when the answer was requested. Fetching such a value
    /// again cannot improve it.
    pub fn lasts(&self) -> bool {
        self.is_proved() || self.settled
    }

    /// Returns the level of verification.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Returns whether the whole value is proved.
    pub fn is_proved(&self) -> bool {
        self.level == Level::Proved
    }
}

impl<T> Deref for Verified<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}
