//! One node among those that can be asked.

mod attempt;
mod failure;
mod health;
mod node;
mod score;
mod status;

pub use self::status::{EndpointState, EndpointStatus};
pub(super) use self::{
    attempt::{Accepted, Attempted, ask_who, attempt},
    failure::{is_about_size, is_fault},
    node::Endpoint,
    score::{Cost, Eligible},
};
pub use crate::breaker::Health;
