//! Parses values of flags.

use std::net::SocketAddr;

use crate::config::AN_ADDRESS;

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("expected {AN_ADDRESS}"))
}
