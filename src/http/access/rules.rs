//! The access rules: hosts, keys, rates and methods.

use std::{net::IpAddr, sync::Arc};

use arc_swap::{ArcSwap, Guard};
use http::{Request, header};
use tracing::{debug, warn};

use crate::{
    http::{
        config::Config,
        error::HttpError,
        metrics::Metrics,
        sender::{
            address::{Network, SubnetBuckets, client_address, client_at, is_trusted},
            header::first,
            host::{self, HostName},
            key::{self, KeyHash},
        },
    },
    proxy::{Allowance, Bucket, Caller, Policy},
};

/// The access rules in force. Cheap to clone; clones share them.
///
/// The rules are one value, which each request loads once, without a lock, so that all calls of a packet meet the same
/// rules. [`replace`](Self::replace) changes the rules for all later requests, even on open connections.
#[derive(Clone, Debug)]
pub struct Access(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    rules: ArcSwap<AccessRules>,
    metrics: Metrics,
}

/// The rules of one configuration.
#[derive(Debug)]
pub(in crate::http) struct AccessRules {
    pub(in crate::http) hosts: Vec<HostName>,
    trusted_proxies: Vec<Network>,
    /// If empty, requests need no key.
    keys: Vec<ClientKey>,
    /// Policy of clients without a key.
    policy: Arc<Policy>,
    /// Token buckets of clients without a key; `None` if their rate is unlimited.
    subnets: Option<SubnetBuckets>,
    /// Token buckets of requests without a valid key, for use if a key is required.
    unauthenticated: SubnetBuckets,
}

/// A client with a key.
#[derive(Debug)]
struct ClientKey {
    name: String,
    hash: KeyHash,
    policy: Arc<Policy>,
    bucket: Option<Bucket>,
}

// === impl Access ===

impl Access {
    /// Returns the edge's counters.
    pub(in crate::http) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Creates the rules of a [checked](Config::check) configuration. `policy` applies to all clients; the settings of
    /// a key can narrow it for that key's client.
    pub fn new(config: &Config, policy: Policy, metrics: Metrics) -> Self {
        let rules = ArcSwap::from_pointee(AccessRules::new(config, policy, None));
        Self(Arc::new(Shared { rules, metrics }))
    }

    /// Replaces the rules from the next request on. Requests in flight finish under the old rules. A client whose rate
    /// and burst stay the same keeps its token bucket, so that a reload does not refill the bucket.
    ///
    /// Replaces keys, rates, hosts, trusted proxies and methods. `allowed_origins` and the limits of requests belong to
    /// [`Reloadable`](crate::http::Reloadable).
    pub fn replace(&self, config: &Config, policy: Policy) {
        let before = self.0.rules.load();
        if !before.keys.is_empty() && config.keys.is_empty() {
            warn!("http.keys is empty now; requests no longer need a key");
        }
        self.0.rules.store(Arc::new(AccessRules::new(config, policy, Some(&before))));
    }

    /// Returns whether a peer is one of the trusted proxies in force.
    pub fn is_trusted_proxy(&self, peer: IpAddr) -> bool {
        is_trusted(peer, &self.rules().trusted_proxies)
    }

    pub(in crate::http) fn rules(&self) -> Guard<Arc<AccessRules>> {
        self.0.rules.load()
    }

    /// Returns the client of a request, with its policy and its rate, or the reason to refuse the request.
    pub(in crate::http) fn admit<B>(
        &self,
        request: &Request<B>,
        peer: Option<IpAddr>,
        is_loopback: bool,
    ) -> Result<Caller, HttpError> {
        self.rules().admit(request, peer, is_loopback)
    }
}

// === impl AccessRules ===

impl AccessRules {
    fn new(config: &Config, policy: Policy, before: Option<&Self>) -> Self {
        let subnets = config.rate.map(|rate| {
            let allowance = Allowance::new(rate, config.burst);
            let kept = before.and_then(|before| before.subnets.clone());
            let kept = kept.filter(|subnets| subnets.allowance() == allowance);
            kept.unwrap_or_else(|| SubnetBuckets::new(allowance))
        });
        let keys = config.keys.iter().map(|key| {
            // A key without its own rate gets the default rate.
            let (rate, burst) =
                if key.rate.is_some() { (key.rate, key.burst) } else { (config.rate, config.burst) };
            let bucket = rate.map(|rate| {
                let allowance = Allowance::new(rate, burst);
                let kept = before.and_then(|before| before.keys.iter().find(|kept| kept.hash == key.sha256));
                let kept = kept.and_then(|kept| kept.bucket.clone());
                let kept = kept.filter(|bucket| bucket.allowance() == allowance);
                kept.unwrap_or_else(|| Bucket::new(allowance))
            });
            let policy = Arc::new(policy.narrowed(key.allow.as_deref(), &key.deny));
            ClientKey { name: key.name.clone(), hash: key.sha256, policy, bucket }
        });
        let unauthenticated =
            before.map_or_else(SubnetBuckets::for_unauthenticated, |before| before.unauthenticated.clone());
        Self {
            unauthenticated,
            keys: keys.collect(),
            hosts: config.allowed_hosts.clone(),
            trusted_proxies: config.trusted_proxies.clone(),
            policy: Arc::new(policy),
            subnets,
        }
    }

    fn admit<B>(
        &self,
        request: &Request<B>,
        peer: Option<IpAddr>,
        is_loopback: bool,
    ) -> Result<Caller, HttpError> {
        host::check(request, &self.hosts, is_loopback).map_err(HttpError::Host)?;
        let origin = first(request.headers(), &header::ORIGIN).cloned();
        let is_remote = peer.is_some_and(|peer| !peer.to_canonical().is_loopback());
        if !self.keys.is_empty() {
            let key = self.key(request).map_err(|error| self.refuse_unauthenticated(error, request, peer))?;
            debug!(key = key.name, "request admitted");
            let client = Some(key.hash.client());
            return Ok(Caller {
                origin,
                policy: key.policy.clone(),
                bucket: key.bucket.clone(),
                client,
                gzip: false,
                is_remote,
            });
        }
        let address = self.address(request, peer);
        let bucket = self.subnets.as_ref().zip(address).map(|(subnets, address)| subnets.bucket(address));
        let client = address.map(|address| client_at(address, is_loopback, &self.trusted_proxies));
        Ok(Caller { origin, policy: self.policy.clone(), bucket, client, gzip: false, is_remote })
    }

    fn address<B>(&self, request: &Request<B>, peer: Option<IpAddr>) -> Option<IpAddr> {
        peer.map(|peer| client_address(peer, request.headers(), &self.trusted_proxies))
    }

    /// Counts a request without a valid key against its address, and returns the error for the refusal. This count does
    /// not limit requests with a valid key, because otherwise one client could lock out the other clients behind the
    /// same address.
    fn refuse_unauthenticated<B>(
        &self,
        error: HttpError,
        request: &Request<B>,
        peer: Option<IpAddr>,
    ) -> HttpError {
        let bucket = self.address(request, peer).map(|address| self.unauthenticated.bucket(address));
        match bucket.map_or(Ok(()), |bucket| bucket.take(1)) {
            Ok(()) => error,
            Err(wait) => HttpError::TooManyUnauthenticated { wait },
        }
    }

    /// Returns the first of the request's keys that is configured.
    fn key<B>(&self, request: &Request<B>) -> Result<&ClientKey, HttpError> {
        let mut error = HttpError::NoKey;
        for presented in key::presented(request) {
            let hash = KeyHash::of(presented);
            // Compares with every key, so that the time taken reveals neither which key fits nor how closely.
            let found = self
                .keys
                .iter()
                .fold(None, |found, key| if key.hash.fits(&hash) { Some(key) } else { found });
            if let Some(key) = found {
                return Ok(key);
            }
            error = HttpError::BadKey;
        }
        Err(error)
    }
}
