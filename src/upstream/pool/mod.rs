//! All endpoints of one chain: the choice of an endpoint for a call, the primary, retries and hedging.

mod assemble;
mod dispatch;
mod endpoint_set;
mod gauges;
mod hedge;
mod identity;
mod p2c;
mod primary;
mod retry;

pub use self::{assemble::EndpointParts, identity::Identity};
pub(super) use self::{
    assemble::assemble, dispatch::Pool, endpoint_set::EndpointSet, gauges::EndpointGauges,
};
