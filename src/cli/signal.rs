//! Waits to be told to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end the program.
pub(super) struct StopSignals {
    term: Signal,
    int: Signal,
}

// === impl StopSignals ===

impl StopSignals {
    /// From here on a signal no longer kills the process.
    pub(super) fn listen() -> std::io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// Resolves at the next SIGTERM or SIGINT.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }

    /// Runs `ending`, but not past a second signal.
    pub(super) async fn or_again(&mut self, ending: impl Future<Output = ()>) {
        tokio::select! {
            () = ending => {}
            () = self.next() => tracing::warn!("told to stop twice: not waiting for requests in flight"),
        }
    }
}
