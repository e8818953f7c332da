//! Runs work on a blocking thread, and tells a panic from the end of the program.

use std::{any::Any, fmt, future::pending};

use tokio::task;

/// The panic of work on another thread.
pub struct Panicked(Box<dyn Any + Send>);

/// Runs `work` on a thread that serves no clients.
///
/// If the runtime shuts down before `work` starts, this future never completes: the runtime drops it with all others.
/// So nobody takes the end of the program for a fault.
///
/// # Errors
/// If `work` panicked.
pub async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Panicked> {
    match task::spawn_blocking(work).await {
        Ok(done) => Ok(done),
        Err(error) => match error.try_into_panic() {
            Ok(payload) => Err(Panicked(payload)),
            Err(_cancelled) => pending().await,
        },
    }
}

// === impl Panicked ===

impl Panicked {
    /// Returns the panic's payload, for [`std::panic::resume_unwind`].
    pub fn into_payload(self) -> Box<dyn Any + Send> {
        self.0
    }
}

impl From<Box<dyn Any + Send>> for Panicked {
    fn from(payload: Box<dyn Any + Send>) -> Self {
        Self(payload)
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.downcast_ref::<&str>().copied();
        let text = text.or_else(|| self.0.downcast_ref::<String>().map(String::as_str));
        f.write_str(text.unwrap_or("a panic without a message"))
    }
}

impl fmt::Debug for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Panicked({self})")
    }
}
