//! Limits of a listener.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Returns the most open files of a listener with this many connections: a half more for those that wait, and a quarter
/// for newcomers and for displaced connections that have not ended.
pub fn most_files(connections: u64) -> u64 {
    connections + connections / 4 * 3
}

/// Limits of one listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Maximum number of open connections that have sent a request. At the cap, a new connection displaces an open one:
    /// see `victim.rs`.
    pub max: usize,
    /// Maximum time from accepting a connection to its first byte. Even a client that connects in advance sends its
    /// first request sooner. Not configurable: only tests change it.
    #[serde(skip)]
    pub first_byte_timeout: Duration,
    /// Maximum time from the first byte of a request to the end of its head, which usually fits into one packet. Not
    /// configurable: only tests change it.
    #[serde(skip)]
    pub head_timeout: Duration,
    /// Maximum time between two requests on a connection.
    #[serde(with = "humantime_serde")]
    pub idle_timeout: Duration,
    /// Time within which a peer must read some of an answer that is ready. If a network has not recovered by then, it
    /// probably will not. Not configurable: only tests change it.
    #[serde(skip)]
    pub stall_timeout: Duration,
    /// Time that open requests have to finish when the listener closes.
    #[serde(with = "humantime_serde")]
    pub drain_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max: 1024,
            first_byte_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            stall_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(10),
        }
    }
}
