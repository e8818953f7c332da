//! Admits clients, and limits which of their calls are served.

pub(in crate::http) mod auth;
pub(in crate::http) mod cors;
pub(in crate::http) mod head;
pub(in crate::http) mod host_check;
pub(in crate::http) mod rules;
