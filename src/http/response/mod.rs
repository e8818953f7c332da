//! Turns replies and errors into the bytes of a response.

pub(in crate::http) mod body;
pub(in crate::http) mod cache_status;
pub(in crate::http) mod encoding;
pub(in crate::http) mod gzip;
pub(in crate::http) mod refused;
pub mod rescue;
