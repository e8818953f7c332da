//! Waits to be told to stop, or to read the configuration again.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end the program.
pub(super) struct StopSignals {
    term: Signal,
    int: Signal,
}

/// The signal to read the configuration again.
pub(super) struct ReloadSignal(Signal);

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

// === impl ReloadSignal ===

impl ReloadSignal {
    /// From here on SIGHUP no longer kills the process, not even once nobody waits for it.
    pub(super) fn listen() -> std::io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// Resolves at the next SIGHUP; several since the last time are one.
    pub(super) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
