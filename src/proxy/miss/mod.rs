//! From the plan for a miss to its answer.

pub(super) mod client_limit;
pub(super) mod fetcher;
pub(super) mod load;
pub(super) mod prove;
pub(super) mod respond;
pub(super) mod single_flight;
pub(super) mod store;
