//! Puts the program together: starts it, changes it, tells of it, ends it.

mod reload;
mod report;
mod start;
mod tasks;
mod tiers;

pub use self::start::{App, StartError, check};
