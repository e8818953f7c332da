//! The edge: receives HTTP requests, runs the calls of their JSON-RPC packets, and sends HTTP responses.
//!
//! [`stack()`] composes the edge from layers around the packet reader. [`Access`] and [`Reloadable`] contain the
//! settings that a reload changes. [`rescue`] is the only module that turns an error or a panic into a status,
//! a code and a message.
//!
//! # Floors
//! Each line imports only from the lines below it.
//!
//! ```text
//! stack       the layers, in the order a request meets them
//! reloadable  limits and CORS rules that a reload changes
//! request     limit on requests in flight → body → packet → calls → batch
//! access      CORS, authentication and the rules of access; checks of a request's head
//! response    body, gzip, cache-status; errors and panics become responses
//! trace       request ids, trace context, spans
//! permit      requests in flight: the count, the limits, a permit for each
//! metrics     refused requests, calls left out, gzip responses, panics
//! config      the keys of [http]
//! error       reasons to refuse a request, or to leave a call of a batch out
//! sender      headers that identify a request's sender and target: host, key, address
//! ```

mod access;
mod config;
mod error;
mod metrics;
mod permit;
mod reloadable;
mod request;
mod response;
mod sender;
mod stack;
mod trace;

pub use self::{
    access::{host_check::HostCheck, rules::Access},
    config::{Config, ConfigError},
    error::{HttpError, LeftOut},
    metrics::Metrics,
    reloadable::Reloadable,
    response::{body::Portion, rescue},
    sender::{
        address::{Network, NetworkError},
        host::{HostError, HostName, HostNameError},
        key::{KeyConfig, KeyHash, KeyHashError, NewKey},
    },
    stack::{AnswerBody, Edge, stack},
};

#[cfg(test)]
mod tests;
