//! One node among those that can be asked.

mod attempt;
mod breaker;
mod bucket;
mod condition;
mod cost;
mod node;

pub(super) use self::{
    attempt::{Accepted, Attempted},
    cost::{Cost, Eligible},
    node::Endpoint,
};
pub use self::{
    breaker::Health,
    node::{EndpointId, EndpointState, EndpointStatus},
};
