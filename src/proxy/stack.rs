//! The layers around a call, in the order it meets them.

use std::{sync::Arc, time::SystemTime};

use tower::{Service, ServiceBuilder};

use crate::{
    cache::{Cache, Tiers},
    proxy::{
        call::request::{Answered, Request},
        config::Config,
        error::CallError,
        head::View,
        layers::{
            admit::AdmitLayer,
            cached::{RecallLayer, Recollection},
            deadline::DeadlineLayer,
            measure::MeasureLayer,
        },
        metrics::Metrics,
        miss::{fetcher::Fetcher, respond::Responder},
        operate::{follower::Follower, status::Sight, warm::Warmer},
        reloadable::Live,
    },
    upstream::Upstream,
    verify::Verifier,
};

/// What a proxy is made of.
#[derive(Clone, Debug)]
pub struct ProxyParts {
    /// Who is asked. Somebody must [watch](Upstream::watch_identity) who that is.
    pub upstream: Upstream,
    /// Where content is kept.
    pub cache: Cache,
    /// Where what is final outlives it.
    pub tiers: Tiers,
    /// Who checks it before.
    pub verifier: Verifier,
    /// Is the upstream one node, without a balancer in between?
    pub consistent: bool,
    /// The wall's clock, which goes on while the machine sleeps.
    pub wall: fn() -> SystemTime,
    /// Who counts.
    pub metrics: Metrics,
}

/// A proxy, and what it is looked at and changed by.
#[derive(Debug)]
pub struct Proxy<S> {
    /// Answers calls.
    pub service: S,
    /// Follows the chain for it, if somebody [runs](Follower::run) it.
    pub follower: Follower,
    /// What it sees of the chain.
    pub sight: Sight,
    /// Fetches for it what nobody has asked for yet.
    pub warmer: Warmer,
    /// What can change while it answers.
    pub live: Live,
}

/// A proxy whose service is cheap to clone and always ready.
pub fn proxy(
    config: &Config,
    parts: ProxyParts,
) -> Proxy<
    impl Service<Request, Response = Answered, Error = CallError, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static
    + use<>,
> {
    let view = Arc::new(View::new(config.chain.clone(), &parts));
    let heeding = Arc::downgrade(&view);
    parts.upstream.identity().on_wrong_chain(move || {
        if let Some(view) = heeding.upgrade() {
            view.invalidate();
        }
    });
    let live = Live::new(config, view.clone());
    let fetcher = Arc::new(Fetcher::new(view, &parts, config.chain_id));
    let sight = Sight::new(fetcher.clone());
    let warmer = Warmer::new(fetcher.clone());
    let follower = Follower::new(fetcher.clone(), &config.chain);
    let ProxyParts { upstream, metrics, .. } = parts;
    let identity = upstream.identity();
    let memory = Arc::new(Recollection::new(fetcher, identity.clone()));
    let service = ServiceBuilder::new()
        // Outermost, so that refusals are counted too.
        .layer(MeasureLayer(metrics))
        // Before anything that costs something.
        .layer(AdmitLayer)
        // What is in memory is answered here and now.
        .layer(RecallLayer(memory.clone()))
        // Around whatever may wait.
        .layer(DeadlineLayer(live.call_timeout.clone()))
        .service(Responder::new(memory, upstream, identity, config));
    Proxy { service, follower, sight, warmer, live }
}
