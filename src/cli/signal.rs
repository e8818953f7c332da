//! Signals to stop, or to reload the configuration.

use std::time::Duration;

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::Instant,
};

/// Time within which two signals to stop count as one.
const SAME: Duration = Duration::from_secs(1);

/// The signals that end the program.
pub(super) struct StopSignals {
    term: Signal,
    int: Signal,
}

/// The signal to reload the configuration.
pub(super) struct ReloadSignal(Signal);

// === impl StopSignals ===

impl StopSignals {
    /// Installs the handlers. From here on, these signals no longer kill the process.
    pub(super) fn listen() -> std::io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// Resolves at the next SIGTERM or SIGINT, and logs it.
    pub(super) async fn next(&mut self) {
        let signal = tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        };
        tracing::info!(signal, "stop signal received");
    }

    /// Runs `ending`, at most until a second signal. Ignores signals within a second, because a terminal and a wrapper
    /// such as `timeout` may send the same one twice.
    pub(super) async fn or_again(&mut self, ending: impl Future<Output = ()>) {
        let again = async {
            let first = Instant::now();
            loop {
                self.next().await;
                if first.elapsed() >= SAME {
                    return;
                }
            }
        };
        tokio::select! {
            () = ending => {}
            () = again => tracing::warn!("second stop signal; not waiting for requests in flight"),
        }
    }
}

// === impl ReloadSignal ===

impl ReloadSignal {
    /// Installs the handler. From here on, SIGHUP no longer kills the process, even after this value is dropped.
    pub(super) fn listen() -> std::io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// Resolves at the next SIGHUP. Several SIGHUPs since the last call are reported as one.
    pub(super) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
