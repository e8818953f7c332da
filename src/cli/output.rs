//! Writes to standard output.

use std::{
    fmt::Display,
    io::{self, Write},
};

use super::failure::Failure;

/// Prints a line. Ignores a closed pipe, at which `println!` would panic.
///
/// # Errors
/// If the line cannot be written for another reason, such as a full disk. A script must notice the loss.
pub(super) fn say(line: impl Display) -> Result<(), Failure> {
    written(writeln!(io::stdout(), "{line}"))
}

pub(super) fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        // The reader has closed the pipe and wants no more output.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Output(error)),
        _ => Ok(()),
    }
}
