//! Reasons why the program cannot start.

use crate::{cache::DiskError, config::Problem, listen::BindError};

/// Why the program cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(Problem),
    /// The address for clients, `listen`, cannot be bound.
    #[error(transparent)]
    Listen(BindError),
    /// The address for operators, `admin`, cannot be bound.
    #[error(transparent)]
    Admin(BindError),
    /// The node of the demo has no address.
    #[error(transparent)]
    Node(BindError),
    /// The directory of the cache cannot be opened.
    #[error("cache.disk: {0}")]
    Disk(DiskError),
}
