//! `holdfast demo`

mod tell;

use std::{
    fmt::Display,
    io::{self, IsTerminal},
    pin::pin,
    time::Duration,
};

use clap::Args;
use tokio::{sync::mpsc, time};

use self::tell::{announcement, miss_and_hit, score, staged, try_it};
use crate::cli::{
    failure::{Failure, taken_by_another},
    live_line::LiveLine,
    log,
    output::say,
    runtime::EarlyRuntime,
    signal::{ReloadSignal, StopSignals},
};
use crate::{
    app::{Demo, DemoError, StartError},
    config::{Config, Sources},
};

/// Run a demo: a development chain, Holdfast in front of it, its own traffic, and a reorg every minute.
///
/// On a terminal, it shows a miss and a hit, a reorg with the answers before and after it, and a score that is updated in
/// place. Otherwise it prints only its addresses.
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

    /// Number of blocks, each of 2 s, between two reorgs; 0 for no reorgs after the first
    #[arg(long, value_name = "BLOCKS", default_value_t = 30)]
    reorg_every: u64,

    /// Log level: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log_level: String,
}

const EXAMPLES: &str = "\
Examples:
  holdfast demo                                             then open http://127.0.0.1:8556
  holdfast demo --listen 127.0.0.1:0 --admin 127.0.0.1:0    on free ports, if the default ones are in use";

/// Time between two updates of the score.
const SCORE_EVERY: Duration = Duration::from_secs(1);

/// Number of reorgs that can wait to be announced. The terminal shows each within a moment.
const UNTOLD: usize = 4;

// === impl DemoArgs ===

impl DemoArgs {
    pub(in crate::cli) fn run(self, early: EarlyRuntime) -> Result<(), Failure> {
        let sources = Sources::none()
            .with_flag("listen", Some(self.listen))
            .with_flag("admin", Some(self.admin))
            .with_flag("log.level", Some(self.log_level));
        let config = sources.load()?;
        match io::stderr().is_terminal() && LiveLine::on_stdout().is_some() {
            true => log::start_above_live_line(&config.log),
            false => drop(log::start(&config.log, None)),
        }
        early.block_on(|hangup| demo(config, self.reorg_every, hangup))
    }
}

async fn demo(config: Config, reorg_every: u64, mut hangup: ReloadSignal) -> Result<(), Failure> {
    let mut signals = StopSignals::listen()
        .map_err(|error| Failure::Other(format!("cannot install signal handlers: {error}")))?;
    let demo = Demo::start(config, reorg_every).await.map_err(not_started)?;
    let mut live = LiveLine::on_stdout();
    introduce(&demo)?;
    let mut told = tokio::select! {
        told = perform(&demo, live.as_mut()) => told,
        () = signals.next() => Ok(()),
        () = hangup.next() => {
            // The demo has no configuration to reload, so SIGHUP means that the terminal was closed.
            live = None;
            Ok(())
        }
    };
    if let Some(live) = live {
        told = told.and(live.end(&score(&demo.score())));
    }
    // Boxed, because the future contains the whole program and is large.
    signals.or_again(Box::pin(demo.stop())).await;
    told
}

/// Adds to the error for a taken port that the demo can run on any port.
fn not_started(error: StartError) -> Failure {
    if taken_by_another(&error).is_none() {
        return Failure::Start(error);
    }
    Failure::Other(format!(
        "{error}\n\n  tip: another program, perhaps another Holdfast, uses this port; to use free ports, run\n       \
         holdfast demo --listen 127.0.0.1:0 --admin 127.0.0.1:0"
    ))
}

fn introduce(demo: &Demo) -> Result<(), Failure> {
    let (rpc, admin) = (format!("http://{}", demo.rpc_address()), format!("http://{}", demo.admin_address()));
    let seconds = Demo::BLOCK_TIME.as_secs();
    say(format_args!(
        "A development chain with a block every {seconds} s, and Holdfast as a cache in front of it.\n"
    ))?;
    say(format_args!("  RPC endpoint   {rpc:<24} for a wallet or a library (chain id {})", demo.chain_id()))?;
    say(format_args!("  status page    {admin:<24} open it in a browser"))?;
    say(format_args!("  node           {:<24} the chain itself, to compare\n", demo.node_url()))?;
    say(
        "The demo sends its own traffic, about 20 calls a second: an indexer reads each new block with its\n\
         receipts and logs, an explorer opens transactions, a wallet polls a balance and a receipt.\n",
    )?;
    say("Press ctrl-c to stop.")
}

/// Runs the demo, and tells its story if there is a terminal.
async fn perform(demo: &Demo, live: Option<&mut LiveLine>) -> Result<(), Failure> {
    let (sender, mut reorgs) = mpsc::channel(UNTOLD);
    let Some(live) = live else {
        demo.run(sender).await;
        return Ok(());
    };
    let [first, second] = demo.miss_and_hit().await.map_err(failed)?;
    say_all(miss_and_hit(&first, &second))?;
    say_all(staged(&demo.reorg().await.map_err(failed)?))?;
    say_all(try_it(demo.rpc_address(), Demo::UNREAD_BLOCK))?;

    let mut running = pin!(demo.run(sender));
    let mut ticks = time::interval(SCORE_EVERY);
    loop {
        tokio::select! {
            () = &mut running => return Ok(()),
            Some(reorg) = reorgs.recv() => live.print_above(announcement(&reorg))?,
            _ = ticks.tick() => {}
        }
        live.show(&score(&demo.score()))?;
    }
}

fn say_all(lines: Vec<impl Display>) -> Result<(), Failure> {
    say("")?;
    lines.into_iter().try_for_each(say)
}

fn failed(error: DemoError) -> Failure {
    Failure::Other(error.to_string())
}
