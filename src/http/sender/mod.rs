//! What a request says about its sender: the host it is for, keys, and the client's address.

pub(in crate::http) mod address;
pub(in crate::http) mod header;
pub(in crate::http) mod host;
pub(in crate::http) mod key;
