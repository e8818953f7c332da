//! The layers around a call, in the order in which a call passes them.

use std::sync::Arc;

use tower::{Layer, Service, ServiceBuilder};

use super::{
    call::{client_limit::ClientConcurrency, outcome::Answered, request::Request},
    config::Config,
    error::CallError,
    head::{Canon, HeadTracker, SharedView},
    layers::{
        admit::AdmitLayer, cached::CachedLayer, composed::ComposedLayer, deadline::DeadlineLayer,
        measure::MeasureLayer, raw::RawTools,
    },
    logs::LogTools,
    lookup::{CacheLookup, CacheState},
    miss::{
        answer::Answerer, content::ContentAnswerer, deflate::Deflater, existing::KnownToExist,
        fetcher::Fetcher, forward::Forwarder, load::Loader, prove::Prover, respond::Responder, store::Store,
    },
    operate::{follower::Follower, inspect::Inspector, status::Status},
    parts::ProxyParts,
    reloadable::Reloadable,
    tiers::TierSync,
};
use crate::workers::{Limits, Workers};

/// A proxy, and the handles to inspect and change it.
#[derive(Debug)]
pub struct Proxy<S> {
    /// Answers calls.
    pub service: S,
    /// Follows the chain while a task [runs](Follower::run) it.
    pub follower: Follower,
    /// Reports the state of the chain.
    pub status: Status,
    /// Shows and removes cached entries.
    pub inspector: Inspector,
    /// Settings that a reload changes.
    pub reloadable: Reloadable,
}

/// Returns a proxy whose service is cheap to clone and always ready.
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
    let ProxyParts { upstream, cache, verifier, metrics, .. } = parts.clone();
    let identity = upstream.identity();
    // Canonicity.
    let view = Arc::new(SharedView::new(config.chain.clone(), &parts));
    identity.on_wrong_chain(on_view(&view, SharedView::invalidate));
    verifier.on_first_proof(on_view(&view, SharedView::drop_unproved));
    let head = Arc::new(HeadTracker::new(view.clone(), &parts));
    let tiers = TierSync::new(view.clone(), &parts);
    // Content.
    let state = Arc::new(CacheState::new(cache));
    let lookup = Arc::new(CacheLookup::new(state.clone(), view.clone(), verifier.clone(), metrics.clone()));
    let store = Store::new(state.clone(), verifier.clone(), tiers.write_back().clone());
    let existing = KnownToExist::new(state.clone(), view.clone());
    let canon = Canon::new(head.clone(), metrics.clone());
    let fetcher = Arc::new(Fetcher::new(canon.clone(), store.clone(), existing, &parts));
    let loader = Arc::new(Loader::new(tiers, canon, state.clone(), store, config.chain_id, &parts));
    // Misses.
    let prover = Prover::new(fetcher.clone());
    let forwarder = Forwarder::new(prover.clone(), upstream.clone());
    let content =
        ContentAnswerer::new(lookup.clone(), prover, forwarder.clone(), loader.clone(), metrics.clone());
    let concurrency = ClientConcurrency::new(config.fetches);
    let answerer = Answerer::new(content, concurrency.clone());
    let reloadable = Reloadable::new(config, view.clone());
    let deflater = Deflater::new();
    // Apart from the proof threads, whose queue is for answers that enter the cache.
    let workers = Arc::new(Workers::new("work", Limits::default(), metrics.jobs_waiting()));
    let raw = RawTools::new(verifier.clone(), view.clone(), concurrency.clone(), workers.clone());
    let logs = LogTools {
        limits: config.logs,
        lookup: lookup.clone(),
        fetcher: fetcher.clone(),
        forwarder,
        loader: loader.clone(),
        concurrency,
        workers,
    };
    let responder = Responder::new(answerer, upstream, verifier.clone(), deflater.clone());
    // Components that serve no client calls.
    let composing = verifier.clone();
    let status = Status::new(head.clone(), state.clone(), verifier);
    let inspector = Inspector::new(view.clone(), state.clone(), loader);
    let follower = Follower::new(head, state, fetcher, &parts, &config.chain);
    let misses = ServiceBuilder::new()
        // Around all work that may wait.
        .layer(DeadlineLayer(reloadable.call_timeout.clone()))
        .service(responder);
    let cached = CachedLayer { lookup, view, identity: identity.clone() };
    let content = cached.layer(misses.clone());
    let limit = reloadable.call_timeout.clone();
    let composed = ComposedLayer::new(content, (raw, logs), composing, limit, deflater);
    let service = ServiceBuilder::new()
        // Outermost, to count refusals too.
        .layer(MeasureLayer(metrics))
        // Before any other work.
        .layer(AdmitLayer(identity))
        // Answers hits without waiting.
        .layer(cached)
        // Composes answers of the content that the cached layer answers with.
        .layer(composed)
        .service(misses);
    Proxy { service, follower, status, inspector, reloadable }
}

/// Returns a callback that calls `notify` while the view exists.
fn on_view<T>(view: &Arc<SharedView>, notify: fn(&SharedView) -> T) -> impl Fn() + Send + Sync + 'static
where
    T: 'static,
{
    let view = Arc::downgrade(view);
    move || drop(view.upgrade().map(|view| notify(&view)))
}
