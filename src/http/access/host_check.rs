//! Checks the host of requests to the admin listener.

use std::net::IpAddr;

use http::Request;

use super::rules::Access;
use crate::http::sender::host::{self, HostError};

/// Checks the `host` header of requests to one listener or, in HTTP/2, their `:authority`.
#[derive(Clone, Debug)]
pub struct HostCheck {
    access: Access,
    is_loopback: bool,
}

// === impl HostCheck ===

impl HostCheck {
    /// Creates a check for an admin listener on this address. It uses the allowed hosts of `access` that are in force
    /// when a request arrives, but ignores `*`.
    pub fn new(access: Access, listener: IpAddr) -> Self {
        Self { access, is_loopback: listener.to_canonical().is_loopback() }
    }

    /// Checks the host of a request.
    ///
    /// # Errors
    /// If the listener does not serve that host.
    pub fn check<B>(&self, request: &Request<B>) -> Result<(), HostError> {
        let rules = self.access.rules();
        // `*` lets RPC clients use any host name, but must not let every web page reach the admin listener.
        let named: Vec<_> = rules.hosts.iter().filter(|host| !host.is_any()).cloned().collect();
        host::check(request, &named, self.is_loopback)
    }
}
