//! Serves a chain on sockets, over HTTP and over WebSockets with subscriptions.

pub(in crate::devchain) mod feed;
pub(in crate::devchain) mod socket;
