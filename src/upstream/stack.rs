//! How a call reaches a node: the layers, in the order it meets them.

use std::{sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, join_all};
use tokio::{
    sync::Semaphore,
    time::{self, Instant},
};
use tower::{Service, ServiceBuilder, ServiceExt, layer::layer_fn, service_fn, util::BoxCloneSyncService};
use tracing::{Instrument, debug, debug_span, warn};

use super::{Answers, Call, Calls, Config, Metrics, UpstreamError, batch::Batcher};
use crate::{eth::is_write, jsonrpc::Answer, seldom::Seldom};

/// A node as a service: one call or several in, an answer for each out.
pub type Leaf = BoxCloneSyncService<Calls, Answers, UpstreamError>;

/// The upstream as the rest of the program sees it.
#[derive(Clone, Debug)]
pub struct Upstream {
    service: Leaf,
    batcher: Option<Batcher>,
}

// === impl Upstream ===

impl Upstream {
    /// Puts the stack in front of `leaf`, which logs call by `name`.
    pub fn new<L>(leaf: L, name: &str, config: &Config, metrics: &Metrics) -> Self
    where
        L: Service<Calls, Response = Answers, Error = UpstreamError, Future: Send>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        let (in_flight, wait, timeout) = (config.max_in_flight, config.max_wait, config.timeout);
        let service = ServiceBuilder::new()
            // First, so that the time spent waiting for a slot is not taken from the attempt.
            .layer(layer_fn(|inner| slots(inner, in_flight, wait)))
            // One endpoint for now: choosing among several, retrying and breaking belong here.
            .layer(layer_fn(|inner| attempt(inner, name, metrics.clone())))
            // Inside the attempt: an answer that cannot be right is this endpoint's failure.
            .layer(layer_fn(accept))
            // Whatever the leaf does, it does not do it for longer.
            .layer(layer_fn(|inner| deadline(inner, timeout)))
            .service(leaf);
        let service = BoxCloneSyncService::new(service);
        let batcher = (config.batch > 1).then(|| Batcher::new(service.clone(), config.batch));
        Self { service, batcher }
    }

    /// Sends one call.
    ///
    /// # Errors
    /// If no acceptable answer came.
    pub async fn call(&self, call: Call) -> Result<Answer, UpstreamError> {
        match &self.batcher {
            // What changes something is never sent twice, so it takes no part in what may be.
            Some(batcher) if !is_write(call.method.as_str()) => batcher.call(call).await,
            _ => self.call_all(vec![call]).await?.pop().unwrap_or(Err(UpstreamError::Empty)),
        }
    }

    /// Sends calls together, as one batch if they are several.
    ///
    /// # Errors
    /// If the request as a whole failed; each call may fail on its own too.
    pub async fn call_all(&self, calls: Calls) -> Result<Answers, UpstreamError> {
        self.service.clone().oneshot(calls).await
    }
}

/// What every layer here is: cheap to clone, with a boxed future, which a network call can afford.
trait Layered:
    Service<Calls, Response = Answers, Error = UpstreamError, Future: Send> + Clone + Send + Sync + 'static
{
}

impl<S> Layered for S where
    S: Service<Calls, Response = Answers, Error = UpstreamError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}

type Attempt = BoxFuture<'static, Result<Answers, UpstreamError>>;

/// Bounds the requests in flight, and the time spent waiting to be one of them.
fn slots(inner: impl Layered, max: usize, wait: Duration) -> impl Layered {
    let slots = Arc::new(Semaphore::new(max));
    service_fn(move |calls: Calls| -> Attempt {
        let (inner, slots) = (inner.clone(), slots.clone());
        Box::pin(async move {
            let _slot = match time::timeout(wait, slots.acquire()).await {
                Ok(slot) => slot.expect("the semaphore is never closed"),
                Err(_) => return Err(UpstreamError::Busy),
            };
            inner.oneshot(calls).await
        })
    })
}

/// Warns of what fails, seldom enough.
fn warn_of(said: &Seldom, error: &UpstreamError, upstream: &str) {
    if said.is_due(error.as_str()) {
        warn!(%error, upstream, "upstream failed");
    } else {
        debug!(%error, "upstream failed");
    }
}

/// Counts, times and logs one attempt at one endpoint.
fn attempt<L: Layered>(inner: L, name: &str, metrics: Metrics) -> impl Layered + use<L> {
    let name: Arc<str> = name.into();
    let said = Arc::new(Seldom::default());
    service_fn(move |calls: Calls| -> Attempt {
        let (inner, name, metrics) = (inner.clone(), name.clone(), metrics.clone());
        let said = said.clone();
        let methods = calls.len();
        let span = debug_span!("upstream", upstream = %name, calls = methods);
        Box::pin(
            async move {
                let _in_flight = metrics.begin();
                let begun = Instant::now();
                let answers = inner.oneshot(calls).await;
                let elapsed = begun.elapsed();
                metrics.request_ended(elapsed);
                match &answers {
                    Ok(answers) => {
                        debug!(?elapsed, "upstream answered");
                        for answer in answers {
                            metrics.call_ended(answer.as_ref());
                        }
                    }
                    Err(error) => {
                        warn_of(&said, error, &name);
                        (0..methods).for_each(|_| metrics.call_ended(Err(error)));
                    }
                }
                answers
            }
            .instrument(span),
        )
    })
}

/// Turns answers that do not pass their call's check into failures.
fn accept(inner: impl Layered) -> impl Layered {
    service_fn(move |calls: Calls| -> Attempt {
        let inner = inner.clone();
        Box::pin(async move {
            let answers = inner.oneshot(calls.clone()).await?;
            let accepted =
                answers.into_iter().zip(&calls).map(async |(answer, call)| call.accept(answer?).await);
            Ok(join_all(accepted).await)
        })
    })
}

/// Gives up on a leaf that takes too long.
fn deadline(inner: impl Layered, after: Duration) -> impl Layered {
    service_fn(move |calls: Calls| -> Attempt {
        let inner = inner.clone();
        Box::pin(async move {
            time::timeout(after, inner.oneshot(calls)).await.unwrap_or(Err(UpstreamError::TimedOut { after }))
        })
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        eth::{Block, BlockHash, BlockNumber, Receipts},
        jsonrpc::Params,
        verify::{self, Asked, AskedBlock, Known, Verified, Verifier},
    };

    fn upstream<F>(config: &Config, leaf: impl Fn(Calls) -> F + Clone + Send + Sync + 'static) -> Upstream
    where
        F: Future<Output = Result<Answers, UpstreamError>> + Send + 'static,
    {
        Upstream::new(service_fn(leaf), "test", config, &Metrics::default())
    }

    fn call() -> Call {
        Call::new("eth_blockNumber", Params::EMPTY)
    }

    fn zero() -> Answers {
        vec![Ok(Answer::Result(Bytes::from_static(b"\"0x0\"")))]
    }

    #[tokio::test(start_paused = true)]
    async fn a_leaf_that_hangs_is_given_up() {
        let upstream = upstream(&Config::default(), |_| std::future::pending());
        assert!(matches!(upstream.call(call()).await, Err(UpstreamError::TimedOut { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_a_slot_is_bounded_and_ends_when_one_is_free() {
        let config = Config { max_in_flight: 1, ..Config::default() };
        let upstream = upstream(&config, |_| async {
            time::sleep(Duration::from_secs(1)).await;
            Ok(zero())
        });
        let (one, two) = tokio::join!(upstream.call(call()), upstream.call(call()));
        assert!(one.is_ok() && two.is_ok());
        let (_, _, three, four) = tokio::join!(
            upstream.call(call()),
            upstream.call(call()),
            upstream.call(call()),
            upstream.call(call())
        );
        assert!([three, four].iter().any(|answer| matches!(answer, Err(UpstreamError::Busy))));
    }

    /// Knows nothing.
    struct Nothing;

    impl Known for Nothing {
        fn block(&self, _: BlockHash) -> Option<Arc<Verified<Block>>> {
            None
        }

        fn receipts(&self, _: BlockHash) -> Option<Arc<Verified<Receipts>>> {
            None
        }

        fn at(&self, _: BlockNumber) -> Option<BlockHash> {
            None
        }

        fn was_final(&self, _: BlockNumber) -> bool {
            false
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_not_accepted_is_a_failure_that_holds_it() {
        let upstream = upstream(&Config::default(), |_| std::future::ready(Ok(zero())));
        let verifier = Verifier::new(verify::Config::default(), verify::Metrics::default());
        let check = verifier.check_for(Asked::Block(AskedBlock::ByTag), Arc::new(Nothing));
        match upstream.call(call().with_check(check)).await {
            Err(UpstreamError::Rejected(mismatch)) => {
                assert_eq!(mismatch.answer, Answer::Result(Bytes::from_static(b"\"0x0\"")));
            }
            other => panic!("{other:?}"),
        }
        assert!(upstream.call(call()).await.is_ok());
    }
}
