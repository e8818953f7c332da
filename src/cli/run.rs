//! Reads the command line and runs the command.

use std::{
    env,
    io::{self, Write},
    process::ExitCode,
};

use clap::{
    CommandFactory as _, Parser, Subcommand,
    error::{ContextKind, ErrorKind},
};

use super::{
    command::{check, completions, demo, health, inspect, key, serve, warm},
    failure::{EXIT_USAGE, Failure},
    output::written,
    runtime::EarlyRuntime,
    version::LONG_VERSION,
};

/// A caching sidecar for Ethereum reads.
///
/// Point wallets, dapps and indexers at it instead of at a node or a paid provider.
#[derive(Debug, Parser)]
#[command(version, long_version = LONG_VERSION.as_str(), about, after_help = EXAMPLES, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::ServeArgs>),
    Demo(demo::DemoArgs),
    Check(Box<check::CheckArgs>),
    Health(health::HealthArgs),
    Inspect(inspect::InspectArgs),
    Warm(warm::WarmArgs),
    Purge(inspect::PurgeArgs),
    Key(key::KeyArgs),
    Completions(completions::CompletionsArgs),
}

const EXAMPLES: &str = "\
Examples:
  holdfast demo                                      try it without a node
  holdfast serve --upstream http://127.0.0.1:8545    in front of your node
  holdfast check --upstream http://127.0.0.1:8545    check that node
  holdfast inspect 19000000                          show the cached data of that block
  holdfast warm --blocks 19000000..latest            fetch blocks ahead of clients
  holdfast key new --name wallet                     a key for a client
  holdfast serve --config holdfast.toml              use a configuration file";

/// Runs the command line that this process was started with.
pub fn main() -> ExitCode {
    // Installs the SIGHUP handler before the command line is parsed, because the signal can arrive at any time.
    let early = env::args_os().nth(1).filter(|command| command == "serve" || command == "demo");
    let early = early.map(|_| EarlyRuntime::start());
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // clap reports `--help` and `--version` as errors, too.
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            let printed = match (stray_url(&error), removed_command(&error)) {
                (true, _) => written(writeln!(io::stderr(), "{STRAY_URL}")),
                (_, true) => written(writeln!(io::stderr(), "{REMOVED_COMMAND}")),
                _ => written(error.print()),
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
        Command::Completions(completions) => completions.run(Cli::command()),
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

/// The message for `export` and `import`, which earlier versions had.
const REMOVED_COMMAND: &str = "error: this command was removed\n\n  tip: copy the data directory instead, see \
                               docs/operating.md#copying-the-data-directory";

fn removed_command(error: &clap::Error) -> bool {
    let command = error.get(ContextKind::InvalidSubcommand).map(ToString::to_string);
    matches!(command.as_deref(), Some("export" | "import"))
}

fn exit(done: Result<(), Failure>) -> ExitCode {
    let Err(failure) = done else { return ExitCode::SUCCESS };
    let message = failure.to_string();
    if !message.is_empty() {
        // Ignores an error, because only the exit code can report it. `eprintln!` would panic.
        let _ = writeln!(io::stderr(), "holdfast: {message}");
    }
    ExitCode::from(failure.exit_code())
}
