//! The upstream as the rest of the program sees it.

use std::sync::Arc;

use prometheus_client::registry::Registry;

use super::{
    AcceptedAnswer, AcceptedAnswers, Call, Calls, Config, EndpointId, EndpointParts, EndpointStatus,
    Identity, Metrics, UpstreamError,
    identity::PinnedChain,
    pool::{EndpointGauges, Pool, assemble},
};
use crate::{eth::BlockNumber, verify::Verdict};

/// All endpoints of one chain. Cheap to clone.
///
/// A call waits for a slot, then for an endpoint, and is sent again if the answer is none or a wrong one. The module
/// `endpoint` contains the steps at one endpoint: identity, breaker, rate, time-out, transport, acceptance.
#[derive(Clone, Debug)]
pub struct Upstream {
    pool: Arc<Pool>,
}

// === impl Upstream ===

impl Upstream {
    /// Builds the stack in front of `endpoints`, which must all serve the same chain: `chain_id`, if given. The
    /// caller must run [`watch_identity`](Self::watch_identity).
    pub fn new(
        endpoints: Vec<EndpointParts>,
        chain_id: Option<u64>,
        config: &Config,
        metrics: &Metrics,
    ) -> Self {
        let pinned_chain = Arc::new(PinnedChain::new(chain_id));
        let endpoints = assemble(Vec::new(), endpoints, Some(&pinned_chain), config, metrics);
        Self { pool: Arc::new(Pool::new(endpoints, pinned_chain, config, metrics.clone())) }
    }

    /// Builds the stack in front of one endpoint, without checking its chain identity.
    pub fn single(parts: EndpointParts, config: &Config, metrics: &Metrics) -> Self {
        let endpoints = assemble(Vec::new(), vec![parts], None, config, metrics);
        let pool = Pool::new(endpoints, Arc::new(PinnedChain::new(None)), config, metrics.clone());
        Self { pool: Arc::new(pool) }
    }

    /// Sends one call.
    ///
    /// # Errors
    /// If no endpoint gave an acceptable answer.
    pub async fn call(&self, call: Call) -> Result<AcceptedAnswer, UpstreamError> {
        self.call_all(vec![call]).await.pop().unwrap_or(Err(UpstreamError::Empty))
    }

    /// Sends calls together, as a batch if there are several. A call that must not be sent twice must be sent
    /// [alone](Self::call).
    pub async fn call_all(&self, calls: Calls) -> AcceptedAnswers {
        let calls: Calls = calls.into_iter().map(Call::with_current_context).collect();
        self.pool.primary.check_preferred(&calls);
        // Boxed, because this future is part of many others, and large.
        let attempted = Box::pin(self.pool.send(&calls)).await;
        attempted.into_iter().map(deliver).collect()
    }

    /// Returns the chain identity of the endpoints.
    pub fn identity(&self) -> Identity {
        Identity::new(self.pool.endpoints.clone())
    }

    /// Watches the chain identity of the endpoints for as long as the future runs.
    pub fn watch_identity(&self) -> impl Future<Output = ()> + Send + use<> {
        let endpoints = self.pool.endpoints.clone();
        async move { endpoints.watch().await }
    }

    /// Reports that an endpoint lags: if it is the primary, another suitable endpoint replaces it.
    pub fn demote(&self, lags: EndpointId) {
        self.pool.primary.demote(lags);
    }

    /// Returns whether an endpoint preferred to the primary is healthy again, so that it is time to compare their
    /// heads. The next call for the head makes the comparison.
    pub fn is_preferred_check_due(&self) -> bool {
        self.pool.primary.is_preferred_check_due()
    }

    /// Returns whether there is only one endpoint.
    pub fn is_single(&self) -> bool {
        self.pool.endpoints.is_single()
    }

    /// Sends the call once to a healthy endpoint other than `than`. Returns that endpoint and the verdict on its
    /// answer; `None` if no such endpoint exists or it fails.
    pub async fn call_another(&self, than: EndpointId, call: Call) -> Option<(EndpointId, Option<Verdict>)> {
        self.pool.primary.call_another(than, call).await
    }

    /// Sends one call to this endpoint only, once.
    ///
    /// # Errors
    /// If the answer is not acceptable, or the endpoint is unavailable.
    pub async fn call_one(&self, id: EndpointId, call: Call) -> Result<AcceptedAnswer, UpstreamError> {
        let call = call.with_current_context();
        self.pool.send_to(id, call).await.map_or(Err(UpstreamError::Empty), deliver)
    }

    /// Returns the primary.
    pub fn primary(&self) -> Option<EndpointId> {
        self.pool.primary.endpoint()
    }

    /// Makes `other` the primary in place of `of`, because it has a newer head. Does nothing if `of` is not the
    /// primary.
    pub fn switch_primary(&self, of: EndpointId, other: EndpointId) {
        self.pool.primary.switch(of, other);
    }

    /// Returns whether the endpoint has shown a block at this height or above.
    pub fn has_reached(&self, endpoint: EndpointId, block: BlockNumber) -> bool {
        self.pool.endpoints.has_reached(endpoint, block)
    }

    /// Returns the reason of an outage if all endpoints have failed and none has answered since, and probes them
    /// for recovery. Without the probes, an instance that gets no traffic because it is not ready would never
    /// become ready again.
    pub fn outage(&self) -> Option<UpstreamError> {
        self.pool.endpoints.outage()
    }

    /// Sends an identity check to each endpoint that has failed or refuses calls, to see whether it has recovered.
    pub fn probe(&self) {
        self.pool.endpoints.probe();
    }

    /// Returns the reason of a refusal, if every endpoint refuses calls: by a rate limit, or for lack of access.
    pub fn refusal(&self) -> Option<UpstreamError> {
        self.pool.endpoints.refusal()
    }

    /// Returns whether all endpoints have failed and none has answered since, without probing them.
    pub fn is_down(&self) -> bool {
        self.pool.endpoints.is_down()
    }

    /// Returns the status of all endpoints, and the primary.
    pub fn status(&self) -> (Vec<EndpointStatus>, Option<EndpointId>) {
        self.pool.status()
    }

    /// Replaces the endpoints. Calls in flight finish where they are. An endpoint whose address stays the same
    /// keeps its state: breaker, pause and name.
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

/// If no endpoint gave a better answer, the client gets the node's error object, if there is one.
fn deliver(outcome: Result<AcceptedAnswer, UpstreamError>) -> Result<AcceptedAnswer, UpstreamError> {
    outcome.or_else(|error| error.into_answer().map(AcceptedAnswer::unverified))
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use bytes::Bytes;
    use parking_lot::Mutex;
    use tokio::sync::oneshot;
    use tower::{service_fn, util::BoxCloneSyncService};

    use super::*;
    use crate::{
        eth::{Block, BlockHash, Part, Query, Receipts, Tag},
        jsonrpc::{Answer, Params},
        upstream::{Answers, EndpointConfig, Health, Transport},
        verify::{self, Check, Known, KnownReceipts, Verified, Verifier},
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
    async fn wait_for_a_slot_is_bounded_and_ends_when_one_frees() {
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

    /// Holds the thread that looks up known content, until the test releases it.
    struct Holds {
        begins: Mutex<Option<oneshot::Sender<()>>>,
        released: Mutex<mpsc::Receiver<()>>,
    }

    impl Known for Holds {
        fn block(&self, _: BlockHash) -> Option<Arc<Verified<Block>>> {
            None
        }

        fn receipts(&self, _: BlockHash) -> Option<Arc<Verified<Receipts>>> {
            None
        }

        fn at(&self, _: BlockNumber) -> Option<BlockHash> {
            if let Some(begins) = self.begins.lock().take() {
                begins.send(()).unwrap();
                self.released.lock().recv().unwrap();
            }
            None
        }

        fn was_final(&self, _: BlockNumber) -> bool {
            false
        }
    }

    #[tokio::test]
    async fn answer_holds_no_slot_while_it_is_checked() {
        let config = Config { max_in_flight: 1, ..Config::default() };
        let upstream = upstream(&config, |_| std::future::ready(Ok(vec![result("[]")])));
        let (begins, begun) = oneshot::channel();
        let (release, released) = mpsc::sync_channel(1);
        let known = Holds { begins: Mutex::new(Some(begins)), released: Mutex::new(released) };
        let verifier = Verifier::new(verify::Config::default(), verify::Metrics::default());
        let check = Check::new(verifier, Query::new(Part::Receipts, BlockNumber(1)), Arc::new(known));
        let checking = upstream.clone();
        let checked = tokio::spawn(async move { checking.call(call().with_check(check)).await });
        begun.await.unwrap();
        assert!(upstream.call(call()).await.is_ok());
        release.send(()).unwrap();
        assert!(checked.await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn rejected_answer_is_returned_in_the_error() {
        let upstream = upstream(&Config::default(), |_| std::future::ready(Ok(zero())));
        let verifier = Verifier::new(verify::Config::default(), verify::Metrics::default());
        let known = Arc::new(KnownReceipts::default());
        let check = Check::new(verifier.clone(), Query::new(Part::Block, Tag::Latest), known);
        match upstream.call(call().with_check(check)).await {
            Err(UpstreamError::Rejected(mismatch)) => {
                assert_eq!(mismatch.answer, Answer::Result(Bytes::from_static(b"\"0x0\"")));
            }
            other => panic!("{other:?}"),
        }
        assert!(upstream.call(call()).await.is_ok());
    }

    /// Two endpoints without identity checks, the first one preferred.
    fn in_order(transports: [Transport; 2], config: &Config) -> Upstream {
        let parts = transports.into_iter().zip(0..).map(|(transport, priority)| EndpointParts {
            name: format!("test {priority}").into(),
            address: None,
            transport,
            config: EndpointConfig { priority, ..EndpointConfig::at("http://test") },
        });
        let endpoints = assemble(Vec::new(), parts.collect(), None, config, &Metrics::default());
        let pool = Pool::new(endpoints, Arc::new(PinnedChain::new(None)), config, Metrics::default());
        Upstream { pool: Arc::new(pool) }
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
    async fn too_large_answers_fail_over_only_for_bounded_methods() {
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
        // A batch that is too large at one endpoint would be too large at any, so it counts against none of them.
        let upstream = in_order([says(too_large(true)), says(result("\"0x0\""))], &Config::default());
        for _ in 0..8 {
            let answers = upstream.call_all(vec![call(), call()]).await;
            assert!(answers.iter().all(Result::is_err), "{answers:?}");
        }
        assert_eq!(upstream.status().0[0].health, Health::Closed);
    }
}
