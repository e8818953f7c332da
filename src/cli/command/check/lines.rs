//! The lines that the command prints.

use crate::cli::{failure::Failure, output::say};

pub(super) fn line(what: &str, how: impl AsRef<str>) -> Result<(), Failure> {
    // Much of this text comes from the node, which must not be able to control the terminal.
    let how = how.as_ref().replace(char::is_control, "\u{fffd}");
    say(format_args!("{what:<14}{how}"))
}

pub(super) fn fail(what: &str, how: String) -> Result<(), Failure> {
    line(what, how)?;
    Err(Failure::Said)
}
