//! `holdfast completions`

use std::io::{self, Write as _};

use clap::Args;
use clap_complete::Shell;

use crate::cli::{failure::Failure, output::written};

/// Print a script that completes commands and flags in a shell.
///
/// The script goes to standard output. Save it where your shell looks for completions, and replace it after each
/// update of Holdfast.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct CompletionsArgs {
    /// The shell
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
        // The library does not write to standard output itself, because it would panic at a closed pipe.
        let mut script = Vec::new();
        let name = command.get_name().to_owned();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        written(io::stdout().write_all(&script))
    }
}
