//! All endpoints of one chain: the choice of an endpoint for a call, the primary, retries and hedging.

mod dispatch;
mod gauges;
mod hedge;
mod identity;
mod p2c;
mod primary;
pub(super) mod retry;

pub(super) use self::dispatch::Pool;
pub use self::{dispatch::Need, hedge::Percentile, identity::Identity};
