//! The `holdfast` command. The library holds all of its code.

use std::process::ExitCode;

/// An answer makes a dozen short-lived allocations; mimalloc takes a third of the system allocator's time for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    holdfast::cli::main()
}
