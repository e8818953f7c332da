//! One node among those that can be asked.

mod attempt;
mod condition;
mod cost;
mod node;

pub use self::node::{EndpointId, EndpointState, EndpointStatus};
pub(super) use self::{
    attempt::{Accepted, Attempted},
    cost::{Cost, Eligible},
    node::Endpoint,
};
pub use crate::breaker::Health;
