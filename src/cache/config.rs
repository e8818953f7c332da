//! Size and location of the cache.

use std::path::PathBuf;

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

use super::redis::RedisConfig;

/// The cache in memory and the tiers behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Limit in bytes of the cache in memory, including its index and overhead.
    pub size: ByteSize,
    /// The tier on disk, which stores finalized blocks and receipts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskConfig>,
    /// The tier in Redis, which Holdfast asks after the disk. Several instances can share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis: Option<RedisConfig>,
}

/// The tier on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskConfig {
    /// The data directory. Only one process can use it at a time. Holdfast creates it if it does not exist.
    pub path: PathBuf,
    /// Limit in bytes of the directory, including indexes.
    #[serde(default = "DiskConfig::default_size")]
    pub size: ByteSize,
}

impl Default for Config {
    fn default() -> Self {
        Self { size: ByteSize::mib(512), disk: None, redis: None }
    }
}

// === impl DiskConfig ===

impl DiskConfig {
    /// Configures the directory `path` with the default size.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), size: Self::default_size() }
    }

    /// Returns the default size, which is enough for about ten days of mainnet blocks with their receipts.
    fn default_size() -> ByteSize {
        ByteSize::gib(10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_configuration_needs_only_a_path() {
        let parse = |text| serde_json::from_str::<Config>(text).map(|config| config.disk);
        assert_eq!(parse("{}").unwrap(), None);
        let usual = DiskConfig { path: "there".into(), size: ByteSize::gib(10) };
        assert_eq!(parse(r#"{"disk": {"path": "there"}}"#).unwrap(), Some(usual.clone()));
        assert_eq!(DiskConfig::new("there"), usual);
        let sized = parse(r#"{"disk": {"path": "there", "size": "3 GiB"}}"#).unwrap().unwrap();
        assert_eq!(sized.size, ByteSize::gib(3));
        assert!(parse(r#"{"disk": {"size": "3 GiB"}}"#).unwrap_err().to_string().contains("path"));
        parse(r#"{"disk": {"path": "there", "limit": 3}}"#).unwrap_err();
    }
}
