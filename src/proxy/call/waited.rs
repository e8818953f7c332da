//! Labels answers from the cache for which a call had to wait.

use std::cell::Cell;

use tokio::task_local;

use super::outcome::Answered;
use crate::proxy::error::CallError;

task_local! {
    /// Whether the current call only joined refreshes of other calls; `None` if it has waited for no refresh.
    static JOINED: Cell<Option<bool>>;
}

/// Records that the current call waited for a refresh of the view, which another call had started if `joined`.
pub(crate) fn note_refresh(joined: bool) {
    // A background task belongs to no call.
    let _ = JOINED.try_with(|all| all.set(Some(joined && all.get().unwrap_or(true))));
}

/// Answers a call, and labels its answer if it waited for a refresh. A call that waits for this one, to compose its own
/// answer, has waited for the same refresh.
pub(crate) async fn labelled(
    answering: impl Future<Output = Result<Answered, CallError>>,
) -> Result<Answered, CallError> {
    let watched = async { (answering.await, JOINED.with(Cell::get)) };
    let (answered, joined) = JOINED.scope(Cell::default(), watched).await;
    let Some(joined) = joined else { return answered };
    note_refresh(joined);
    answered.map(|answered| Answered { outcome: answered.outcome.after_refresh(joined), ..answered })
}
