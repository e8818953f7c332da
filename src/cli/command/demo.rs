//! `holdfast demo`

use clap::Args;

use crate::cli::{
    failure::Failure,
    log,
    output::say,
    runtime::EarlyRuntime,
    signal::{ReloadSignal, StopSignals},
};
use crate::{
    app,
    config::{Config, Sources},
};

/// Run a demo: a development chain, Holdfast in front of it, and calls to try.
///
/// Needs no node and no network, and reads no file. From the environment it reads only its addresses. Stop it with
/// ctrl-c.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct DemoArgs {
    /// Address for clients
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8555", env = "HOLDFAST_LISTEN")]
    listen: String,

    /// Address for operators
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8556", env = "HOLDFAST_ADMIN")]
    admin: String,

    /// Log level: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log_level: String,
}

const EXAMPLES: &str = "\
Examples:
  holdfast demo                                                   then open http://127.0.0.1:8556
  holdfast demo --listen 127.0.0.1:9555 --admin 127.0.0.1:9556    if the default ports are in use";

// === impl DemoArgs ===

impl DemoArgs {
    pub(in crate::cli) fn run(self, early: EarlyRuntime) -> Result<(), Failure> {
        let sources = Sources::none()
            .with_flag("listen", Some(self.listen))
            .with_flag("admin", Some(self.admin))
            .with_flag("log.level", Some(self.log_level));
        let config = sources.load()?;
        log::start(&config.log, None);
        early.block_on(|hangup| demo(config, hangup))
    }
}

async fn demo(config: Config, mut hangup: ReloadSignal) -> Result<(), Failure> {
    let mut signals = StopSignals::listen()
        .map_err(|error| Failure::Other(format!("cannot install signal handlers: {error}")))?;
    let demo = app::Demo::start(config).await?;
    introduce(&demo)?;
    let told = tokio::select! {
        () = demo.run() => Ok(()),
        told = tell(&demo) => told,
        () = signals.next() => Ok(()),
        // The demo has no configuration to reload, so SIGHUP means that the terminal was closed.
        () = hangup.next() => Ok(()),
    };
    // Boxed, because the future contains the whole program and is large.
    signals.or_again(Box::pin(demo.stop())).await;
    told
}

fn introduce(demo: &app::Demo) -> Result<(), Failure> {
    let (rpc, admin) = (demo.rpc_address(), demo.admin_address());
    say(format_args!(
        "A development chain with a block every {} s, and Holdfast in front of it.\n",
        app::Demo::BLOCK_TIME.as_secs()
    ))?;
    say(format_args!("  proxy   http://{rpc}   point a wallet here (chain id {})", demo.chain_id()))?;
    say(format_args!("  admin   http://{admin}   open it in a browser; /status, /metrics, /ready"))?;
    say(format_args!("  node    {}   the chain itself, to compare\n", demo.node_url()))?;
    say(format_args!("Try, in another terminal:\n"))?;
    for call in demo.example_calls() {
        say(format_args!("  curl -s http://{rpc} -H 'content-type: application/json' -d '{call}'\n"))?;
    }
    say(format_args!("Press ctrl-c to stop.\n"))
}

/// Prints a line for each block.
async fn tell(demo: &app::Demo) -> Result<(), Failure> {
    loop {
        let app::MinedBlock { number, hash, transactions } = demo.mined().await;
        say(format_args!("block {number:<6} {hash}  {transactions} transactions"))?;
    }
}
