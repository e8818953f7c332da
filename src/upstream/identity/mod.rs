//! Which chain an endpoint serves, and whether it still does.
//!
//! Chain id and genesis are read at first contact and pinned, by the first in order that says them; every
//! other endpoint must say the same. Those that come later in order wait for the ones before, but not for long: one
//! that is down does not keep the others from serving, and what they say is pinned then. A genesis that the first
//! does not say, since it has pruned it, is that of the next that does. Whenever contact was lost they are read again
//! before anything else is asked: what comes back after a restart may be another node. Once known, nothing is asked
//! until a call needs it.
//!
//! What is pinned stays pinned while the program runs, whoever is taken away: what is in memory is of that chain. Only
//! on development chains, where all that is in memory is forgotten with the chain, may the one that pinned it start
//! another; if all that agreed with it are gone, whoever comes in their place may.

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
