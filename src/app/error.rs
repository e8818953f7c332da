//! Reasons why the program cannot start.

use crate::{cache::DiskError, config::Problem, listen::BindError};

/// Why the program cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration asks for what cannot be.
    #[error(transparent)]
    Config(Problem),
    /// An address cannot be had.
    #[error(transparent)]
    Bind(BindError),
    /// The directory of the cache cannot be had.
    #[error("cache.disk: {0}")]
    Disk(DiskError),
}
