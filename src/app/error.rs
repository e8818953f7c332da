//! Reasons why the program cannot start.

use crate::{cache::DiskError, config::Problem, listen::BindError};

/// Why the program cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(Problem),
    /// An address cannot be bound.
    #[error(transparent)]
    Bind(BindError),
    /// The directory of the cache cannot be opened.
    #[error("cache.disk: {0}")]
    Disk(DiskError),
}
