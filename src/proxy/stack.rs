//! The layers around a call, in the order it meets them.

use std::sync::Arc;

use tower::{Service, ServiceBuilder};

use super::{
    Answered, CallError, Config, Follower, Metrics, Request, Sight, deadline::DeadlineLayer, fetch::Fetcher,
    measure::MeasureLayer, policy::PolicyLayer, respond::Responder, view::View,
};
use crate::{cache::Cache, upstream::Upstream, verify::Verifier};

/// What a proxy is made of.
#[derive(Clone, Debug)]
pub struct ProxyParts {
    /// Who is asked. Somebody must [watch](Upstream::watch) who that is.
    pub upstream: Upstream,
    /// Where content is kept.
    pub cache: Cache,
    /// Who checks it before.
    pub verifier: Verifier,
    /// Is the upstream one node, without a balancer in between?
    pub consistent: bool,
    /// Who counts.
    pub metrics: Metrics,
}

/// A service that answers calls, cheap to clone and always ready; who follows the chain for it, if
/// somebody [runs](Follower::run) it; and what it sees of the chain.
pub fn proxy(
    config: &Config,
    parts: ProxyParts,
) -> (
    impl Service<Request, Response = Answered, Error = CallError, Future: Send> + Clone + Send + Sync + 'static,
    Follower,
    Sight,
) {
    let ProxyParts { upstream, cache, verifier, consistent, metrics } = parts;
    let identity = upstream.identity();
    let view = Arc::new(View::new(
        config.chain.clone(),
        consistent,
        cache.clone(),
        upstream.clone(),
        identity.clone(),
        verifier.clone(),
        metrics.clone(),
    ));
    let fetcher = Fetcher::new(view, cache, upstream.clone(), identity.clone(), verifier, metrics.clone());
    let fetcher = Arc::new(fetcher);
    let sight = Sight::new(fetcher.clone());
    let follower = Follower::new(fetcher.clone(), &config.chain);
    let service = ServiceBuilder::new()
        // Outermost, so that refusals are counted too.
        .layer(MeasureLayer(metrics))
        // Before anything that costs something.
        .layer(PolicyLayer::new(config))
        // Around whatever may wait.
        .layer(DeadlineLayer(config.call_timeout))
        .service(Responder::new(fetcher, upstream, identity, config.clone()));
    (service, follower, sight)
}
