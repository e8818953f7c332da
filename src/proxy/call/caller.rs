//! The client of a call, and its rights.

use std::{sync::Arc, time::Duration};

use http::HeaderValue;

use super::{policy::Policy, rate::Bucket};
use crate::client::Client;

/// What is known of a client, and what it may do.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The `origin` header: a web page makes this call from a person's browser.
    pub origin: Option<HeaderValue>,
    /// Which methods it may call.
    pub policy: Arc<Policy>,
    /// How often; as often as it likes, if `None`.
    pub bucket: Option<Bucket>,
    /// Who it is; nobody in particular, if `None`.
    pub client: Option<Client>,
    /// Would it rather have answers as gzip?
    pub gzip: bool,
}

// === impl Caller ===

impl Caller {
    /// Takes a call out of what it may still do.
    ///
    /// # Errors
    /// If there is none left: how long until there is.
    pub fn charge(&self) -> Result<(), Duration> {
        self.bucket.as_ref().map_or(Ok(()), Bucket::take)
    }
}
