//! The command line.

mod check;
mod demo;
mod health;
mod key;
mod log;
mod serve;
mod signal;

use std::{
    fmt::Display,
    future::Future,
    io::{self, Write},
    net::SocketAddr,
    process::ExitCode,
};

use clap::{Parser, Subcommand, error::ErrorKind};

use crate::{
    app::StartError,
    config::{ConfigError, LogConfig},
};

/// `EX_USAGE`: the command line or the configuration is wrong, and trying again will not help.
const EXIT_USAGE: u8 = 64;

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
    Serve(serve::Serve),
    Demo(demo::Demo),
    Check(check::Check),
    Health(health::Health),
    Key(key::Key),
}

const EXAMPLES: &str = "\
Examples:
  holdfast demo                                      try it, with no node at hand
  holdfast serve --upstream http://127.0.0.1:8545    in front of your node
  holdfast check --upstream http://127.0.0.1:8545    what does that node know?
  holdfast key new --name wallet                     a key for a client
  holdfast serve --config holdfast.toml              everything else is in the file";

/// Why a command ended badly.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Start(#[from] StartError),
    /// Everything has been said already.
    #[error("")]
    Said,
    #[error("{0}")]
    Other(String),
}

/// Runs the command line that this process was started with.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too, and are no mistakes.
            let _ = error.print();
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return ExitCode::from(if asked { 0 } else { EXIT_USAGE });
        }
    };
    let done = match cli.command {
        Command::Serve(serve) => serve.run(),
        Command::Demo(demo) => demo.run(),
        Command::Check(check) => check.run(),
        Command::Health(health) => health.run(),
        Command::Key(key) => key.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let message = failure.to_string();
            if !message.is_empty() {
                eprintln!("holdfast: {message}");
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

// === impl Failure ===

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Start(StartError::Config(_)) => EXIT_USAGE,
            Self::Start(StartError::Bind(_)) | Self::Said | Self::Other(_) => 1,
        }
    }
}

/// Runs `command` with the log on.
fn run(log: &LogConfig, command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    log::start(log);
    block_on(command)
}

fn block_on(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Other(format!("cannot start the runtime: {error}")))?;
    let done = runtime.block_on(command);
    // All that must be finished is; a name look-up that hangs in a thread must not hold up the end.
    runtime.shutdown_background();
    done
}

/// Prints a line. Nobody need read it: `println!` would panic at a pipe that was closed.
fn say(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "expected an address and a port, such as 127.0.0.1:8555 or [::1]:8555".to_owned())
}
