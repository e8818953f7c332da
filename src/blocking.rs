//! Work on blocking threads: tells a panic from a shutdown, and can be made repeatable.
//!
//! When work on another thread ends depends on the machine, and so does the order of the tasks that wait for it. A test
//! that runs the program in memory therefore lets each thread wait for the work that it starts.

use std::{any::Any, cell::Cell, fmt, future::pending, sync::mpsc, thread};

use tokio::task::{self, JoinHandle};

thread_local! {
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

/// The panic of work on another thread.
pub(crate) struct WorkPanic(Box<dyn Any + Send>);

/// Lets this thread wait, from now on, until the work that it starts is done. For tests only: the thread runs no other
/// task meanwhile.
pub fn wait_on_this_thread() {
    WAITS.set(true);
}

/// Starts `work` on a blocking thread of the runtime.
pub(crate) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    if !WAITS.get() {
        return task::spawn_blocking(work);
    }
    let (done, is_done) = mpsc::sync_channel::<()>(0);
    let handle = task::spawn_blocking(move || {
        let _done = done;
        work()
    });
    // Fails when the work ends and drops the sender.
    let _ = is_done.recv();
    while !handle.is_finished() {
        thread::yield_now();
    }
    handle
}

/// Runs `work` on a blocking thread of the runtime. Other tasks can run meanwhile.
///
/// If the runtime shuts down before `work` starts, this future never completes: the runtime drops it with all others.
/// So no caller takes the end of the program for a fault.
///
/// # Errors
/// If `work` panicked.
pub(crate) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, WorkPanic> {
    let handle = spawn(work);
    if WAITS.get() {
        // Without this, a test would never see another task run during the work.
        task::yield_now().await;
    }
    match handle.await {
        Ok(done) => Ok(done),
        Err(error) => match error.try_into_panic() {
            Ok(payload) => Err(WorkPanic(payload)),
            Err(_cancelled) => pending().await,
        },
    }
}

// === impl WorkPanic ===

impl WorkPanic {
    /// Returns the panic's payload, for [`std::panic::resume_unwind`].
    pub(crate) fn into_payload(self) -> Box<dyn Any + Send> {
        self.0
    }
}

impl From<Box<dyn Any + Send>> for WorkPanic {
    fn from(payload: Box<dyn Any + Send>) -> Self {
        Self(payload)
    }
}

impl fmt::Display for WorkPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.downcast_ref::<&str>().copied();
        let text = text.or_else(|| self.0.downcast_ref::<String>().map(String::as_str));
        f.write_str(text.unwrap_or("(no message)"))
    }
}
