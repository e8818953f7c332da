//! One node among those that can be asked.

mod attempt;
mod health;
mod node;
mod score;

pub use self::node::{EndpointId, EndpointState, EndpointStatus};
pub(super) use self::{
    attempt::{Accepted, Attempted},
    node::Endpoint,
    score::{Cost, Eligible},
};
pub use crate::breaker::Health;
