//! Upstream endpoints: failover, primary, identity, rates, filters, timeouts, the wire.

mod astray;
mod error_answers;
mod faults;
mod filters;
mod forwarded;
mod hedge;
mod identity;
mod limits;
mod matrix;
mod pool;
mod primary;
mod probes;
mod refusals;
mod reload;
mod six_methods;
mod startup;
mod timeouts;
mod wire;
