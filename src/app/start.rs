//! Starts the listeners, and ends them in order.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use prometheus_client::registry::Registry;
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{self, Instant},
};
use tracing::{info, warn};

use super::report::Report;
use crate::{
    admin::Admin,
    budget::ByteBudget,
    cache::Cache,
    config::{Config, Problem},
    http::{self, Access, Edge, HostCheck},
    listen::{self, BindError, Listener, raise_file_limit},
    proxy::{self, Identity, Policy, ProxyParts},
    upstream::{self, HeadFeed, HttpLeaf, Upstream},
    verify::{self, Verifier},
};

/// Operators and probes are few; their connections must not be the clients' loss.
const ADMIN_CONNECTIONS: usize = 64;

/// Files beside connections: listeners, logs, the runtime's own.
const OTHER_FILES: u64 = 64;

/// The program, running.
#[derive(Debug)]
pub struct App {
    rpc: Served,
    admin: Served,
    access: Access,
    identity: Identity,
    watch: JoinHandle<()>,
    follow: JoinHandle<()>,
    report: Arc<Report>,
    drain_delay: Duration,
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
}

// === impl App ===

impl App {
    /// Binds the listeners and starts to serve. The upstream need not be up.
    ///
    /// # Errors
    /// If the configuration names no usable upstream, or an address cannot be had.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let mut registry = Registry::with_prefix("holdfast");
        let budget = ByteBudget::new(config.max_bytes_in_flight.as_u64());
        let leaf = leaf(&config.upstream, budget.clone()).map_err(StartError::Config)?;
        let feed = feed(&config.upstream).map_err(StartError::Config)?;
        let upstream_url = leaf.url().to_string();
        let upstream_metrics = upstream::Metrics::register(&mut registry);
        let upstream = Upstream::new(leaf, &upstream_url, &config.upstream, &upstream_metrics);

        let connections = connections_that_fit(&config);
        let rpc =
            Listener::bind(config.listen, connections.clone(), listen::Metrics::register(&mut registry));
        let rpc = rpc.await.map_err(StartError::Bind)?;
        // Counted for nobody: who looks at the counters should not move them.
        let few = listen::Config { max: connections.max.min(ADMIN_CONNECTIONS), ..connections };
        let admin = Listener::bind(config.admin, few, listen::Metrics::default());
        let admin = admin.await.map_err(StartError::Bind)?;

        let identity = Identity::new(config.chain_id);
        let watch = tokio::spawn(identity.watch(upstream.clone()));
        let call_metrics = proxy::Metrics::register(&mut registry);
        let cache = Cache::new(&config.cache);
        let consistent = config.upstream.endpoints.first().is_some_and(|endpoint| endpoint.consistent);
        let parts = ProxyParts {
            upstream,
            identity: identity.clone(),
            cache: cache.clone(),
            verifier: Verifier::new(config.verify.clone(), verify::Metrics::register(&mut registry)),
            consistent,
            metrics: call_metrics.clone(),
        };
        let (proxy, follower, sight) = proxy::proxy(&config.proxy(), parts);
        let report = Arc::new(Report {
            cache,
            sight,
            identity: identity.clone(),
            calls: call_metrics,
            upstream: upstream_url.clone(),
            listen: rpc.address(),
            started: Instant::now(),
            draining: false.into(),
        });
        let follow = tokio::spawn(follower.run(feed));
        // Of its own: those who take nothing must not keep others from being read.
        let waiting = ByteBudget::new(config.max_bytes_in_flight.as_u64());
        let access =
            Access::new(&config.http, Policy::new(&config.proxy()), http::Metrics::register(&mut registry));
        let listen = Some(rpc.address().ip());
        let edge = Edge { budget, waiting, access: access.clone(), listen, admin: Some(admin.address()) };
        let rpc =
            Served::start(rpc, |listener, stop| listener.serve(http::stack(&config.http, edge, proxy), stop));
        let hosts = HostCheck::new(access.clone(), admin.address().ip());
        let service = Admin::new(report.clone(), registry, hosts);
        let admin = Served::start(admin, |listener, stop| listener.serve(service, stop));

        info!(
            listen = %rpc.address,
            admin = %admin.address,
            upstream = upstream_url,
            "holdfast {} is listening",
            env!("CARGO_PKG_VERSION")
        );
        Ok(Self { rpc, admin, access, identity, watch, follow, report, drain_delay: config.drain_delay })
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
        self.identity.known().await;
    }

    /// Ends in order: not ready, still accepting for `drain_delay`; then every request whose head
    /// was read is answered; then the admin listener, so that probes see it to the end.
    pub async fn stop(self) {
        self.report.drain();
        info!(drain_delay = ?self.drain_delay, "stopping");
        time::sleep(self.drain_delay).await;
        self.rpc.stop().await;
        self.follow.abort();
        self.watch.abort();
        self.admin.stop().await;
        info!("stopped");
    }
}

/// The one endpoint there can be so far.
fn leaf(config: &upstream::Config, budget: ByteBudget) -> Result<HttpLeaf, Problem> {
    match config.endpoints.as_slice() {
        [] => Err(Problem::new(
            "upstream.endpoints",
            "no node is named; use --upstream http://127.0.0.1:8545, say",
        )),
        [endpoint] => HttpLeaf::try_new(endpoint, config, budget)
            .map_err(|error| Problem::new("upstream.endpoints.0", error)),
        _ => Err(Problem::new("upstream.endpoints", "more than one node is not supported yet; name one")),
    }
}

/// Where that endpoint tells of new heads, if it does.
fn feed(config: &upstream::Config) -> Result<Option<HeadFeed>, Problem> {
    let Some(endpoint) = config.endpoints.first() else { return Ok(None) };
    HeadFeed::try_new(endpoint, config).map_err(|error| Problem::new("upstream.endpoints.0", error))
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
