//! Limits of a listener.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits of one listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Most open connections. At the cap, each newcomer displaces a connection of the address that holds the most: idle ones
    /// first, then unfinished request heads, then busy ones.
    pub max: usize,
    /// Time from accepting a connection to its first byte: even a client that connects early soon sends its first request.
    /// Not configurable: only tests change it.
    #[serde(skip)]
    pub first_byte_timeout: Duration,
    /// Time from the first byte of a request to the end of its head, which is one packet. Not configurable: only tests
    /// change it.
    #[serde(skip)]
    pub head_timeout: Duration,
    /// Time between two requests on a connection.
    #[serde(with = "humantime_serde")]
    pub idle_timeout: Duration,
    /// Time in which a peer must read some of an answer that is ready: networks recover within this, or not at all. Not
    /// configurable: only tests change it.
    #[serde(skip)]
    pub stall_timeout: Duration,
    /// Time for open requests to finish when the listener closes.
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
