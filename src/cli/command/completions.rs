//! `holdfast completions`

use std::io::{self, Write as _};

use clap::Args;
use clap_complete::Shell;

use crate::cli::{failure::Failure, output::written};

/// Print what a shell needs to complete commands and flags.
///
/// The script goes to standard output; save it where your shell looks for completions, once after each update.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct CompletionsArgs {
    /// The shell it is for
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  holdfast completions bash > ~/.local/share/bash-completion/completions/holdfast
  holdfast completions zsh > ~/.zfunc/_holdfast      if ~/.zfunc is in your fpath
  holdfast completions fish > ~/.config/fish/completions/holdfast.fish";

// === impl CompletionsArgs ===

impl CompletionsArgs {
    pub(in crate::cli) fn run(self, mut command: clap::Command) -> Result<(), Failure> {
        // Not at once to where it goes: the library panics at a pipe that was closed.
        let mut script = Vec::new();
        let name = command.get_name().to_owned();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        written(io::stdout().write_all(&script))
    }
}
