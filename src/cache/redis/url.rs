//! URL of a Redis server, safe to display.

use std::{fmt, str::FromStr};

use redis::{ConnectionInfo, IntoConnectionInfo};
use reqwest::Url;

/// URL of a Redis server.
///
/// `Display` and `Debug` show scheme, host, port and database only.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(Url);

/// Invalid URL of a Redis server. The error does not repeat the text, which may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedisUrlError {
    /// The text is not a URL.
    #[error("not a URL such as redis://127.0.0.1:6379")]
    Malformed,
    /// The scheme is neither redis nor rediss.
    #[error(
        "the scheme must be redis, or rediss for TLS, as in redis://127.0.0.1:6379 or rediss://:PASSWORD@redis.example:6379"
    )]
    Scheme,
    /// The host is absent or invalid.
    #[error("names no host, or an invalid one; expected a URL such as redis://127.0.0.1:6379")]
    Host,
    /// The URL has a user but no password.
    #[error(
        "holds a user but no password; if the user is meant as the password, write a colon before it, as in redis://:PASSWORD@127.0.0.1:6379"
    )]
    NoPassword,
    /// The decoded user or password is not UTF-8.
    #[error(
        "the user or the password is not UTF-8; percent-encode all but letters and digits, such as %40 for @"
    )]
    Credentials,
    /// The path is not a database number.
    #[error("the path after the host must be a database number, as in redis://127.0.0.1:6379/0")]
    Database,
    /// The URL has a query or a fragment.
    #[error(
        "has an unsupported query (?) or fragment (#); remove it, or write %3F or %23 if it belongs to the password"
    )]
    Extra,
}

// === impl RedisUrl ===

impl RedisUrl {
    /// Converts the URL for the Redis client.
    pub(super) fn connection(&self) -> Result<ConnectionInfo, RedisUrlError> {
        // `from_str` has checked the other parts, so the fault is in the credentials or in the host.
        self.0.clone().into_connection_info().map_err(|_| match self.without_credentials() {
            Some(Ok(_)) => RedisUrlError::Credentials,
            _ => RedisUrlError::Host,
        })
    }

    fn without_credentials(&self) -> Option<redis::RedisResult<ConnectionInfo>> {
        let mut url = self.0.clone();
        url.set_username("").and_then(|()| url.set_password(None)).ok()?;
        Some(url.into_connection_info())
    }

    pub(super) fn is_secure(&self) -> bool {
        self.0.scheme() == "rediss"
    }
}

impl FromStr for RedisUrl {
    type Err = RedisUrlError;

    fn from_str(text: &str) -> Result<Self, RedisUrlError> {
        let url = Url::parse(text.trim()).map_err(|_| RedisUrlError::Malformed)?;
        let database = url.path().strip_prefix('/').unwrap_or(url.path());
        let is_number = |text: &str| text.parse::<u32>().is_ok();
        match url.scheme() {
            "redis" | "rediss" => {}
            _ => return Err(RedisUrlError::Scheme),
        }
        if !url.has_host() || url.host_str() == Some("") {
            return Err(RedisUrlError::Host);
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(RedisUrlError::Extra);
        }
        if !database.is_empty() && !is_number(database) {
            return Err(RedisUrlError::Database);
        }
        if !url.username().is_empty() && url.password().is_none() {
            return Err(RedisUrlError::NoPassword);
        }
        let url = Self(url);
        url.connection().map(|_| url)
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.0.scheme(), self.0.host_str().unwrap_or_default())?;
        if let Some(port) = self.0.port() {
            write!(f, ":{port}")?;
        }
        f.write_str(self.0.path().trim_end_matches('/'))
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let shown = |url: &str| url.parse::<RedisUrl>().map(|url| format!("{url} {url:?}"));
        for (url, seen) in [
            ("redis://127.0.0.1", "redis://127.0.0.1"),
            ("rediss://user:SECRET@redis.test:6380/2", "rediss://redis.test:6380/2"),
            ("redis://:SEC%40RET@[::1]:6379/", "redis://[::1]:6379"),
        ] {
            assert_eq!(shown(url), Ok(format!("{seen} {seen}")));
        }
    }

    #[test]
    fn redis_url_errors_are_specific() {
        for (url, error) in [
            ("", RedisUrlError::Malformed),
            ("127.0.0.1:6379", RedisUrlError::Malformed),
            ("localhost:6379", RedisUrlError::Scheme),
            ("http://127.0.0.1:6379", RedisUrlError::Scheme),
            ("redis:///0", RedisUrlError::Host),
            ("redis://0.0.0.0:6379", RedisUrlError::Host),
            ("redis://SECRET@127.0.0.1", RedisUrlError::NoPassword),
            ("redis://:SEC%FFRET@127.0.0.1", RedisUrlError::Credentials),
            ("redis://127.0.0.1/blocks", RedisUrlError::Database),
            ("redis://127.0.0.1/-1", RedisUrlError::Database),
            ("redis://127.0.0.1/0?db=1", RedisUrlError::Extra),
            ("rediss://127.0.0.1/0#insecure", RedisUrlError::Extra),
        ] {
            assert_eq!(url.parse::<RedisUrl>(), Err(error), "{url}");
        }
    }
}
