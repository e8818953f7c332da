//! Parses values of flags.

use crate::config::is_host_and_port;

/// Checks the address of an admin listener. Connecting to it resolves a host name.
pub(super) fn admin_address(text: &str) -> Result<String, String> {
    if is_host_and_port(text) {
        Ok(text.to_owned())
    } else {
        Err("expected an address and a port, such as 127.0.0.1:8556 or localhost:8556".to_owned())
    }
}
