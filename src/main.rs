//! The `holdfast` command; all of it is in the library.

use std::process::ExitCode;

/// An answer is a dozen short-lived allocations: this one takes a third of the system's time for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    holdfast::cli::main()
}
