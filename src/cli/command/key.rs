//! `holdfast key`

use std::io::Write as _;

use clap::{Args, Subcommand};

use crate::cli::{failure::Failure, output::say, output::written};
use crate::http::{KeyConfig, NewKey};

/// Make keys for clients, and tokens for operators.
#[derive(Debug, Args)]
pub(in crate::cli) struct KeyArgs {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    New(NewKeyArgs),
}

/// Make a new key, show it once, and print its hash as lines for the configuration.
///
/// The key itself goes to standard error and the lines to standard output, so that a shell can append the lines to the
/// file.
/// As soon as one key is configured, every client needs a key. For operators, set the sha256 of these lines as
/// admin_token.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
struct NewKeyArgs {
    /// Name of the client [default: made from the hash]
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  holdfast key new --name wallet
  holdfast key new --name wallet >> holdfast.toml    then send SIGHUP to apply it";

// === impl KeyArgs ===

impl KeyArgs {
    pub(in crate::cli) fn run(self) -> Result<(), Failure> {
        match self.command {
            KeyCommand::New(new) => new.run(),
        }
    }
}

// === impl NewKeyArgs ===

impl NewKeyArgs {
    fn run(self) -> Result<(), Failure> {
        let key = NewKey::random()
            .map_err(|error| Failure::Other(format!("cannot get random bytes from the system: {error}")))?;
        let hash = key.hash().to_string();
        let name = self.name.unwrap_or_else(|| format!("key-{}", &hash[..8]));
        // The key must not go to standard output, which users append to the configuration file.
        let key = key.reveal();
        let shown = format!(
            "The key, shown only once. The client sends it in one of these places:\n\n  \
             authorization: Bearer {key}\n  x-api-key: {key}\n  http://127.0.0.1:8555/k/{key}\n\n\
             For the configuration:\n"
        );
        // The key is written before its hash, because the hash must not get into the file if the key cannot be shown.
        written(std::io::stderr().write_all(shown.as_bytes()))?;
        // Starts with a line break, because the last line of the file may lack one.
        say(format_args!("\n[[http.keys]]\nname = \"{name}\"\nsha256 = \"{hash}\""))
    }
}

fn name(text: &str) -> Result<String, String> {
    KeyConfig::check_name(text).map(|()| text.to_owned())
}
