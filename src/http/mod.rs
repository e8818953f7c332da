//! The edge: HTTP in, JSON-RPC packets through, HTTP out.
//!
//! [`Access`] holds what can change while it serves: who may come in, and what they may do.
//! [`stack()`] composes it from layers around the packet reader. [`rescue`] is the one place where an
//! error or a panic becomes a status, a code and a message.

mod access;
mod config;
mod error;
mod metrics;
mod reloadable;
mod request;
mod response;
mod sender;
mod stack;
mod trace;

pub use self::{
    access::rules::Access,
    config::{Config, ConfigError},
    error::{HttpError, LeftOut},
    metrics::{Metrics, register_in_hand},
    reloadable::Live,
    response::{body::Portion, rescue},
    sender::{
        address::{Network, NetworkError},
        host::{HostCheck, HostError, HostName, HostNameError},
        key::{KeyConfig, KeyHash, KeyHashError, NewKey},
    },
    stack::{AnswerBody, Edge, stack},
};

#[cfg(test)]
mod tests;
