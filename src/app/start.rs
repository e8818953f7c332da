//! Starts the listeners, and ends them in order.

use std::{
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use prometheus_client::registry::Registry;
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::{self, Instant},
};
use tower::util::BoxCloneSyncService;
use tracing::{info, warn};

use super::{
    reload::{self, Reload},
    report::{self, Report},
    tasks, tiers,
};
use crate::{
    admin::{Admin, Events, Guard, History, Operator},
    budget::ByteBudget,
    cache::{self, Cache, DiskError},
    config::{Config, ConfigError, LogConfig, Problem},
    http::{self, Access, Edge, HostCheck},
    listen::{self, BindError, Listener, Tls, TlsConfig, TlsIdentity, raise_file_limit},
    proxy::{self, Policy, Proxy, ProxyParts},
    upstream::{
        self, EndpointAddress, EndpointConfig, EndpointParts, HeadFeed, HttpTransport, Identity, Upstream,
    },
    verify::{self, Verifier},
};

/// Operators and probes are few; their connections must not be the clients' loss.
const ADMIN_CONNECTIONS: usize = 64;

/// Files beside connections: listeners, logs, the runtime's own.
const OTHER_FILES: u64 = 64;

/// The part of `drain_timeout` in which calls may wait for the upstream; in the rest they are told that they waited in
/// vain, and can still take that in.
const LAST_WORD: f64 = 0.9;

/// So long what is still to be written to disk or Redis may take at the end.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// The program, running.
#[derive(Debug)]
pub struct App {
    rpc: Served,
    admin: Served,
    access: Access,
    identity: Identity,
    watch: JoinHandle<()>,
    follow: JoinHandle<()>,
    /// Ends the events of the admin listener with it.
    clockwork: JoinHandle<()>,
    report: Arc<Report>,
    reload: Reload,
    drain_delay: Duration,
    /// From the end of that until calls that still wait are answered.
    last_word: Duration,
}

/// A listener at work.
#[derive(Debug)]
struct Served {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

/// Why the program cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration asks for what cannot be.
    #[error(transparent)]
    Config(Problem),
    /// An address cannot be had.
    #[error(transparent)]
    Bind(BindError),
    /// The directory of the cache cannot be had.
    #[error("cache.disk: {0}")]
    Disk(DiskError),
}

// === impl App ===

impl App {
    /// Binds the listeners and starts to serve. The upstream need not be up.
    ///
    /// # Errors
    /// If the configuration names no usable upstream, or an address cannot be had.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let mut registry = Registry::with_prefix("holdfast");
        let per_client = config.max_bytes_per_client.map(|bytes| bytes.as_u64());
        let budget = ByteBudget::new(config.max_bytes_in_flight.as_u64(), per_client);
        let endpoints = endpoints(&config, &budget).map_err(StartError::Config)?;
        let feed = feed(&config.upstream).map_err(StartError::Config)?;
        // Before anybody is asked for anything: it may be another's.
        let tiers = tiers::open(&config.cache, budget.clone(), &mut registry)?;
        let upstream_metrics = upstream::Metrics::register(&mut registry);
        let upstream = Upstream::new(endpoints, config.chain_id, &config.upstream, &upstream_metrics);
        upstream.register(&mut registry);
        let names: Vec<_> = upstream.status().0.iter().map(|endpoint| endpoint.name.to_string()).collect();
        let behind: Vec<_> = tiers.status().iter().map(|tier| tier.kind.as_str()).collect();
        let feed = watch::Sender::new(feed);

        let tls = certificate(&config.tls).map_err(StartError::Config)?.map(Tls::new);
        let connections = connections_that_fit(&config);
        let rpc =
            Listener::bind(config.listen, connections.clone(), listen::Metrics::register(&mut registry));
        let rpc = rpc.await.map_err(StartError::Bind)?.with_tls(tls.clone());
        // Counted for nobody: who looks at the counters should not move them.
        let few = listen::Config { max: connections.max.min(ADMIN_CONNECTIONS), ..connections };
        let admin = Listener::bind(config.admin, few, listen::Metrics::default());
        let admin_tls = tls.clone().filter(|_| config.tls.admin);
        let admin = admin.await.map_err(StartError::Bind)?.with_tls(admin_tls);
        warn_if_exposed(admin.address());
        warn_of_doubts(&config);

        let identity = upstream.identity();
        let watch = tokio::spawn(upstream.watch_identity());
        let call_metrics = proxy::Metrics::register(&mut registry);
        let cache = Cache::new(&config.cache, cache::Metrics::register(&mut registry));
        let consistent = is_consistent(&config.upstream.endpoints);
        let parts = ProxyParts {
            upstream: upstream.clone(),
            cache: cache.clone(),
            tiers: tiers.clone(),
            verifier: Verifier::new(config.verify.clone(), verify::Metrics::register(&mut registry)),
            consistent,
            wall: SystemTime::now,
            metrics: call_metrics.clone(),
        };
        let Proxy { service: proxy, follower, sight, warmer, live } = proxy::proxy(&config.proxy(), parts);
        sight.register(&mut registry);
        let edge_live = http::Reloadable::new(&config.http);
        let request_metrics = http::Metrics::register(&mut registry);
        let history = History::default();
        let operator = Operator::new(sight.clone(), warmer);
        let report = Arc::new(Report {
            cache,
            tiers,
            sight,
            identity: identity.clone(),
            calls: call_metrics,
            upstream_calls: upstream_metrics,
            requests: request_metrics.clone(),
            history: history.clone(),
            upstream: upstream.clone(),
            listen: rpc.address(),
            tls: tls.is_some(),
            started: Instant::now(),
            draining: false.into(),
        });
        let follow = tokio::spawn(follower.run(feed.subscribe()));
        let scheme = if config.tls.admin { "https" } else { "http" };
        let access = Access::new(&config.http, Policy::new(&config.proxy()), request_metrics);
        let edge = Edge {
            budget: budget.clone(),
            access: access.clone(),
            listen: Some(rpc.address().ip()),
            admin: Some(format!("{scheme}://{}", admin.address())),
        };
        edge_live.register(&edge.budget, &mut registry);
        let service = http::stack(edge_live.clone(), edge, proxy);
        let proxies = access.clone();
        let rpc = rpc.with_trusted(move |peer| proxies.is_trusted_proxy(peer));
        let rpc = Served::start(rpc, |listener, stop| listener.serve(service, stop));
        let reload_metrics = reload::Metrics::register(&mut registry);
        tasks::register(&mut registry);
        report::register(&report, &mut registry);
        let hosts = HostCheck::new(access.clone(), admin.address().ip());
        let (events, clockwork) = Events::new(report.clone(), history);
        let clockwork = tokio::spawn(clockwork.run());
        let guard = Guard::new(admin.address().ip(), config.admin_token);
        let service = Admin::new(report.clone(), registry, hosts, events, operator, guard);
        let admin = Served::start(admin, |listener, stop| listener.serve(service, stop));

        info!(
            listen = %rpc.address,
            admin = %admin.address,
            upstream = names.join(", "),
            tls = tls.is_some(),
            tiers = behind.join(", "),
            "holdfast {} is listening",
            env!("CARGO_PKG_VERSION")
        );
        let drain_delay = config.drain_delay;
        let last_word = config.connections.drain_timeout.mul_f64(LAST_WORD);
        let parts = reload::Parts {
            proxy: live,
            http: edge_live,
            access: access.clone(),
            tls,
            upstream,
            feed,
            budget,
        };
        let reload = Reload::new(config, parts, reload_metrics);
        Ok(Self {
            rpc,
            admin,
            access,
            identity,
            watch,
            follow,
            clockwork,
            report,
            reload,
            drain_delay,
            last_word,
        })
    }

    /// Where clients connect.
    pub fn rpc_address(&self) -> SocketAddr {
        self.rpc.address
    }

    /// Where operators connect.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.address
    }

    /// Who may come in, and what they may do; can be replaced.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Resolves when calls can be answered.
    pub async fn ready(&self) {
        self.identity.wait_known().await;
    }

    /// Takes a configuration that was read again, as far as it can change while it runs; `set_log` has to set
    /// the log's level. One that is bad is refused as a whole. The log says what came of it.
    pub fn reload(&self, read: Result<Config, ConfigError>, set_log: impl FnOnce(&LogConfig)) {
        self.reload.take(read, set_log);
    }

    /// Ends in order: not ready, still accepting for `drain_delay`; then every request whose head
    /// was read is answered, though it be with an error where the upstream is too slow; then the admin listener, so that probes see it to the end.
    pub async fn stop(self) {
        self.report.drain();
        info!(drain_delay = ?self.drain_delay, "stopping");
        time::sleep(self.drain_delay).await;
        let mut rpc = pin!(self.rpc.stop());
        if time::timeout(self.last_word, &mut rpc).await.is_err() {
            self.reload.end_calls();
            rpc.await;
        }
        self.follow.abort();
        self.watch.abort();
        // Those who listen are told to the end, and then no more: their streams would keep the listener.
        self.clockwork.abort();
        self.admin.stop().await;
        // What waits to be written would be asked for again after the start.
        if time::timeout(LAST_WRITES, self.report.tiers.settle()).await.is_err() {
            warn!("not all that is final was written in time; it will be asked for again");
        }
        info!("stopped");
    }
}

/// Would it start with this configuration? Reads whatever it names, and connects to nothing; whether its addresses can
/// be had is not asked, since the program may be running.
///
/// # Errors
/// If it would not: what [`App::start`] would say.
pub fn check(config: &Config) -> Result<(), StartError> {
    let budget = ByteBudget::new(config.max_bytes_in_flight.as_u64(), None);
    endpoints(config, &budget).map_err(StartError::Config)?;
    feed(&config.upstream).map_err(StartError::Config)?;
    certificate(&config.tls).map_err(StartError::Config)?;
    Ok(())
}

/// The certificate to show, if there is one.
pub(super) fn certificate(config: &TlsConfig) -> Result<Option<TlsIdentity>, Problem> {
    config.read().map_err(|error| Problem::new(format!("tls.{}", error.key()), error))
}

/// Operators are not asked who they are.
fn warn_if_exposed(admin: SocketAddr) {
    if !admin.ip().to_canonical().is_loopback() {
        warn!(
            %admin,
            "the admin listener is not on loopback: whoever can connect reads /status and /metrics, with the node's \
             address and what is asked how often (and changes nothing without the token of admin_token); set admin to \
             127.0.0.1, or let only operators reach it"
        );
    }
}

/// Works as it is configured, and is seldom meant so.
pub(super) fn warn_of_doubts(config: &Config) {
    for doubt in config.doubts() {
        warn!("{doubt}");
    }
}

/// Is it one node that does not contradict itself? Two do not agree from call to call.
pub(super) fn is_consistent(endpoints: &[EndpointConfig]) -> bool {
    matches!(endpoints, [endpoint] if endpoint.consistent)
}

/// The nodes, and how they are reached.
pub(super) fn endpoints(config: &Config, budget: &ByteBudget) -> Result<Vec<EndpointParts>, Problem> {
    let listeners = [("listen", config.listen), ("admin", config.admin)];
    let config = &config.upstream;
    if config.endpoints.is_empty() {
        return Err(Problem::new(
            "upstream.endpoints",
            "no node is named; use --upstream http://127.0.0.1:8545, say",
        ));
    }
    let mut known: Vec<EndpointAddress> = Vec::new();
    let part = |(at, endpoint): (usize, &EndpointConfig)| {
        let problem = |error: String| Problem::new(format!("upstream.endpoints.{at}"), error);
        let address = EndpointAddress::resolve(endpoint).map_err(|error| problem(error.to_string()))?;
        if let Some((key, own)) = listeners.into_iter().find(|(_, own)| address.url().is_listener(*own)) {
            return Err(problem(format!(
                "{own} is where Holdfast itself listens ({key}); name the node, or listen elsewhere"
            )));
        }
        // It would be asked again where it has failed, and at twice its rate.
        if let Some(same) = known.iter().position(|other| *other == address) {
            return Err(problem(format!(
                "is reached with the same url and headers as upstream.endpoints.{same}; leave one out (one that is to \
                 take more of the calls has a higher weight)"
            )));
        }
        known.push(address.clone());
        let transport = HttpTransport::try_new(&address, config, budget.clone())
            .map_err(|error| problem(error.to_string()))?;
        let transport = BoxCloneSyncService::new(transport);
        let name = address.url().to_string().into();
        Ok(EndpointParts { name, address: Some(address), transport, config: endpoint.clone() })
    };
    config.endpoints.iter().enumerate().map(part).collect()
}

/// Where the first endpoint that does tells of new heads.
pub(super) fn feed(config: &upstream::Config) -> Result<Option<HeadFeed>, Problem> {
    for (at, endpoint) in config.endpoints.iter().enumerate() {
        let feed = HeadFeed::try_new(endpoint, config);
        let feed = feed.map_err(|error| Problem::new(format!("upstream.endpoints.{at}"), error))?;
        if feed.is_some() {
            return Ok(feed);
        }
    }
    Ok(None)
}

/// Makes files enough for the connections allowed, or allows only as many as there are files for.
fn connections_that_fit(config: &Config) -> listen::Config {
    let beside = (config.upstream.max_in_flight + ADMIN_CONNECTIONS) as u64 + OTHER_FILES;
    let wanted = config.connections.max as u64;
    let files = raise_file_limit(wanted + beside).soft.unwrap_or(u64::MAX);
    // Where files are short, a third of them is left for what is not a client.
    let fit = files.saturating_sub(beside).max(files - files / 3).min(wanted).max(1);
    if fit < wanted {
        warn!(
            files,
            needed = wanted + beside,
            connections = fit,
            "the limit on open files is too low for connections.max, which is lowered; raise it (ulimit -n, LimitNOFILE)"
        );
    }
    listen::Config { max: usize::try_from(fit).unwrap_or(usize::MAX), ..config.connections.clone() }
}

// === impl Served ===

impl Served {
    fn start<F>(listener: Listener, serve: impl FnOnce(Listener, Stopped) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let address = listener.address();
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(serve(
            listener,
            Box::pin(async {
                let _ = stopped.await;
            }),
        ));
        Self { address, stop, ended }
    }

    async fn stop(self) {
        drop(self.stop);
        let _ = self.ended.await;
    }
}

type Stopped = futures_util::future::BoxFuture<'static, ()>;
