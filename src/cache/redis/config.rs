//! Configuration of the tier in Redis.

use std::{fs, io, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::url::{RedisUrl, RedisUrlError};
use crate::secret::{Secret, SecretError};

/// Configuration of the tier in Redis, which several instances can share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisConfig {
    /// URL of the server. It is a secret, since it may contain a password.
    pub url: Secret,
    /// Prefix of all keys.
    #[serde(default = "prefix")]
    pub prefix: String,
    /// Time to live of entries; `None` to keep them until Redis evicts them.
    #[serde(default, with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Duration>,
    /// Timeout of a read. Asking the upstream is usually faster than waiting longer. A write may take ten times as
    /// long, but at most ten seconds. This field is not a configuration key; only tests change it.
    #[serde(skip, default = "timeout")]
    pub timeout: Duration,
    /// PEM file of CA certificates that `rediss` connections trust instead of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

/// An invalid configuration of Redis.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The secret with the URL cannot be read.
    #[error("url: {0}")]
    UrlSecret(#[source] SecretError),
    /// The URL is invalid.
    #[error("url: {0}")]
    Url(#[source] RedisUrlError),
    /// The time to live is too short.
    #[error("ttl: must be at least 1ms; leave it out to keep entries until Redis evicts them")]
    Ttl,
    /// The file `ca` is missing or unreadable.
    #[error("ca: cannot read {path}: {source}")]
    Ca {
        /// The file's path.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// `ca` is set, but the URL does not use TLS.
    #[error("ca: is for rediss:// URLs only; use that scheme in url, or remove ca")]
    CaUnused,
    /// The file `ca` has no certificates.
    #[error("ca: {path} holds no certificates in PEM format")]
    CaContent {
        /// The file's path.
        path: PathBuf,
    },
}

fn prefix() -> String {
    "holdfast:".to_owned()
}

fn timeout() -> Duration {
    Duration::from_millis(100)
}

// === impl RedisConfig ===

impl RedisConfig {
    /// Configures the server at `url`, with defaults for all else.
    pub fn at(url: impl Into<String>) -> Self {
        Self { url: Secret::Plain(url.into()), prefix: prefix(), ttl: None, timeout: timeout(), ca: None }
    }

    pub(super) fn resolve(&self) -> Result<RedisUrl, ConfigError> {
        if self.ttl.is_some_and(|ttl| ttl < Duration::from_millis(1)) {
            return Err(ConfigError::Ttl);
        }
        let url: RedisUrl =
            self.url.resolve().map_err(ConfigError::UrlSecret)?.parse().map_err(ConfigError::Url)?;
        if self.ca.is_some() && !url.is_secure() {
            return Err(ConfigError::CaUnused);
        }
        Ok(url)
    }

    /// Reads the CA certificates, and returns them with their path.
    pub(super) fn authority(&self) -> Result<Option<(PathBuf, Vec<u8>)>, ConfigError> {
        let read = |path: &PathBuf| match fs::read(path) {
            Ok(pem) => Ok((path.clone(), pem)),
            Err(source) => Err(ConfigError::Ca { path: path.clone(), source }),
        };
        self.ca.as_ref().map(read).transpose()
    }
}

#[cfg(test)]
mod tests {
    use figment::{
        Figment,
        providers::{Format, Toml},
    };

    use super::*;
    use crate::cache;

    fn read(text: &str) -> Option<RedisConfig> {
        Figment::from(Toml::string(text)).extract::<cache::Config>().unwrap().redis
    }

    #[test]
    fn redis_configuration_needs_only_a_url() {
        assert_eq!(read("size = \"1GiB\""), None);
        let given = read("[redis]\nurl = \"redis://:SECRET@127.0.0.1\"").unwrap();
        assert_eq!(given, RedisConfig::at("redis://:SECRET@127.0.0.1"));
        assert_eq!((given.prefix.as_str(), given.timeout), ("holdfast:", Duration::from_millis(100)));
        assert!(!format!("{given:?}").contains("SECRET"));
    }

    #[test]
    fn all_redis_settings_are_read() {
        let text =
            "[redis]\nurl = { env = \"REDIS_URL\" }\nprefix = \"x:\"\nttl = \"7days\"\nca = \"ca.pem\"";
        let expected = RedisConfig {
            url: Secret::Env("REDIS_URL".into()),
            prefix: "x:".into(),
            ttl: Some(Duration::from_secs(7 * 86_400)),
            timeout: timeout(),
            ca: Some("ca.pem".into()),
        };
        assert_eq!(read(text), Some(expected));
    }
}
