//! Addresses of listeners: an IP address or a host name, and a port.

use std::{
    fmt,
    net::{SocketAddr, ToSocketAddrs as _},
};

use serde::{
    Deserializer,
    de::{self, Visitor},
};

/// Expected form of a listener's address.
const AN_ADDRESS: &str = "an address and a port, such as 127.0.0.1:8555, [::1]:8555 or localhost:8555";

/// Returns whether `text` is an IP address or a host name, and a port. Does not resolve the name.
pub(crate) fn is_host_and_port(text: &str) -> bool {
    let is_name = |host: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        !host.is_empty() && host.bytes().all(fits)
    };
    let parts = text.rsplit_once(':');
    text.parse::<SocketAddr>().is_ok()
        || parts.is_some_and(|(host, port)| is_name(host) && port.parse::<u16>().is_ok())
}

/// Reads an address, and resolves a host name: to its IPv4 address, if it has one.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    deserializer.deserialize_str(AddressVisitor)
}

struct AddressVisitor;

impl Visitor<'_> for AddressVisitor {
    type Value = SocketAddr;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(AN_ADDRESS)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<SocketAddr, E> {
        if !is_host_and_port(text) {
            return Err(E::custom(format_args!("expected {AN_ADDRESS}")));
        }
        let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
        let unresolved = |error: &dyn fmt::Display| {
            E::custom(format_args!("cannot resolve the host name {host}: {error}"))
        };
        let mut found: Vec<_> = text.to_socket_addrs().map_err(|error| unresolved(&error))?.collect();
        // Stable, so that the resolver's order stays otherwise.
        found.sort_by_key(SocketAddr::is_ipv6);
        found.first().copied().ok_or_else(|| unresolved(&"it has no address"))
    }
}
