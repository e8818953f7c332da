//! The layers around a call, in the order it meets them.

use tower::{Service, ServiceBuilder};

use super::{
    Answered, CallError, Config, Identity, Metrics, Request, deadline::DeadlineLayer, measure::MeasureLayer,
    policy::PolicyLayer, respond::Responder,
};
use crate::upstream::Upstream;

/// What a proxy is made of.
#[derive(Clone, Debug)]
pub struct ProxyParts {
    /// Who is asked.
    pub upstream: Upstream,
    /// Who that should be. Somebody must [watch](Identity::watch) it.
    pub identity: Identity,
    /// Who counts.
    pub metrics: Metrics,
}

/// A service that answers calls. Cheap to clone, and always ready.
pub fn proxy(
    config: &Config,
    parts: ProxyParts,
) -> impl Service<Request, Response = Answered, Error = CallError, Future: Send> + Clone + Send + Sync + 'static
{
    ServiceBuilder::new()
        // Outermost, so that refusals are counted too.
        .layer(MeasureLayer(parts.metrics))
        // Before anything that costs something.
        .layer(PolicyLayer::new(config))
        // Around whatever may wait.
        .layer(DeadlineLayer(config.call_timeout))
        .service(Responder::new(parts.upstream, parts.identity))
}
