//! An endpoint: identity, transport, health, and whether it is available.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;
use tower::load::{CompleteOnResponse, Load, PeakEwma};
use tracing::warn;

use super::{
    super::{
        EndpointConfig, EndpointId, Requirements, UpstreamError,
        identity::{IdentityProbe, PinnedChain},
        metrics::EndpointMetrics,
        transport::{ConnectionMonitor, EndpointAddress, Secrets, Transport, TransportSettings},
    },
    Availability, EndpointStatus, Score,
    health::{EndpointHealth, MISMATCH_PENALTY},
};
use crate::{eth::BlockNumber, log_throttle::LogThrottle};

/// Assumed response time of an endpoint that has not been called yet. It is lower than that of a slow endpoint, so
/// that the new endpoint gets calls.
const DEFAULT_RTT: Duration = Duration::from_millis(100);

/// Time constant with which the effect of a slow answer on the load decays.
const DECAY: Duration = Duration::from_secs(10);

/// How long a failure counts against an endpoint when one is chosen. The failure must expire, because an endpoint that
/// gets no calls cannot show that it has recovered.
const FAILURE_PENALTY_TTL: Duration = Duration::from_secs(5);

/// One endpoint.
#[derive(Debug)]
pub(in crate::upstream) struct Endpoint {
    pub(super) id: EndpointId,
    pub(super) name: Arc<str>,
    /// URL and headers. `None` if unknown; a reload never reuses such an endpoint.
    address: Option<EndpointAddress>,
    priority: AtomicU32,
    weight: AtomicU32,
    /// Settings of the current transport.
    settings: Mutex<TransportSettings>,
    pub(super) transport: Mutex<PeakEwma<Transport>>,
    pub(super) health: Mutex<EndpointHealth>,
    pub(super) monitor: Arc<ConnectionMonitor>,
    /// Chain identity. `None` if it is not checked.
    pub(super) identity: Option<IdentityProbe>,
    pub(super) metrics: EndpointMetrics,
    pub(super) log_throttle: LogThrottle,
}

// === impl Endpoint ===

impl Endpoint {
    pub(in crate::upstream) fn new(
        name: Arc<str>,
        address: Option<EndpointAddress>,
        transport: Transport,
        settings: TransportSettings,
        config: &EndpointConfig,
        pinned_chain: Option<&Arc<PinnedChain>>,
        metrics: EndpointMetrics,
    ) -> Self {
        let id = EndpointId::next();
        let secrets = address.as_ref().map(Secrets::from).unwrap_or_default();
        Self {
            identity: pinned_chain
                .map(|pinned_chain| IdentityProbe::new(id, name.clone(), secrets, pinned_chain.clone())),
            id,
            name,
            address,
            priority: config.priority.into(),
            weight: config.weight.max(1).into(),
            settings: Mutex::new(settings),
            transport: Mutex::new(with_load(transport)),
            health: Mutex::new(EndpointHealth::new(config.rate)),
            monitor: Arc::default(),
            metrics,
            log_throttle: LogThrottle::default(),
        }
    }

    /// Applies new settings. Health and identity stay, because the endpoint is still the same node.
    pub(in crate::upstream) fn update(
        &self,
        config: &EndpointConfig,
        transport: Transport,
        settings: TransportSettings,
    ) {
        self.priority.store(config.priority, Relaxed);
        self.weight.store(config.weight.max(1), Relaxed);
        self.health.lock().set_rate(config.rate);
        let mut before = self.settings.lock();
        // With the same settings, the endpoint keeps its open connections.
        if *before != settings {
            *before = settings;
            *self.transport.lock() = with_load(transport);
        }
    }

    pub(in crate::upstream) fn id(&self) -> EndpointId {
        self.id
    }

    pub(in crate::upstream) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns whether the endpoint has this address.
    pub(in crate::upstream) fn has_address(&self, address: Option<&EndpointAddress>) -> bool {
        address.is_some() && self.address.as_ref() == address
    }

    pub(in crate::upstream) fn priority(&self) -> u32 {
        self.priority.load(Relaxed)
    }

    pub(in crate::upstream) fn weight(&self) -> u32 {
        self.weight.load(Relaxed)
    }

    /// Returns whether the endpoint is known to serve another chain.
    pub(in crate::upstream) fn is_wrong_chain(&self) -> bool {
        self.identity.as_ref().is_some_and(IdentityProbe::is_wrong_chain)
    }

    /// Returns the newest block that the endpoint has shown.
    pub(in crate::upstream) fn head(&self) -> Option<BlockNumber> {
        self.health.lock().head
    }

    /// Returns the head, if the endpoint has reported its head since `then`.
    pub(in crate::upstream) fn head_since(&self, then: Instant) -> Option<BlockNumber> {
        let health = self.health.lock();
        health.head.filter(|_| health.head_seen.is_some_and(|seen| seen >= then))
    }

    pub(in crate::upstream) fn identity(&self) -> Option<&IdentityProbe> {
        self.identity.as_ref()
    }

    pub(in crate::upstream) fn status(&self) -> EndpointStatus {
        let health = self.health.lock();
        EndpointStatus {
            name: self.name.clone(),
            url: self.address.as_ref().map(|address| address.url().to_string()),
            id: self.id,
            priority: self.priority(),
            identity: self.identity.as_ref().map(IdentityProbe::state),
            health: health.breaker.health(Instant::now()),
            head: health.head,
            last_error: health.last_error.clone(),
            refusal: health.refusal.clone(),
            totals: self.metrics.totals(),
            outage: health.outage.since().map(|since| since.elapsed()),
            last_mismatch: health.last_mismatch.clone(),
            pause: health.pause_left(Instant::now()),
            is_rate_used_up: health.is_used_up(Instant::now()),
        }
    }

    /// Returns the last failure, if the endpoint has not answered since.
    pub(in crate::upstream) fn last_error(&self) -> Option<UpstreamError> {
        self.health.lock().last_error.clone()
    }

    /// Returns the rate limit that keeps calls from the endpoint now.
    pub(in crate::upstream) fn rate_limit(&self) -> Option<UpstreamError> {
        let wait = self.health.lock().limit_wait(Instant::now());
        (!wait.is_zero()).then_some(UpstreamError::RateLimited { retry_after: Some(wait), words: None })
    }

    /// Returns the last refusal, if the endpoint has not answered a call since.
    pub(in crate::upstream) fn refusal(&self) -> Option<UpstreamError> {
        self.health.lock().refusal.clone()
    }

    /// Returns whether the endpoint is available for this number of calls with these requirements.
    pub(in crate::upstream) fn availability(
        &self,
        calls: u32,
        requirements: Requirements,
        now: Instant,
    ) -> Availability {
        if self.is_wrong_chain() {
            return Availability::Never;
        }
        let health = self.health.lock();
        if !health.breaker.lets_pass(now) {
            let is_tried_slowly = health.breaker.is_tried_slowly(now);
            drop(health);
            if is_tried_slowly {
                self.probe();
            }
            return Availability::Never;
        }
        let lacks_block = requirements.block.is_some_and(|block| health.has_pruned(block, now))
            || requirements.block.max(requirements.head).is_some_and(|block| health.is_behind(block, now));
        // Calls that require the primary, such as those of the canonical view, take precedence: other calls leave them
        // one token, if the burst is larger than the number of calls.
        let tokens = calls.saturating_add(u32::from(!requirements.primary));
        let wait = health
            .bucket
            .map_or(Duration::ZERO, |bucket| bucket.wait(tokens, now))
            .max(health.limit_wait(now));
        if !wait.is_zero() {
            return Availability::After(wait);
        }
        let failures = match health.failed {
            Some(failed) if now < failed + FAILURE_PENALTY_TTL => {
                health.breaker.failures() + MISMATCH_PENALTY * health.mismatches
            }
            _ => 0,
        };
        drop(health);
        let is_unconfirmed = self.identity.as_ref().is_some_and(|identity| !identity.is_confirmed());
        Availability::Now(Score { lacks_block, is_unconfirmed, failures, load: self.transport.lock().load() })
    }

    /// Returns the error of calls that cannot wait this long for the endpoint. If the reason is the configured rate, counts
    /// and logs the calls.
    pub(in crate::upstream) fn wait_error(
        &self,
        calls: u32,
        requirements: Requirements,
        wait: Duration,
    ) -> UpstreamError {
        let now = Instant::now();
        let waits = matches!(self.availability(calls, requirements, now), Availability::After(_));
        let mut health = self.health.lock();
        if !waits || !health.limit_wait(now).is_zero() {
            return UpstreamError::RateLimited { retry_after: Some(wait), words: None };
        }
        let is_news = health.use_up(now);
        drop(health);
        self.metrics.over_rate(calls);
        if is_news {
            warn!(endpoint = %self.name, "the configured rate of this endpoint is used up; refusing calls");
        }
        UpstreamError::RateUsedUp { retry_after: wait }
    }

    /// Sends an identity check to an endpoint that has failed, to see whether it has recovered. This is necessary
    /// because clients' calls may no longer reach the endpoint. Does not wait for the answer.
    pub(in crate::upstream) fn probe(&self) {
        if let Some(identity) = &self.identity
            && (self.last_error().is_some() || self.health.lock().may_serve_again(Instant::now()))
        {
            identity.probe();
        }
    }

    /// Returns whether the circuit breaker lets no call pass now.
    pub(in crate::upstream) fn is_breaker_open(&self, now: Instant) -> bool {
        !self.health.lock().breaker.lets_pass(now)
    }

    /// Returns whether another endpoint should be the primary, because too many forwarded calls in a row failed.
    pub(in crate::upstream) fn fails_forwarded_calls(&self) -> bool {
        self.health.lock().fails_forwarded_calls()
    }

    /// Returns the weight of the forwarded calls in a row that failed. A repeated time-out weighs more than other
    /// failures.
    pub(in crate::upstream) fn forward_failures(&self) -> u32 {
        self.health.lock().forward_failures
    }

    /// Returns whether the endpoint has reported so many rate limits in a row that Holdfast's own pause would exceed
    /// `longer_than`, even if the endpoint asked for shorter pauses.
    pub(in crate::upstream) fn is_limited_for(&self, longer_than: Duration) -> bool {
        self.health.lock().pause_backoff.last_pause() > longer_than
    }

    /// Checks an unconfirmed identity again, without waiting, so that later calls can use this endpoint.
    pub(in crate::upstream) fn recheck_now(&self) {
        if let Some(identity) = self.identity.as_ref().filter(|identity| identity.needs_recheck()) {
            identity.recheck_now();
        }
    }

    /// Requires an identity check before the next call.
    pub(in crate::upstream) fn require_recheck(&self) {
        if let Some(identity) = &self.identity {
            identity.require_recheck();
        }
    }
}

fn with_load(transport: Transport) -> PeakEwma<Transport> {
    PeakEwma::new(transport, DEFAULT_RTT, DECAY.as_nanos() as f64, CompleteOnResponse::default())
}
