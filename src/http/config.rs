//! What the edge takes from its clients.

use std::time::Duration;

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

/// Limits of a request, and who may send one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The largest request body.
    pub max_body: ByteSize,
    /// For a whole body to arrive.
    #[serde(with = "humantime_serde")]
    pub body_timeout: Duration,
    /// The most calls in one batch.
    pub max_batch: usize,
    /// Calls of one batch that run at a time.
    pub batch_concurrency: usize,
    /// The largest sum of a batch's answers.
    pub max_batch_answer: ByteSize,
    /// Requests at a time; more are shed.
    pub max_in_flight: usize,
    /// Web pages that may read answers: `*`, or a list of origins.
    pub allowed_origins: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_body: ByteSize::mib(5),
            body_timeout: Duration::from_secs(10),
            max_batch: 1000,
            batch_concurrency: 32,
            max_batch_answer: ByteSize::mib(64),
            max_in_flight: 1024,
            allowed_origins: vec!["*".to_owned()],
        }
    }
}
