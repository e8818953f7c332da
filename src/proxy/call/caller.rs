//! The client of a call, and its permissions.

use std::{sync::Arc, time::Duration};

use http::HeaderValue;

use super::{policy::Policy, rate::Bucket};
use crate::client::Client;

/// A client and its permissions.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The `origin` header, which a browser sends for calls of a web page.
    pub origin: Option<HeaderValue>,
    /// Methods that the client may call.
    pub policy: Arc<Policy>,
    /// Rate limit; `None` for no limit.
    pub bucket: Option<Bucket>,
    /// Identity of the client for per-client limits; `None` exempts the client from these limits.
    pub client: Option<Client>,
    /// Whether the client accepts gzip.
    pub gzip: bool,
    /// Whether the client is on another machine, so that compressing an answer saves time.
    pub is_remote: bool,
}

// === impl Caller ===

impl Caller {
    /// Returns whether compressing an answer for this client alone is worth the time.
    pub(crate) fn accepts_deflated(&self) -> bool {
        self.gzip && self.is_remote
    }

    /// Charges this number of calls to the rate limit, all or none.
    ///
    /// # Errors
    /// Returns the time until these calls are allowed.
    pub fn charge(&self, calls: u32) -> Result<(), Duration> {
        self.bucket.as_ref().map_or(Ok(()), |bucket| bucket.take(calls))
    }
}
