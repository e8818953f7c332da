//! The runtime that commands run in.

use std::future::Future;

use tokio::runtime::Runtime;

use super::{failure::Failure, log, signal::ReloadSignal};
use crate::config::LogConfig;

/// The runtime of `serve` and `demo`, which handles SIGHUP as soon as the process starts. A supervisor may send
/// SIGHUP before the process has parsed its command line, and the signal must not kill the process.
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
            ReloadSignal::listen()
                .map_err(|error| Failure::Other(format!("cannot install signal handlers: {error}")))?
        };
        Ok(Self { runtime, hangup })
    }

    /// Runs `command`, which also receives a SIGHUP that was sent since the start.
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
    // All work that must finish has finished. A name lookup that hangs in a thread must not delay the exit.
    runtime.shutdown_background();
    done
}
