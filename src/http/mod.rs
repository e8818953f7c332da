//! The edge: HTTP in, JSON-RPC packets through, HTTP out.
//!
//! [`stack()`] composes it from layers around the packet reader. [`rescue`] is the one place where an
//! error or a panic becomes a status, a code and a message.

mod body;
mod cache_status;
mod config;
mod error;
mod in_flight;
mod live;
mod packet;
mod read;
pub mod rescue;
mod rpc;
mod stack;

use self::body::RpcBody;
pub use self::{
    config::Config,
    error::HttpError,
    live::Live,
    stack::{AnswerBody, Edge, stack},
};

#[cfg(test)]
mod tests;
