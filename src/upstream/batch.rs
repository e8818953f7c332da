//! Puts calls that are made at the same moment into one request.
//!
//! Off by default: providers bill a batch by its calls, and some nodes answer it one by one. Where
//! it is on, a call waits for nobody: those that are ready in the same turn travel together.

use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::oneshot, task};
use tower::ServiceExt;

use super::{Call, Leaf, UpstreamError};
use crate::jsonrpc::Answer;

/// Collects calls and sends them together.
#[derive(Clone, Debug)]
pub(super) struct Batcher {
    inner: Leaf,
    max: usize,
    waiting: Arc<Mutex<Vec<Waiting>>>,
}

#[derive(Debug)]
struct Waiting {
    call: Call,
    answer: oneshot::Sender<Result<Answer, UpstreamError>>,
}

// === impl Batcher ===

impl Batcher {
    /// At most `max` calls in one request.
    pub(super) fn new(inner: Leaf, max: usize) -> Self {
        Self { inner, max, waiting: Arc::default() }
    }

    pub(super) async fn call(&self, call: Call) -> Result<Answer, UpstreamError> {
        let (answer, answered) = oneshot::channel();
        let first = {
            let mut waiting = self.waiting();
            waiting.push(Waiting { call, answer });
            waiting.len() == 1
        };
        if first {
            let this = self.clone();
            tokio::spawn(async move {
                // Whoever is ready to call in this turn gets the chance to.
                task::yield_now().await;
                this.send_all();
            });
        }
        answered.await.unwrap_or(Err(UpstreamError::Abandoned))
    }

    /// Sends what waits, in as many requests as it takes, side by side.
    fn send_all(&self) {
        let mut waiting = std::mem::take(&mut *self.waiting());
        while !waiting.is_empty() {
            let rest = waiting.split_off(waiting.len().min(self.max));
            let together = std::mem::replace(&mut waiting, rest);
            tokio::spawn(send(self.inner.clone(), together));
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock()
    }
}

/// Sends calls as one request; those that got no answer in it are sent once more, each alone. Given up as soon as nobody
/// waits any more: whoever comes and goes must not leave requests behind, each of which holds a slot.
async fn send(inner: Leaf, mut together: Vec<Waiting>) {
    together.retain(|waiting| !waiting.answer.is_closed());
    if together.is_empty() {
        return;
    }
    let calls = together.iter().map(|waiting| waiting.call.clone()).collect();
    let alone = together.len() == 1;
    let answered = tokio::select! {
        answered = inner.clone().oneshot(calls) => answered,
        _ = join_all(together.iter_mut().map(|waiting| waiting.answer.closed())) => return,
    };
    let answers = match answered {
        Ok(answers) => answers,
        Err(error) => vec![Err(error); together.len()],
    };
    for (Waiting { call, answer }, outcome) in together.into_iter().zip(answers) {
        match outcome {
            Err(error) if !alone && is_worth_another_try(&error) => {
                tokio::spawn(send_alone(inner.clone(), Waiting { call, answer }));
            }
            // Nobody waits any more: then nobody misses it.
            outcome => drop(answer.send(outcome)),
        }
    }
}

async fn send_alone(inner: Leaf, Waiting { call, mut answer }: Waiting) {
    let again = tokio::select! {
        again = inner.oneshot(vec![call]) => again,
        () = answer.closed() => return,
    };
    let _ = answer.send(again.and_then(|mut answers| answers.pop().unwrap_or(Err(UpstreamError::Empty))));
}

/// What a node does to a batch and may not do to a call alone.
fn is_worth_another_try(error: &UpstreamError) -> bool {
    !matches!(
        error,
        UpstreamError::Busy
            | UpstreamError::Cancelled
            | UpstreamError::TimedOut { .. }
            | UpstreamError::Hangs { .. }
            | UpstreamError::RateLimited { .. }
            | UpstreamError::Rejected(_)
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use bytes::Bytes;
    use tower::{service_fn, util::BoxCloneSyncService};

    use super::*;
    use crate::{
        jsonrpc::Params,
        upstream::{Answers, Calls},
    };

    /// A leaf that answers each call with its own params, and counts requests.
    fn leaf(requests: &Arc<AtomicUsize>, refuse_batches: bool) -> Leaf {
        let requests = requests.clone();
        BoxCloneSyncService::new(service_fn(move |calls: Calls| {
            requests.fetch_add(1, Relaxed);
            let refused = refuse_batches && calls.len() > 1;
            let echo = |call: Call| Ok(Answer::Result(call.params.as_bytes().clone()));
            let answers: Answers = calls.into_iter().map(echo).collect();
            async move { if refused { Err(UpstreamError::Empty) } else { Ok(answers) } }
        }))
    }

    fn calls(batcher: &Batcher, count: usize) -> impl Iterator<Item = impl Future<Output = Bytes>> {
        (0..count).map(move |number| {
            let call = Call::new("eth_call", Params::from_own(format!("[{number}]")));
            async move {
                match batcher.call(call).await {
                    Ok(Answer::Result(result)) => result,
                    other => panic!("{other:?}"),
                }
            }
        })
    }

    #[tokio::test]
    async fn calls_of_one_moment_travel_together_and_get_their_own_answers() {
        let requests = Arc::default();
        let batcher = Batcher::new(leaf(&requests, false), 10);
        let answers = join_all(calls(&batcher, 25)).await;
        for (number, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer, format!("[{number}]"));
        }
        assert_eq!(requests.load(Relaxed), 3);
    }

    #[tokio::test]
    async fn what_fails_together_is_tried_alone() {
        let requests = Arc::default();
        let batcher = Batcher::new(leaf(&requests, true), 10);
        let answers = join_all(calls(&batcher, 4)).await;
        assert_eq!(answers.len(), 4);
        assert_eq!(requests.load(Relaxed), 5);
    }
}
