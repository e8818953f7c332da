//! Puts the program's parts together, up to the service that answers HTTP requests.

use std::{net::IpAddr, time::SystemTime};

use ::http::{Request, Response};
use http_body::Body;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tower::Service;

use super::{build, error::StartError, tiers};
use crate::{
    budget::ByteBudget,
    cache::{self, Cache, Tiers},
    config::Config,
    http::{self, Access, AnswerBody, Edge},
    listen::Peer,
    proxy::{self, Answered, CallError, Policy, Proxy, ProxyParts},
    upstream::{self, EndpointParts, HeadFeed, Upstream},
    verify::{self, Verifier},
};

/// Parts that replace those that the configuration describes.
#[derive(Debug)]
pub(super) struct Supplied {
    pub(super) registry: Registry,
    pub(super) endpoints: Option<Vec<EndpointParts>>,
    pub(super) tiers: Option<Tiers>,
    pub(super) verifier: Option<Verifier>,
    pub(super) wall: fn() -> SystemTime,
}

/// The parts of the program, which share a registry of metrics and a budget of bytes. No task runs yet.
pub(super) struct Assembly<P> {
    pub(super) registry: Registry,
    pub(super) budget: ByteBudget,
    pub(super) upstream: Upstream,
    pub(super) upstream_metrics: upstream::Metrics,
    pub(super) feed: watch::Sender<Option<HeadFeed>>,
    pub(super) tiers: Tiers,
    pub(super) cache: Cache,
    pub(super) proxy: Proxy<P>,
    pub(super) call_metrics: proxy::Metrics,
    pub(super) settings: http::Reloadable,
    pub(super) access: Access,
    pub(super) request_metrics: http::Metrics,
}

/// Assembles the parts that `config` describes, except those that are supplied.
pub(super) fn assemble(
    config: &Config,
    supplied: Supplied,
) -> Result<
    Assembly<
        impl Service<proxy::Request, Response = Answered, Error = CallError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static
        + use<>,
    >,
    StartError,
> {
    let Supplied { mut registry, endpoints, tiers, verifier, wall } = supplied;
    let per_client = config.max_bytes_per_client.map(|bytes| bytes.as_u64());
    let budget = ByteBudget::new(config.max_bytes_in_flight.as_u64(), per_client);
    let (endpoints, feed) = match endpoints {
        Some(endpoints) => (endpoints, None),
        None => {
            let endpoints = build::endpoints(config, &budget).map_err(StartError::Config)?;
            (endpoints, build::feed(&config.upstream).map_err(StartError::Config)?)
        }
    };
    // Opens the tiers before the first upstream call, because this fails if another process uses the cache directory.
    let tiers = match tiers {
        Some(tiers) => tiers,
        None => tiers::open(&config.cache, budget.clone(), &mut registry)?,
    };
    let upstream_metrics = upstream::Metrics::register(&mut registry);
    let upstream = Upstream::new(endpoints, config.chain_id, &config.upstream, &upstream_metrics);
    upstream.register(&mut registry);
    let call_metrics = proxy::Metrics::register(&mut registry);
    let cache = Cache::new(&config.cache, cache::Metrics::register(&mut registry));
    let verifier = verifier
        .unwrap_or_else(|| Verifier::new(config.verify.clone(), verify::Metrics::register(&mut registry)));
    let parts = ProxyParts {
        upstream: upstream.clone(),
        cache: cache.clone(),
        tiers: tiers.clone(),
        verifier,
        consistent: build::is_consistent(&config.upstream.endpoints),
        wall,
        metrics: call_metrics.clone(),
    };
    let proxy = proxy::proxy(&config.proxy(), parts);
    proxy::register_gauges(&proxy.status, &mut registry);
    let request_metrics = http::Metrics::register(&mut registry);
    let settings = http::Reloadable::new(&config.http);
    settings.register(&budget, &mut registry);
    Ok(Assembly {
        access: Access::new(&config.http, Policy::new(&config.proxy()), request_metrics.clone()),
        feed: watch::Sender::new(feed),
        registry,
        budget,
        upstream,
        upstream_metrics,
        tiers,
        cache,
        proxy,
        call_metrics,
        settings,
        request_metrics,
    })
}

// === impl Assembly ===

impl<P> Assembly<P>
where
    P: Service<proxy::Request, Response = Answered, Error = CallError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    /// Returns the service that answers HTTP requests. `listen` is the address of its listener, if it has one;
    /// `admin` is the URL of the admin listener, for browsers that open the RPC address.
    pub(super) fn service<B>(
        &self,
        listen: Option<IpAddr>,
        admin: Option<String>,
    ) -> impl Service<
        Request<B>,
        Response = Response<impl AnswerBody + use<P, B>>,
        Error = std::convert::Infallible,
        Future: Send,
    >
    + Clone
    + Send
    + Sync
    + 'static
    + use<P, B>
    where
        B: Body<Data: Send> + Peer + Send + 'static,
    {
        let edge = Edge { budget: self.budget.clone(), access: self.access.clone(), listen, admin };
        http::stack(self.settings.clone(), edge, self.proxy.service.clone())
    }
}
