//! Writes to standard output.

use std::{
    fmt::Display,
    io::{self, Write},
};

use super::failure::Failure;

/// Prints a line. Nobody need read it: `println!` would panic at a pipe that was closed.
///
/// # Errors
/// If it is lost otherwise, on a disk that is full, say: a script must not go on as if it were there.
pub(super) fn say(line: impl Display) -> Result<(), Failure> {
    written(writeln!(io::stdout(), "{line}"))
}

pub(super) fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        // Whoever has closed the other end does not want it.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Output(error)),
        _ => Ok(()),
    }
}
