//! How much is kept.

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

/// The cache in memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// All of it: content, index and overhead.
    pub size: ByteSize,
}

impl Default for Config {
    fn default() -> Self {
        Self { size: ByteSize::mib(512) }
    }
}
