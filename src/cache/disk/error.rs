//! Why a directory cannot be used.

use std::{io, path::PathBuf};

/// Why the disk cache cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// Another process has it.
    #[error(
        "{0:?} is in use by another process: stop that one, or give each a directory of its own with cache.disk.path"
    )]
    InUse(PathBuf),
    /// A file is there.
    #[error("{0:?} is not a directory: set cache.disk.path to one, or to where one can be made")]
    NotADirectory(PathBuf),
    /// It is not there, and cannot be made.
    #[error("{path:?} is not there and cannot be made: {source}")]
    CannotBeMade {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is there, but of no use.
    #[error("{path:?} cannot be written to: {source}")]
    CannotBeWritten {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// What is in it cannot be counted or brought down to its size.
    #[error("what is in {path:?} cannot be read, or not be deleted where it is too much: {source}")]
    CannotBeRead {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}
