//! Which Redis, and for how long.

use std::{fs, io, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::url::{RedisUrl, RedisUrlError};
use crate::secret::{Secret, SecretError};

/// A Redis that a fleet shares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisConfig {
    /// Where it is; with a password, so the whole URL counts as a secret.
    pub url: Secret,
    /// What all keys begin with.
    #[serde(default = "prefix")]
    pub prefix: String,
    /// How long something is kept; `None` until Redis needs its room.
    #[serde(default, with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Duration>,
    /// For one answer: past it, the node answers sooner. What is written has ten times as long, and not more than ten seconds.
    /// Not a key: only tests use another.
    #[serde(skip, default = "timeout")]
    pub timeout: Duration,
    /// Certificates to go by in place of the system's, for `rediss`: a file of PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

/// A Redis that cannot be used as it is configured.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not where the configuration says.
    #[error("url: {0}")]
    UrlSecret(#[source] SecretError),
    /// Not a URL.
    #[error("url: {0}")]
    Url(#[source] RedisUrlError),
    /// Nothing would be kept.
    #[error("ttl: must be at least 1ms; leave it out to keep everything until Redis needs its room")]
    Ttl,
    /// Not there, or not readable.
    #[error("ca: cannot read {path}: {source}")]
    Ca {
        /// The file's path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Trusted by nobody, because nothing would ask for it.
    #[error("ca: is for rediss, and the url is not of that scheme")]
    CaUnused,
    /// Not certificates.
    #[error("ca: {path} holds no certificates in PEM")]
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
    /// A Redis at this URL, and nothing else said of it.
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

    /// The certificates to go by, and where they came from.
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
    fn a_url_is_enough() {
        assert_eq!(read("size = \"1GiB\""), None);
        let given = read("[redis]\nurl = \"redis://:SECRET@127.0.0.1\"").unwrap();
        assert_eq!(given, RedisConfig::at("redis://:SECRET@127.0.0.1"));
        assert_eq!((given.prefix.as_str(), given.timeout), ("holdfast:", Duration::from_millis(100)));
        assert!(!format!("{given:?}").contains("SECRET"));
    }

    #[test]
    fn all_of_it_can_be_said() {
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
