//! Which chain an endpoint serves, and whether it still does.
//!
//! At first contact each endpoint reports its chain id and genesis hash. The first endpoint in priority order pins
//! them; all others must report the same. Later endpoints wait for earlier ones, but not for long: if one is down, the
//! next pins the chain and serves. If the first endpoint has pruned its genesis block, the next one that has it pins
//! the genesis. After a lost connection Holdfast checks the identity again before any other call: another node may
//! answer at that address now. Once the identity is confirmed, Holdfast checks it only when a call needs it.
//!
//! The chain stays pinned while the program runs, even if a reload removes its endpoint: the cache holds that
//! chain. Only on development chains, whose replacement empties the cache, may the endpoint that pinned the chain
//! start another one. If all endpoints that agreed with it are gone, their replacement may.

mod chain_identity;
mod genesis;
mod pinned_chain;
mod probe;

pub use self::{
    chain_identity::ChainIdentity,
    pinned_chain::is_development,
    probe::{IdentityError, IdentityState},
};
pub(super) use self::{pinned_chain::PinnedChain, probe::IdentityProbe};
