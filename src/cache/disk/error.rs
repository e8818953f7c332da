//! Errors of opening the disk cache.

use std::{io, path::PathBuf};

/// Reason why the disk cache cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// Another process uses the directory.
    #[error(
        "{0:?} is in use by another process: stop that process, or set cache.disk.path to another directory"
    )]
    InUse(PathBuf),
    /// The path, or a part of it, is a file.
    #[error("{0:?} is not a directory: set cache.disk.path to an existing or a new directory")]
    NotADirectory(PathBuf),
    /// The directory does not exist, and creating it failed.
    #[error("{path:?} does not exist, and creating it failed: {source}")]
    CannotBeMade {
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The directory exists, but creating or locking its lock file failed.
    #[error("cannot write to {path:?}: {source}")]
    CannotBeWritten {
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Listing the segments, or deleting segments beyond the size limit, failed.
    #[error("cannot read {path:?}, or delete segments beyond cache.disk.size: {source}")]
    CannotBeRead {
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}
