//! Serves a chain: one request in, one response or fault out; in process and on sockets.

pub(in crate::devchain) mod feed;
pub(in crate::devchain) mod serve;
pub(in crate::devchain) mod socket;
