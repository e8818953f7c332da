//! `holdfast serve`

use std::path::PathBuf;

use clap::Args;

use crate::cli::{
    failure::Failure,
    log::{self, LogLevel},
    otlp::Export,
    runtime::EarlyRuntime,
    signal::{ReloadSignal, StopSignals},
};
use crate::{
    app::App,
    config::{Config, ConfigError, LogFormat, Sources},
};

/// Serve clients in front of a node.
///
/// The node may be down at the start: /ready on the admin listener reports when it is up. Settings without a flag
/// come from the file or the environment: HOLDFAST_HTTP__MAX_BATCH=100 sets max_batch in [http],
/// HOLDFAST_UPSTREAM_URL names the node. Flags override the environment, which overrides the file.
///
/// SIGHUP reloads the configuration without losing a connection. At SIGTERM or ctrl-c, Holdfast answers the requests in
/// flight and then exits; at a second signal, a second later or more, it exits at once.
///
/// Exits with 0 after a signal to stop, with 64 if the configuration is wrong, and with 1 if it cannot listen or cannot
/// open the cache directory.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct ServeArgs {
    /// Settings that the file can contain, too.
    #[command(flatten)]
    settings: Settings,
}

const EXAMPLES: &str = "\
Examples:
  holdfast serve --upstream http://127.0.0.1:8545
  holdfast serve --upstream http://127.0.0.1:8545 --cache-size 2GiB --max-staleness 2s
  holdfast serve --upstream http://127.0.0.1:8545 --verify full --on-mismatch reject
  holdfast serve --upstream http://127.0.0.1:8545 --data /var/lib/holdfast
  holdfast serve --config holdfast.toml --log-format json
  HOLDFAST_UPSTREAM_URL=https://node.example/KEY holdfast serve    keeps the URL out of process lists";

/// Settings that `serve` and `check` share.
#[derive(Debug, Args)]
pub(in crate::cli) struct Settings {
    /// The configuration file, or HOLDFAST_CONFIG; config/holdfast.toml in the source documents every key
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The node's URL, such as http://127.0.0.1:8545; give it several times for several nodes of one chain. Replaces
    /// the endpoints of the file. Never shown in full, because it may contain a key
    #[arg(long, value_name = "URL")]
    upstream: Vec<String>,

    /// Refuse nodes of any other chain; decimal or hexadecimal, such as 1 or 0x1
    #[arg(long, value_name = "ID", value_parser = chain_id)]
    chain_id: Option<u64>,

    /// Store finalized blocks in this directory, too, so that they survive a restart; up to 10 GiB unless
    /// cache.disk.size is set
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Store finalized blocks in this Redis, too, to share them between instances: redis://HOST:PORT, or rediss://
    /// for TLS. Never shown in full
    #[arg(long, value_name = "URL")]
    redis: Option<String>,

    /// Address or host name, and port, for clients [default: 127.0.0.1:8555]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,

    /// Address or host name, and port, for operators: status page, /live, /ready, /status, /metrics [default: 127.0.0.1:8556]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,

    /// Size of the cache in memory, such as "2 GiB" [default: 512 MiB]
    #[arg(long, value_name = "SIZE")]
    cache_size: Option<String>,

    /// How old an answer may be, such as "500ms"; a longer time saves upstream calls [default: 1s]
    #[arg(long, value_name = "TIME")]
    max_staleness: Option<String>,

    /// Verification of answers before they enter the cache: auto (every proof that needs no further calls), full (proof of
    /// everything) or structural (only the shape) [default: auto]
    #[arg(long, value_name = "LEVEL")]
    verify: Option<String>,

    /// Handling of answers that fail verification: pass (serve the answer, but do not cache it) or reject (return an
    /// error) [default: pass]
    #[arg(long, value_name = "POLICY")]
    on_mismatch: Option<String>,

    /// Serve only the six read operations
    #[arg(long)]
    strict: bool,

    /// Log level: error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,

    /// Log format [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

pub(in crate::cli) fn chain_id(text: &str) -> Result<u64, String> {
    let read = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    read.map_err(|_| "expected a number such as 1, 11155111 or 0x1".to_owned())
}

// === impl ServeArgs ===

impl ServeArgs {
    pub(in crate::cli) fn run(self, early: EarlyRuntime) -> Result<(), Failure> {
        let sources = self.settings.sources();
        let config = sources.clone().load()?;
        let (export, spans) =
            Export::start(&config.tracing, early.runtime.handle()).map_err(ConfigError::Problem)?;
        let level = log::start(&config.log, spans);
        early.block_on(|reloads| serve(config, sources, level, export, reloads))
    }
}

async fn serve(
    config: Config,
    sources: Sources,
    level: LogLevel,
    export: Export,
    mut reloads: ReloadSignal,
) -> Result<(), Failure> {
    let mut signals = StopSignals::listen()
        .map_err(|error| Failure::Other(format!("cannot install signal handlers: {error}")))?;
    let app = App::builder().config(config).start().await?;
    loop {
        tokio::select! {
            () = signals.next() => break,
            // The reload reads files and may block this task, which has no other work than to wait for signals.
            () = reloads.next() => app.reload(sources.clone().load(), |log| level.set(log)),
        }
    }
    // Boxed, because the future contains the whole program and is large.
    let stop = Box::pin(async {
        app.stop().await;
        // All calls have been answered, so all spans have ended.
        export.finish().await;
    });
    signals.or_again(stop).await;
    Ok(())
}

// === impl Settings ===

impl Settings {
    pub(in crate::cli) fn sources(self) -> Sources {
        Sources::none()
            .with_file(self.config)
            .with_environment()
            .with_upstreams(self.upstream)
            .with_flag("chain_id", self.chain_id)
            .with_flag("cache.disk.path", self.data)
            .with_flag("cache.redis.url", self.redis)
            .with_flag("listen", self.listen)
            .with_flag("admin", self.admin)
            .with_flag("cache.size", self.cache_size)
            .with_flag("chain.max_staleness", self.max_staleness)
            .with_flag("verify.level", self.verify)
            .with_flag("verify.on_mismatch", self.on_mismatch)
            .with_flag("strict", self.strict.then_some(true))
            .with_flag("log.level", self.log_level)
            .with_flag("log.format", self.log_format)
    }
}
