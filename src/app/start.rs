//! Starts the program, and shuts it down in order.

use std::{
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use prometheus_client::registry::Registry;
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{self, Instant},
};
use tower::util::BoxCloneSyncService;
use tracing::{info, warn};

use super::{
    assemble::{Assembly, Supplied, assemble},
    build,
    error::StartError,
    file_limit::raise_file_limit,
    in_process::InProcess,
    reload::{self, Reload},
    report::{self, StatusReport},
    tasks,
};
use crate::{
    admin::{Admin, Counts, Events, Guard, History, Operator, Report},
    cache::Tiers,
    config::{Config, ConfigError, LogConfig},
    devchain::DevChain,
    display::seconds,
    http::{Access, HostCheck},
    listen::{self, Listener, Tls, most_files},
    proxy::Proxy,
    upstream::{EndpointConfig, EndpointParts, Identity, InProcessTransport},
    verify::Verifier,
};

/// Maximum number of connections to the admin listener. Operators and probes need few, and must not use up the open
/// files that clients need.
const ADMIN_CONNECTIONS: usize = 64;

/// Open files other than connections: listeners, logs, and files of the runtime.
const OTHER_FILES: u64 = 64;

/// Fraction of `drain_timeout` in which calls may wait for the upstream. The rest is for sending errors to the clients
/// of calls that still wait.
const LAST_WORD: f64 = 0.9;

/// Time limit for the last writes to disk and Redis.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// The running program.
#[derive(Debug)]
pub struct App {
    rpc: RunningListener,
    admin: RunningListener,
    access: Access,
    identity: Identity,
    watch: JoinHandle<()>,
    follow: JoinHandle<()>,
    /// Feeds the event streams of the admin listener, which end when this task ends.
    ticker: JoinHandle<()>,
    report: Arc<StatusReport>,
    reload: Reload,
    drain_delay: Duration,
    /// Time from the end of `drain_delay` until calls that still wait for the upstream get an error.
    last_word: Duration,
}

/// A running listener.
#[derive(Debug)]
struct RunningListener {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

/// Assembles the program from a configuration. Tests and embedders replace parts of it.
///
/// [`start`](Self::start) runs the program with its listeners, [`in_process`](Self::in_process) without them.
#[derive(Debug)]
pub struct AppBuilder {
    config: Config,
    supplied: Supplied,
}

// === impl AppBuilder ===

impl AppBuilder {
    /// Sets the configuration.
    pub fn config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// Uses these endpoints instead of those of the configuration.
    pub fn endpoints(mut self, endpoints: Vec<EndpointParts>) -> Self {
        self.supplied.endpoints = Some(endpoints);
        self
    }

    /// Adds a development chain in this process as an endpoint. Replaces the endpoints of the configuration.
    pub fn dev_chain(mut self, chain: &DevChain) -> Self {
        let transport = BoxCloneSyncService::new(InProcessTransport::new(chain.clone()));
        let config = EndpointConfig::at("");
        let endpoint = EndpointParts { name: "devchain".into(), address: None, transport, config };
        self.supplied.endpoints.get_or_insert_default().push(endpoint);
        self
    }

    /// Uses these tiers instead of those of the configuration.
    pub fn tiers(mut self, tiers: Tiers) -> Self {
        self.supplied.tiers = Some(tiers);
        self
    }

    /// Uses this verifier instead of one at the configured level.
    pub fn verifier(mut self, verifier: Verifier) -> Self {
        self.supplied.verifier = Some(verifier);
        self
    }

    /// Registers the metrics in `registry` instead of in one with the prefix `holdfast`.
    pub fn registry(mut self, registry: Registry) -> Self {
        self.supplied.registry = registry;
        self
    }

    /// Reads the wall clock with `wall` instead of [`SystemTime::now`].
    pub fn wall_clock(mut self, wall: fn() -> SystemTime) -> Self {
        self.supplied.wall = wall;
        self
    }

    /// Starts the program without listeners, on the current runtime. The upstream need not be up.
    ///
    /// # Errors
    /// If the configuration names no usable upstream, or the directory of the cache cannot be opened.
    pub fn in_process(self) -> Result<InProcess, StartError> {
        Ok(InProcess::start(assemble(&self.config, self.supplied)?))
    }

    /// Binds the listeners and starts to serve. The upstream need not be up.
    ///
    /// # Errors
    /// If the configuration names no usable upstream, a certificate or the directory of the cache cannot be opened, or
    /// an address cannot be bound.
    pub async fn start(self) -> Result<App, StartError> {
        let Self { config, supplied } = self;
        let mut assembly = assemble(&config, supplied)?;
        let tls = build::certificate(&config.tls).map_err(StartError::Config)?.map(Tls::new);
        let connections = connections_that_fit(&config);
        let rpc = listen::Metrics::register(&mut assembly.registry);
        let rpc = Listener::bind(config.listen, connections.clone(), rpc);
        let rpc = rpc.await.map_err(StartError::Listen)?.with_tls(tls.clone());
        // The metrics of the admin listener are not registered, so that requests for `/metrics` do not change the
        // metrics.
        let few = listen::Config { max: connections.max.min(ADMIN_CONNECTIONS), ..connections };
        let admin = Listener::bind(config.admin, few, listen::Metrics::default());
        let admin_tls = tls.clone().filter(|_| config.tls.admin);
        let admin = admin.await.map_err(StartError::Admin)?.with_tls(admin_tls);
        build::log_warnings(&config);

        let scheme = if config.tls.admin { "https" } else { "http" };
        let admin_url = format!("{scheme}://{}", admin.address());
        let service = assembly.service(Some(rpc.address().ip()), Some(admin_url.clone()));
        let Assembly {
            mut registry,
            budget,
            upstream,
            upstream_metrics,
            feed,
            tiers,
            cache,
            proxy: Proxy { follower, status, inspector, reloadable, .. },
            call_metrics,
            settings,
            access,
            request_metrics,
        } = assembly;
        let behind: Vec<_> = tiers.status().iter().map(|tier| tier.kind.as_str()).collect();
        let identity = upstream.identity();
        let history = History::default();
        let operator = Operator::new(inspector);
        let report = Arc::new(StatusReport {
            cache,
            tiers,
            status,
            identity: identity.clone(),
            calls: call_metrics,
            upstream_calls: upstream_metrics,
            requests: request_metrics,
            history: history.clone(),
            upstream: upstream.clone(),
            listen: rpc.address(),
            tls: tls.is_some(),
            started: Instant::now(),
            draining: false.into(),
        });
        // The sockets are open, so clients can connect. A fourth line names the upstream and its chain, as soon as the
        // upstream has shown them.
        info!(url = report.url(), "holdfast {} serves clients", env!("CARGO_PKG_VERSION"));
        info!(url = admin_url, "status page is up");
        let tiers = if behind.is_empty() { "none".to_owned() } else { behind.join(", ") };
        info!(memory = %config.cache.size, tiers, "cache is ready");
        let watch = tokio::spawn(upstream.watch_identity());
        let follow = tokio::spawn(follower.run(feed.subscribe()));
        let proxies = access.clone();
        let rpc = rpc.with_trusted(move |peer| proxies.is_trusted_proxy(peer));
        let rpc = RunningListener::start(rpc, |listener, stop| listener.serve(service, stop));
        let reload_metrics = reload::Metrics::register(&mut registry);
        tasks::register(&mut registry);
        report::register(&report, &mut registry);
        let hosts = HostCheck::new(access.clone(), admin.address().ip());
        let (events, ticker) = Events::new(report.clone(), history);
        let ticker = tokio::spawn(ticker.run());
        let guard = Guard::new(admin.address().ip(), config.admin_token);
        let service = Admin::new(report.clone(), registry, hosts, events, operator, guard);
        let admin = RunningListener::start(admin, |listener, stop| listener.serve(service, stop));

        let drain_delay = config.drain_delay;
        let last_word = config.connections.drain_timeout.mul_f64(LAST_WORD);
        let parts = reload::Parts {
            proxy: reloadable,
            http: settings,
            access: access.clone(),
            tls,
            upstream,
            feed,
            budget,
        };
        let reload = Reload::new(config, parts, reload_metrics);
        Ok(App {
            rpc,
            admin,
            access,
            identity,
            watch,
            follow,
            ticker,
            report,
            reload,
            drain_delay,
            last_word,
        })
    }
}

// === impl App ===

impl App {
    /// Returns a builder with the default configuration.
    pub fn builder() -> AppBuilder {
        AppBuilder {
            config: Config::default(),
            supplied: Supplied {
                registry: Registry::with_prefix("holdfast"),
                endpoints: None,
                tiers: None,
                verifier: None,
                wall: SystemTime::now,
            },
        }
    }

    /// Returns the address of the client listener.
    pub fn rpc_address(&self) -> SocketAddr {
        self.rpc.address
    }

    /// Returns the address of the admin listener.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.address
    }

    /// Returns the access rules of clients, which can be replaced.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Returns the counters since the start.
    pub(super) fn counts(&self) -> Counts {
        self.report.counts()
    }

    /// Resolves when the program can answer calls.
    pub async fn ready(&self) {
        self.identity.wait_known().await;
    }

    /// Applies the reloadable keys of `read`; `set_log` must set the log level. Refuses an invalid configuration as a
    /// whole. Logs the outcome.
    pub fn reload(&self, read: Result<Config, ConfigError>, set_log: impl FnOnce(&LogConfig)) {
        self.reload.take(read, set_log);
    }

    /// Shuts down in order. First `/ready` fails, while the client listener accepts connections for `drain_delay`. Then
    /// every request whose HTTP headers have arrived gets a response: an error if the upstream is too slow. The admin
    /// listener closes last, so that probes reach it until the end.
    pub async fn stop(self) {
        self.report.drain();
        let drain_delay_seconds = (!self.drain_delay.is_zero()).then(|| seconds(self.drain_delay));
        info!(drain_delay_seconds, "shutting down; answering requests in flight");
        time::sleep(self.drain_delay).await;
        let mut rpc = pin!(self.rpc.stop());
        if time::timeout(self.last_word, &mut rpc).await.is_err() {
            self.reload.end_calls();
            rpc.await;
        }
        self.follow.abort();
        self.watch.abort();
        // Without the ticker the event streams end. Open streams would keep the admin listener from closing.
        self.ticker.abort();
        self.admin.stop().await;
        // Entries that are not written would have to be fetched again after the next start.
        if time::timeout(LAST_WRITES, self.report.tiers.settle()).await.is_err() {
            warn!("last writes to the cache tiers timed out; the missing entries will be fetched again");
        }
        info!(uptime_seconds = seconds(self.report.started.elapsed()), "stopped");
    }
}

/// Raises the limit on open files to fit `connections.max`, or lowers `connections.max` to fit the limit.
fn connections_that_fit(config: &Config) -> listen::Config {
    let beside = config.upstream.max_in_flight as u64 + most_files(ADMIN_CONNECTIONS as u64) + OTHER_FILES;
    let wanted = config.connections.max as u64;
    let needed = most_files(wanted) + beside;
    let files = raise_file_limit(needed).unwrap_or(u64::MAX);
    // If the limit on open files is too low, connections still get at least two thirds of the files.
    let left = files.saturating_sub(beside).max(files - files / 3);
    let fit = if files < needed { (left / 7 * 4).clamp(1, wanted) } else { wanted };
    if fit < wanted {
        warn!(
            files,
            needed,
            connections = fit,
            "limit on open files too low for connections.max; accepting fewer connections (raise ulimit -n or LimitNOFILE)"
        );
    }
    listen::Config { max: usize::try_from(fit).unwrap_or(usize::MAX), ..config.connections.clone() }
}

// === impl RunningListener ===

impl RunningListener {
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
