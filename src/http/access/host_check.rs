//! Checks the host of requests to the admin listener.

use std::net::IpAddr;

use http::Request;

use super::rules::Access;
use crate::http::sender::host::{self, HostError};

/// Looks at the `host` of requests to one listener: `:authority` in HTTP/2.
#[derive(Clone, Debug)]
pub struct HostCheck {
    access: Access,
    is_loopback: bool,
}

// === impl HostCheck ===

impl HostCheck {
    /// For operators, at a listener on this address, with the names that `access` allows at the time; `*` is not
    /// one of them.
    pub fn new(access: Access, listener: IpAddr) -> Self {
        Self { access, is_loopback: listener.to_canonical().is_loopback() }
    }

    /// Is this request for us?
    ///
    /// # Errors
    /// If it is for a host that is not served here.
    pub fn check<B>(&self, request: &Request<B>) -> Result<(), HostError> {
        let rules = self.access.rules();
        // Whoever serves clients under any name has not said that any page may operate it.
        let named: Vec<_> = rules.hosts.iter().filter(|host| !host.is_any()).cloned().collect();
        host::check(request, &named, self.is_loopback)
    }
}
