//! Headers that identify a request's sender and target: host, keys, and the client's address.

pub(in crate::http) mod address;
pub(in crate::http) mod header;
pub(in crate::http) mod host;
pub(in crate::http) mod key;
