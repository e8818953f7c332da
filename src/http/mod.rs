//! The edge: HTTP in, JSON-RPC packets through, HTTP out.
//!
//! [`Access`] holds what can change while it serves: who may come in, and what they may do.
//! [`stack()`] composes it from layers around the packet reader. [`rescue`] is the one place where an
//! error or a panic becomes a status, a code and a message.

mod access;
mod address;
mod auth;
mod batch;
mod body;
mod cache_status;
mod config;
mod cors;
mod encoding;
mod error;
mod find;
mod gzip;
mod host;
mod in_flight;
mod key;
mod live;
mod metrics;
mod packet;
mod read;
mod refused;
pub mod rescue;
mod rpc;
mod stack;
mod trace;

use self::body::RpcBody;
pub use self::{
    access::Access,
    address::{Network, NetworkError},
    body::Portion,
    config::{Config, ConfigError},
    error::{HttpError, LeftOut},
    host::{HostCheck, HostError, HostName, HostNameError},
    key::{KeyConfig, KeyHash, KeyHashError, NewKey},
    live::Live,
    metrics::{Metrics, register_in_hand},
    stack::{AnswerBody, Edge, stack},
};

#[cfg(test)]
mod tests;
