//! Serves a chain: one request in, one response or fault out; over sockets too.

pub(in crate::devchain) mod feed;
pub(in crate::devchain) mod serve;
pub(in crate::devchain) mod socket;
