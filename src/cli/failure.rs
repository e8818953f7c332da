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
    #[error(transparent)]
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
            Self::Start(StartError::Bind(_) | StartError::Disk(_))
            | Self::Said
            | Self::Output(_)
            | Self::Other(_) => 1,
        }
    }
}
