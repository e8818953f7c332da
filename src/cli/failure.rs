//! Reasons why a command fails, and its exit code.

use std::io;

use crate::{app::StartError, config::ConfigError};

/// `EX_USAGE`: the command line or the configuration is wrong, and trying again will not help.
pub(super) const EXIT_USAGE: u8 = 64;

/// Exit code that shells use for a command that ctrl-c ended.
const EXIT_INTERRUPTED: u8 = 130;

/// Reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{0}{tip}", tip = port_tip(.0))]
    Start(#[from] StartError),
    /// A signal stopped the command. There is no further message.
    #[error("")]
    Interrupted,
    /// The command has already printed the reason.
    #[error("")]
    Said,
    #[error("cannot write the output: {0}")]
    Output(#[source] io::Error),
    #[error("{0}")]
    Other(String),
}

// === impl Failure ===

impl Failure {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Start(StartError::Config(_)) => EXIT_USAGE,
            Self::Interrupted => EXIT_INTERRUPTED,
            Self::Start(
                StartError::Listen(_) | StartError::Admin(_) | StartError::Node(_) | StartError::Disk(_),
            )
            | Self::Said
            | Self::Output(_)
            | Self::Other(_) => 1,
        }
    }
}

/// Returns the flag of the address whose port another program uses.
pub(super) fn taken_by_another(error: &StartError) -> Option<&'static str> {
    let (bind, flag) = match error {
        StartError::Listen(bind) => (bind, "--listen"),
        StartError::Admin(bind) => (bind, "--admin"),
        StartError::Node(_) | StartError::Config(_) | StartError::Disk(_) => return None,
    };
    (bind.source.kind() == io::ErrorKind::AddrInUse).then_some(flag)
}

fn port_tip(error: &StartError) -> String {
    let tip = |flag| {
        format!(
            "\n\n  tip: another program, perhaps another Holdfast, uses this port; choose another with {flag}"
        )
    };
    taken_by_another(error).map_or_else(String::new, tip)
}
