//! What has passed its checks.

use std::ops::Deref;

/// How far something was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Its shape is right, and its parts agree with each other and with what was asked.
    Structural,
}

/// A value that has passed every check its data allows. Only this module can make one.
#[derive(Clone, Debug)]
pub struct Verified<T> {
    value: T,
    level: Level,
}

// === impl Verified ===

impl<T> Verified<T> {
    pub(super) fn structurally(value: T) -> Self {
        Self { value, level: Level::Structural }
    }

    /// How far it was checked.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The value, which from here on vouches for itself.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T> Deref for Verified<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}
