//! How much is kept.

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

use super::redis::RedisConfig;

/// The cache in memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// All of it: content, index and overhead.
    pub size: ByteSize,
    /// What a fleet shares, beneath it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis: Option<RedisConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self { size: ByteSize::mib(512), redis: None }
    }
}
