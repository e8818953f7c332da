//! Puts the program together: starts it, tells of it, ends it.

mod report;
mod start;

pub use self::start::{App, StartError};
