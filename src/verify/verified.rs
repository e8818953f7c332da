//! What has passed its checks.

use std::{ops::Deref, sync::Arc, time::SystemTime};

/// How far something was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Its shape is right, and its parts agree with each other and with what was asked.
    Structural,
    /// Its own hash comes out; what that hash does not cover is as the node said: the hashes that a block with
    /// block lists, the place that a single transaction names, the transactions of a block where those cannot be proved.
    Partial,
    /// Ethereum's own hashes confirm all of it, from the hash of its block down.
    Proved,
}

/// A value that has passed every check its data allows. Only this module can make one.
#[derive(Clone, Debug)]
pub struct Verified<T> {
    value: T,
    level: Level,
    /// Its block was final when it was said.
    settled: bool,
    origin: Option<Origin>,
}

/// Who said something, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The endpoint's name.
    pub endpoint: Arc<str>,
    /// When its answer was checked.
    pub time: SystemTime,
}

// === impl Level ===

impl Level {
    /// Its name in logs, metrics and the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Structural => "structural",
            Self::Partial => "partial",
            Self::Proved => "proved",
        }
    }
}

// === impl Verified ===

impl<T> Verified<T> {
    pub(super) fn structurally(value: T) -> Self {
        Self { value, level: Level::Structural, settled: false, origin: None }
    }

    /// The same, found to be true so far.
    pub(super) fn raised(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// The same, and whether its block was final when it was said.
    pub(super) fn settled(self, settled: bool) -> Self {
        Self { settled, ..self }
    }

    /// Sets its origin.
    pub(super) fn said_by(&mut self, origin: &Origin) {
        self.origin = Some(origin.clone());
    }

    /// Who said it, if an endpoint did.
    pub fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// Was its block final when it was said? What cannot be proved is asked for once more when it is.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// Is it as good as it gets: proved, or said when its block was final?
    pub fn lasts(&self) -> bool {
        self.is_proved() || self.settled
    }

    /// How far it was checked.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Is all of it proved?
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
