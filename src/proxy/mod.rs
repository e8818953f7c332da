//! What happens to one call: allowed or not, answered here or by the upstream.
//!
//! [`proxy`] makes a `tower::Service` from a call to its answer, composed in `stack.rs`. It knows
//! nothing of HTTP, nor that batches exist.

mod config;
mod deadline;
mod error;
mod identity;
mod measure;
mod method;
mod policy;
mod request;
mod respond;
mod stack;

pub use self::{
    config::{Config, MethodsConfig},
    error::CallError,
    identity::{Identity, IdentityState, Stranger, WhoIs},
    measure::Metrics,
    policy::GlobError,
    request::{Answered, Caller, Outcome, Request},
    stack::{ProxyParts, proxy},
};
