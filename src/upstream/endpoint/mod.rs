//! One endpoint: its transport, health, availability and attempts.

mod attempt;
mod failure;
mod health;
mod node;
mod score;
mod status;

pub use self::status::{EndpointState, EndpointStatus};
pub(super) use self::{
    attempt::{Slot, ask_identity, attempt},
    failure::{counts_against_endpoint, is_about_request_size},
    node::Endpoint,
    score::{Availability, Score},
};
pub use crate::breaker::Health;
