//! The runtime that commands run in.

use std::future::Future;

use tokio::runtime::Runtime;

use super::{failure::Failure, log, signal::ReloadSignal};
use crate::config::LogConfig;

/// What `serve` and `demo` have from the first moment on: whoever starts many, or reads a list of processes, may send
/// SIGHUP to one that has not yet read what it was started with, and it must not die of that.
pub(super) struct EarlyRuntime {
    pub(super) runtime: Runtime,
    hangup: ReloadSignal,
}

// === impl EarlyRuntime ===

impl EarlyRuntime {
    pub(super) fn start() -> Result<Self, Failure> {
        let runtime = runtime()?;
        let hangup = {
            let _entered = runtime.enter();
            ReloadSignal::listen().map_err(|error| Failure::Other(format!("cannot take signals: {error}")))?
        };
        Ok(Self { runtime, hangup })
    }

    /// Runs `command`, which gets to know of what was sent since the start.
    pub(super) fn block_on<F>(self, command: impl FnOnce(ReloadSignal) -> F) -> Result<(), Failure>
    where
        F: Future<Output = Result<(), Failure>>,
    {
        block_on(self.runtime, command(self.hangup))
    }
}

/// Runs `command` with the log on.
pub(super) fn run(
    log: &LogConfig,
    command: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    log::start(log, None);
    block_on(runtime()?, command)
}

fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Other(format!("cannot start the runtime: {error}")))
}

fn block_on(runtime: Runtime, command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let done = runtime.block_on(command);
    // All that must be finished is; a name look-up that hangs in a thread must not hold up the end.
    runtime.shutdown_background();
    done
}
