//! The command line.

mod admin;
mod blocks;
mod check;
mod completions;
mod demo;
mod health;
mod inspect;
mod key;
mod log;
mod numbers;
#[cfg_attr(not(feature = "otlp"), path = "no_otlp.rs")]
mod otlp;
mod progress;
mod serve;
mod signal;
mod warm;

use std::{
    env,
    fmt::Display,
    future::Future,
    io::{self, Write},
    net::SocketAddr,
    process::ExitCode,
};

use clap::{
    Parser, Subcommand,
    error::{ContextKind, ErrorKind},
};
use tokio::runtime::Runtime;

use self::signal::ReloadSignal;
use crate::{
    app::StartError,
    config::{AN_ADDRESS, ConfigError, LogConfig},
};

/// `EX_USAGE`: the command line or the configuration is wrong, and trying again will not help.
const EXIT_USAGE: u8 = 64;

/// As a shell tells of a command that ctrl-c has ended.
const EXIT_INTERRUPTED: u8 = 130;

/// A caching sidecar for Ethereum reads.
///
/// Point wallets, dapps and indexers at it instead of at a node or a paid provider.
#[derive(Debug, Parser)]
#[command(version, about, after_help = EXAMPLES, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::ServeArgs>),
    Demo(demo::DemoArgs),
    Check(check::CheckArgs),
    Health(health::HealthArgs),
    Inspect(inspect::InspectArgs),
    Warm(warm::WarmArgs),
    Purge(inspect::PurgeArgs),
    Key(key::KeyArgs),
    Completions(completions::CompletionsArgs),
}

const EXAMPLES: &str = "\
Examples:
  holdfast demo                                      try it, with no node at hand
  holdfast serve --upstream http://127.0.0.1:8545    in front of your node
  holdfast check --upstream http://127.0.0.1:8545    what does that node know?
  holdfast inspect 19000000                          what is in memory of that block?
  holdfast warm --blocks 19000000..latest            have them there before they are asked for
  holdfast key new --name wallet                     a key for a client
  holdfast serve --config holdfast.toml              everything else is in the file";

/// Why a command ended badly.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Start(#[from] StartError),
    /// Told to stop before the end; what there is to say has been said.
    #[error("")]
    Interrupted,
    /// Everything has been said already.
    #[error("")]
    Said,
    #[error("cannot write the output: {0}")]
    Output(#[source] io::Error),
    #[error("{0}")]
    Other(String),
}

/// What `serve` and `demo` have from the first moment on: whoever starts many, or reads a list of processes, may send
/// SIGHUP to one that has not yet read what it was started with, and it must not die of that.
struct EarlyRuntime {
    runtime: Runtime,
    hangup: ReloadSignal,
}

/// Runs the command line that this process was started with.
pub fn main() -> ExitCode {
    // Looked at before the command line is understood, which takes longer than it takes to be sent a signal.
    let early = env::args_os().nth(1).filter(|command| command == "serve" || command == "demo");
    let early = early.map(|_| EarlyRuntime::start());
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too, and are no mistakes.
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            let printed = match stray_url(&error) {
                true => written(writeln!(io::stderr(), "{STRAY_URL}")),
                false => written(error.print()),
            };
            return if asked { exit(printed) } else { ExitCode::from(EXIT_USAGE) };
        }
    };
    let early = || early.unwrap_or_else(EarlyRuntime::start);
    exit(match cli.command {
        Command::Serve(serve) => early().and_then(|early| serve.run(early)),
        Command::Demo(demo) => early().and_then(|early| demo.run(early)),
        Command::Check(check) => check.run(),
        Command::Health(health) => health.run(),
        Command::Inspect(inspect) => inspect.run(),
        Command::Warm(warm) => warm.run(),
        Command::Purge(purge) => purge.run(),
        Command::Key(key) => key.run(),
        Command::Completions(completions) => completions.run(),
    })
}

/// The message for a URL that belongs to no flag. It does not repeat the URL, which may contain a provider's key.
const STRAY_URL: &str = "error: unexpected URL on the command line\n\n  tip: name the node with --upstream URL\n\n\
                         For more information, try '--help'.";

/// Returns whether clap's own message would repeat a URL.
fn stray_url(error: &clap::Error) -> bool {
    let found = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand, ContextKind::InvalidValue];
    found.into_iter().filter_map(|kind| error.get(kind)).any(|value| value.to_string().contains("://"))
        && matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand)
}

fn exit(done: Result<(), Failure>) -> ExitCode {
    let Err(failure) = done else { return ExitCode::SUCCESS };
    let message = failure.to_string();
    if !message.is_empty() {
        // Where this cannot be written either, the code must do: `eprintln!` would panic.
        let _ = writeln!(io::stderr(), "holdfast: {message}");
    }
    ExitCode::from(failure.exit_code())
}

// === impl Failure ===

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Start(StartError::Config(_)) => EXIT_USAGE,
            Self::Interrupted => EXIT_INTERRUPTED,
            Self::Start(StartError::Bind(_) | StartError::Disk(_))
            | Self::Said
            | Self::Output(_)
            | Self::Other(_) => 1,
        }
    }
}

// === impl EarlyRuntime ===

impl EarlyRuntime {
    fn start() -> Result<Self, Failure> {
        let runtime = runtime()?;
        let hangup = {
            let _entered = runtime.enter();
            ReloadSignal::listen().map_err(|error| Failure::Other(format!("cannot take signals: {error}")))?
        };
        Ok(Self { runtime, hangup })
    }

    /// Runs `command`, which gets to know of what was sent since the start.
    fn block_on<F>(self, command: impl FnOnce(ReloadSignal) -> F) -> Result<(), Failure>
    where
        F: Future<Output = Result<(), Failure>>,
    {
        block_on(self.runtime, command(self.hangup))
    }
}

/// Runs `command` with the log on.
fn run(log: &LogConfig, command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    log::start(log, None);
    block_on(runtime()?, command)
}

fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Other(format!("cannot start the runtime: {error}")))
}

fn block_on(runtime: Runtime, command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let done = runtime.block_on(command);
    // All that must be finished is; a name look-up that hangs in a thread must not hold up the end.
    runtime.shutdown_background();
    done
}

/// Prints a line. Nobody need read it: `println!` would panic at a pipe that was closed.
///
/// # Errors
/// If it is lost otherwise, on a disk that is full, say: a script must not go on as if it were there.
fn say(line: impl Display) -> Result<(), Failure> {
    written(writeln!(io::stdout(), "{line}"))
}

fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        // Whoever has closed the other end does not want it.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Output(error)),
        _ => Ok(()),
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("expected {AN_ADDRESS}"))
}
