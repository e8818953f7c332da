//! The transcript of a run in memory: every answer to a client and every call to a node, in order, with tokio's time.
//!
//! All tasks of such a run are on one thread, so the transcript belongs to the thread.

use std::cell::RefCell;

use tokio::time::Instant;

thread_local! {
    static CURRENT: RefCell<Option<Transcript>> = const { RefCell::new(None) };
}

/// The lines of a run.
#[derive(Default)]
struct Transcript {
    /// Time of the first line, which has the time 0.
    begun: Option<Instant>,
    lines: Vec<String>,
}

/// Returns the result and the transcript of `run`, which runs on this thread.
pub fn of<T>(run: impl FnOnce() -> T) -> (T, Vec<String>) {
    CURRENT.set(Some(Transcript::default()));
    let result = run();
    (result, CURRENT.take().map_or_else(Vec::new, |transcript| transcript.lines))
}

/// Returns whether a transcript is being written.
pub fn is_on() -> bool {
    CURRENT.with_borrow(Option::is_some)
}

/// Adds a line with the current time.
pub fn note(line: impl FnOnce() -> String) {
    CURRENT.with_borrow_mut(|current| {
        if let Some(transcript) = current {
            let now = Instant::now();
            let time = now - *transcript.begun.get_or_insert(now);
            transcript.lines.push(format!("{time:?} {}", line()));
        }
    });
}
