//! Who may come in, and what they may do there.

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

/// The rules in force: hosts, keys, rates and methods. Cheap to clone; clones share them.
///
/// All that can change while connections are served is one value, which each request looks at once, without
/// a lock: all the calls of a packet meet the same rules. [`replace`](Self::replace) puts others in force for
/// every request that comes after; a connection does not notice.
#[derive(Clone, Debug)]
pub struct Access(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    rules: ArcSwap<AccessRules>,
    metrics: Metrics,
}

/// What is in force at a time.
#[derive(Debug)]
pub(in crate::http) struct AccessRules {
    pub(in crate::http) hosts: Vec<HostName>,
    trusted_proxies: Vec<Network>,
    /// Nobody needs one, if there are none.
    keys: Vec<ClientKey>,
    /// Of those who come without a key.
    policy: Arc<Policy>,
    /// As often as they like, if `None`.
    subnets: Option<SubnetBuckets>,
    /// How often it is looked at who has no key that is known, where one is needed.
    unauthenticated: SubnetBuckets,
}

/// Somebody who may come in.
#[derive(Debug)]
struct ClientKey {
    name: String,
    hash: KeyHash,
    policy: Arc<Policy>,
    bucket: Option<Bucket>,
}

// === impl Access ===

impl Access {
    /// Who counts for the edge.
    pub(in crate::http) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// The rules of a [checked](Config::check) configuration, with the policy that counts for all.
    pub fn new(config: &Config, policy: Policy, metrics: Metrics) -> Self {
        let rules = ArcSwap::from_pointee(AccessRules::new(config, policy, None));
        Self(Arc::new(Shared { rules, metrics }))
    }

    /// Puts other rules in force, from the next request on; those that are under way end under the old ones. Whose
    /// rate is still the same keeps the bucket they have: a reload must not be a way to a full one.
    ///
    /// For whoever reloads the configuration, this is all: `access.replace(&config.http, Policy::new(&config.proxy()))`,
    /// with any clone, such as the one that the app keeps. Replaced are keys, rates, hosts, trusted
    /// proxies and methods; `allowed_origins` and the limits of requests are [`Reloadable`](crate::http::Reloadable)'s.
    pub fn replace(&self, config: &Config, policy: Policy) {
        let before = self.0.rules.load();
        if !before.keys.is_empty() && config.keys.is_empty() {
            warn!("the last key was taken out of http.keys: from now on nobody needs one");
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

    /// Who makes this request, if they may come in.
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
            // Its own rate, or one like everybody's.
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
            });
        }
        let address = self.address(request, peer);
        let bucket = self.subnets.as_ref().zip(address).map(|(subnets, address)| subnets.bucket(address));
        let client = address.map(|address| client_at(address, is_loopback, &self.trusted_proxies));
        Ok(Caller { origin, policy: self.policy.clone(), bucket, client, gzip: false })
    }

    fn address<B>(&self, request: &Request<B>, peer: Option<IpAddr>) -> Option<IpAddr> {
        peer.map(|peer| client_address(peer, request.headers(), &self.trusted_proxies))
    }

    /// Counts somebody without a key that is known. Whoever has one is let in all the same, however many at the same
    /// address have none: else any of them could shut out the others.
    fn refuse_unauthenticated<B>(
        &self,
        error: HttpError,
        request: &Request<B>,
        peer: Option<IpAddr>,
    ) -> HttpError {
        let bucket = self.address(request, peer).map(|address| self.unauthenticated.bucket(address));
        match bucket.map_or(Ok(()), |bucket| bucket.take()) {
            Ok(()) => error,
            Err(wait) => HttpError::TooManyUnauthenticated { wait },
        }
    }

    /// The first of the request's keys that is one of ours.
    fn key<B>(&self, request: &Request<B>) -> Result<&ClientKey, HttpError> {
        let mut error = HttpError::NoKey;
        for presented in key::presented(request) {
            let hash = KeyHash::of(presented);
            // All are compared, whichever it is: the time tells nobody which, nor how nearly.
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
