//! Determines which chain an endpoint serves, and checks it again when necessary.
//!
//! At first contact, each endpoint reports its chain id and genesis hash. The first endpoint in priority order pins
//! them; all others must report the same. Later endpoints wait for earlier ones, but not for long: if an earlier
//! endpoint is down, the next one pins the chain and serves. If the first endpoint has pruned its genesis block, the
//! next endpoint that has this block pins the genesis. After a lost connection, Holdfast checks the identity again
//! before any other call, because another node may answer at that address now. It also checks again if an answer
//! suggests that the chain has changed, and to probe whether an endpoint has recovered. Otherwise a confirmed identity
//! stays confirmed.
//!
//! The chain stays pinned while the program runs, even if a reload removes the endpoint that pinned it, because the
//! cache holds data of that chain. Development chains are an exception: the endpoint that pinned the chain may start
//! another one, and Holdfast then empties the cache. If a reload has removed this endpoint and all that agreed with
//! it, any new endpoint may do so.

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
