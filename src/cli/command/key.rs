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

/// Make a new key: the key is shown once, the lines for the configuration hold its hash.
///
/// The key itself goes to standard error and the lines to standard output, so that they can be added to the file. From
/// the first key on nobody comes in without one. For operators, take the sha256 out of the lines and set it as admin_token.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
struct NewKeyArgs {
    /// Who will use it, for people [default: made from the hash]
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  holdfast key new --name wallet
  holdfast key new --name wallet >> holdfast.toml    and SIGHUP: then it counts";

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
            .map_err(|error| Failure::Other(format!("the system gives no random bytes: {error}")))?;
        let hash = key.hash().to_string();
        let name = self.name.unwrap_or_else(|| format!("key-{}", &hash[..8]));
        // Not where the lines go: the file that they are added to must not hold it.
        let key = key.reveal();
        let shown = format!(
            "The key, shown this once; give it to the client, in one of these places:\n\n  \
             authorization: Bearer {key}\n  x-api-key: {key}\n  http://127.0.0.1:8555/k/{key}\n\n\
             For the configuration:\n"
        );
        // First: what opens the door must not be lost when the door is built.
        written(std::io::stderr().write_all(shown.as_bytes()))?;
        // Begins with an empty line: the file may not end with a line of its own.
        say(format_args!("\n[[http.keys]]\nname = \"{name}\"\nsha256 = \"{hash}\""))
    }
}

fn name(text: &str) -> Result<String, String> {
    KeyConfig::check_name(text).map(|()| text.to_owned())
}
