//! How a call reaches a node: the layers, in the order it meets them.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tower::{Service, ServiceBuilder, ServiceExt, layer::layer_fn, service_fn, util::BoxCloneSyncService};

use super::{
    Answers, Call, Calls, Config, EndpointId, EndpointParts, EndpointStatus, Identity, Metrics, Transport,
    UpstreamError,
    endpoint::AcceptedAnswer,
    identity::PinnedChain,
    pool::{EndpointGauges, Pool, assemble},
};
use crate::{eth::BlockNumber, jsonrpc::Answer, timeout::timeout, verify::Verdict};

/// The upstream as the rest of the program sees it: all endpoints of one chain.
#[derive(Clone, Debug)]
pub struct Upstream {
    pool: Arc<Pool>,
    service: Transport,
}

// === impl Upstream ===

impl Upstream {
    /// Puts the stack in front of `endpoints`, which must all serve the same chain: `chain_id`, if that is
    /// given. Somebody must [watch](Self::watch_identity) who they are.
    pub fn new(
        endpoints: Vec<EndpointParts>,
        chain_id: Option<u64>,
        config: &Config,
        metrics: &Metrics,
    ) -> Self {
        let pinned_chain = Arc::new(PinnedChain::new(chain_id));
        let endpoints = assemble(Vec::new(), endpoints, Some(&pinned_chain), config, metrics);
        Self::over(Pool::new(endpoints, pinned_chain, config, metrics.clone()), config)
    }

    /// One endpoint that is asked whoever it is.
    pub fn single(parts: EndpointParts, config: &Config, metrics: &Metrics) -> Self {
        let endpoints = assemble(Vec::new(), vec![parts], None, config, metrics);
        let pool = Pool::new(endpoints, Arc::new(PinnedChain::new(None)), config, metrics.clone());
        Self::over(pool, config)
    }

    fn over(pool: Pool, config: &Config) -> Self {
        let (in_flight, wait) = (config.max_in_flight, config.max_wait);
        let pool = Arc::new(pool);
        let service = ServiceBuilder::new()
            // Above the attempts, so that the time spent waiting for a slot is not taken from the attempts.
            .layer(layer_fn(|inner| limit_in_flight(inner, in_flight, wait)))
            // Chooses an endpoint for these calls, and another for those that fail there. What an endpoint does
            // with a call is in `endpoint`: identity, breaker, rate, time-out, transport, acceptance.
            .service(dispatch(pool.clone()));
        Self { pool, service: BoxCloneSyncService::new(service) }
    }

    /// Sends one call.
    ///
    /// # Errors
    /// If no acceptable answer came.
    pub async fn call(&self, call: Call) -> Result<Answer, UpstreamError> {
        self.call_all(vec![call]).await?.pop().unwrap_or(Err(UpstreamError::Empty))
    }

    /// Sends calls together, as one batch if they are several. What may not be sent twice goes
    /// [alone](Self::call).
    ///
    /// # Errors
    /// If the request as a whole failed; each call may fail on its own too.
    pub async fn call_all(&self, calls: Calls) -> Result<Answers, UpstreamError> {
        let calls = calls.into_iter().map(Call::with_current_context).collect();
        self.service.clone().oneshot(calls).await
    }

    /// Who the endpoints are.
    pub fn identity(&self) -> Identity {
        Identity::new(self.pool.endpoints.clone())
    }

    /// Asks the endpoints who they are, for as long as it runs.
    pub fn watch_identity(&self) -> impl Future<Output = ()> + Send + use<> {
        let endpoints = self.pool.endpoints.clone();
        async move { endpoints.watch().await }
    }

    /// This endpoint lags: if it is the one that is followed, the next refresh may ask another.
    pub fn demote(&self, lags: EndpointId) {
        self.pool.primary.demote(lags);
    }

    /// Returns whether an endpoint that comes before the primary in order does well again, so that it is time to compare
    /// their heads. The next call for the head does.
    pub fn is_preferred_check_due(&self) -> bool {
        self.pool.primary.is_preferred_check_due()
    }

    /// Is there one endpoint only?
    pub fn is_single(&self) -> bool {
        self.pool.endpoints.is_single()
    }

    /// Asks one that is well and is not this one, once: who answered, and what its check found. `None` if there is none,
    /// or it fails.
    pub async fn call_another(&self, than: EndpointId, call: Call) -> Option<(EndpointId, Option<Verdict>)> {
        self.pool.primary.call_another(than, call).await
    }

    /// Sends one call to this endpoint, once, and to no other.
    ///
    /// # Errors
    /// If no acceptable answer came, or the endpoint cannot be asked now.
    pub async fn call_one(&self, id: EndpointId, call: Call) -> Result<Answer, UpstreamError> {
        let call = call.with_current_context();
        match self.pool.send_to(id, call.clone()).await {
            Some(outcome) => deliver(&call, outcome),
            None => Err(UpstreamError::Empty),
        }
    }

    /// If this endpoint is followed, the other is from now on: it is further.
    pub fn switch_primary(&self, of: EndpointId, other: EndpointId) {
        self.pool.primary.switch(of, other);
    }

    /// Has this endpoint shown a block as high as this?
    pub fn has_reached(&self, endpoint: EndpointId, block: BlockNumber) -> bool {
        self.pool.endpoints.has_reached(endpoint, block)
    }

    /// Why nobody answers, if all of them have failed and none has answered since. Who asks this has them asked
    /// whether they are back: without it, a program that nobody uses since it is not ready would never be ready again.
    pub fn outage(&self) -> Option<UpstreamError> {
        self.pool.endpoints.outage()
    }

    /// The same, and nobody is asked.
    pub fn is_down(&self) -> bool {
        self.pool.endpoints.is_down()
    }

    /// How the endpoints do, and which of them is followed.
    pub fn status(&self) -> (Vec<EndpointStatus>, Option<EndpointId>) {
        self.pool.status()
    }

    /// From here on these are the endpoints. Calls under way end where they are; an endpoint that was there before, since
    /// it is reached with the same, stays what it is: with its breaker, its pause, its name.
    pub fn replace(&self, endpoints: Vec<EndpointParts>, config: &Config) {
        let set = &self.pool.endpoints;
        let before = set.load().to_vec();
        set.replace(assemble(before, endpoints, Some(set.pinned_chain()), config, self.pool.metrics()));
    }

    /// Registers `endpoint_state{endpoint,state}`, `endpoint_primary{endpoint}` and `endpoint_head{endpoint}`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(EndpointGauges::new(self.pool.clone())));
    }
}

/// What every layer here is: cheap to clone, with a boxed future, which a network call can afford.
trait CallService:
    Service<Calls, Response = Answers, Error = UpstreamError, Future: Send> + Clone + Send + Sync + 'static
{
}

impl<S> CallService for S where
    S: Service<Calls, Response = Answers, Error = UpstreamError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}

type AnswersFuture = BoxFuture<'static, Result<Answers, UpstreamError>>;

/// Bounds the requests in flight, and the time spent waiting to be one of them.
fn limit_in_flight(inner: impl CallService, max: usize, wait: Duration) -> impl CallService {
    let slots = Arc::new(Semaphore::new(max));
    service_fn(move |calls: Calls| -> AnswersFuture {
        let (inner, slots) = (inner.clone(), slots.clone());
        Box::pin(async move {
            // The view has few: one refresh of each tag at a time.
            let _slot = if calls.iter().all(|call| call.requirements.for_view) {
                None
            } else {
                let slot = timeout(wait, slots.acquire()).await.map_err(|_| UpstreamError::Busy)?;
                Some(slot.expect("the semaphore is never closed"))
            };
            inner.oneshot(calls).await
        })
    })
}

/// Sends calls to as many endpoints as it takes, and leaves what was found of each answer with its call.
fn dispatch(pool: Arc<Pool>) -> impl CallService {
    service_fn(move |calls: Calls| -> AnswersFuture {
        let pool = pool.clone();
        Box::pin(async move {
            pool.primary.check_preferred(&calls);
            let attempted = pool.send(&calls).await;
            Ok(calls.iter().zip(attempted).map(|(call, outcome)| deliver(call, outcome)).collect())
        })
    })
}

/// Leaves with a call what was found of its answer, and by whom it was given.
fn deliver(call: &Call, outcome: Result<AcceptedAnswer, UpstreamError>) -> Result<Answer, UpstreamError> {
    let accepted = match outcome {
        Ok(accepted) => accepted,
        // Nobody had anything better to say.
        Err(error) => return error.into_answer(),
    };
    if let Some(check) = &call.check {
        check.settle(accepted.verdict);
    }
    if let Some(by) = &call.answered_by {
        by.set(accepted.by);
    }
    Ok(accepted.answer)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        eth::{Block, BlockHash, BlockNumber, Part, Query, Receipts, Tag},
        jsonrpc::Params,
        upstream::{EndpointConfig, Health},
        verify::{self, Check, Known, Verified, Verifier},
    };

    fn upstream<F>(
        config: &Config,
        transport: impl Fn(Calls) -> F + Clone + Send + Sync + 'static,
    ) -> Upstream
    where
        F: Future<Output = Result<Answers, UpstreamError>> + Send + 'static,
    {
        let transport = BoxCloneSyncService::new(service_fn(transport));
        let parts = EndpointParts {
            name: "test".into(),
            address: None,
            transport,
            config: EndpointConfig::at("http://test"),
        };
        Upstream::single(parts, config, &Metrics::default())
    }

    fn call() -> Call {
        Call::new("eth_blockNumber", Params::EMPTY)
    }

    fn zero() -> Answers {
        vec![Ok(Answer::Result(Bytes::from_static(b"\"0x0\"")))]
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_transport_times_out() {
        let upstream = upstream(&Config::default(), |_| std::future::pending());
        assert!(matches!(upstream.call(call()).await, Err(UpstreamError::TimedOut { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_a_slot_is_bounded_and_ends_when_one_is_free() {
        let config = Config { max_in_flight: 1, ..Config::default() };
        let upstream = upstream(&config, |_| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
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
        let check = Check::new(verifier.clone(), Query::new(Part::Block, Tag::Latest), Arc::new(Nothing));
        match upstream.call(call().with_check(check)).await {
            Err(UpstreamError::Rejected(mismatch)) => {
                assert_eq!(mismatch.answer, Answer::Result(Bytes::from_static(b"\"0x0\"")));
            }
            other => panic!("{other:?}"),
        }
        assert!(upstream.call(call()).await.is_ok());
    }

    /// Two that are asked whoever they are, the first one first.
    fn in_order(transports: [Transport; 2], config: &Config) -> Upstream {
        let parts = transports.into_iter().zip(0..).map(|(transport, priority)| EndpointParts {
            name: format!("test {priority}").into(),
            address: None,
            transport,
            config: EndpointConfig { priority, ..EndpointConfig::at("http://test") },
        });
        let endpoints = assemble(Vec::new(), parts.collect(), None, config, &Metrics::default());
        Upstream::over(
            Pool::new(endpoints, Arc::new(PinnedChain::new(None)), config, Metrics::default()),
            config,
        )
    }

    /// A transport that gives the same answer to each call.
    fn says(answer: Result<Answer, UpstreamError>) -> Transport {
        BoxCloneSyncService::new(service_fn(move |calls: Calls| {
            std::future::ready(Ok(vec![answer.clone(); calls.len()]))
        }))
    }

    fn result(text: &'static str) -> Result<Answer, UpstreamError> {
        Ok(Answer::Result(Bytes::from_static(text.as_bytes())))
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_as_large_is_asked_of_another_and_what_can_is_not() {
        let too_large = |is_batch| Err(UpstreamError::TooLarge { limit: 1, is_batch });
        for (method, elsewhere) in [
            ("eth_blockNumber", true),
            ("eth_getBlockByNumber", true),
            ("eth_getTransactionReceipt", true),
            ("eth_getBlockReceipts", true),
            ("eth_getBlockTransactionCountByNumber", true),
            ("eth_getLogs", false),
            ("debug_traceBlockByNumber", false),
        ] {
            let upstream = in_order([says(too_large(false)), says(result("\"0x0\""))], &Config::default());
            for _ in 0..8 {
                let answer = upstream.call(Call::new(method, Params::EMPTY)).await;
                assert_eq!(answer.is_ok(), elsewhere, "{method}: {answer:?}");
            }
            let is_left = upstream.status().0[0].health != Health::Closed;
            assert_eq!(is_left, elsewhere, "{method}");
        }
        // Together they are, wherever they are asked for; that is nobody's fault.
        let upstream = in_order([says(too_large(true)), says(result("\"0x0\""))], &Config::default());
        for _ in 0..8 {
            let answers = upstream.call_all(vec![call(), call()]).await.unwrap();
            assert!(answers.iter().all(Result::is_err), "{answers:?}");
        }
        assert_eq!(upstream.status().0[0].health, Health::Closed);
    }
}
