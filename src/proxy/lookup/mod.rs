//! Cache lookups: without waiting, they answer a hit or plan a miss.
//!
//! # Floors
//! ```text
//! cache_lookup    the entry point
//! by_block        queries that name their block
//! by_transaction  queries that name a transaction
//! entries         turns cached entries into answers
//! tags            resolves tags to blocks
//! plan            a hit, or the plan for a miss
//! compress        compressed answers
//! state           the stores that lookups read and misses write
//! absence         receipts that do not exist yet
//! uncacheable     fetches whose answers cannot be cached
//! derive          parts that may be sliced out of larger ones
//! node_support    methods that the node lacks
//! ```

pub(super) mod absence;
mod by_block;
mod by_transaction;
mod cache_lookup;
mod compress;
pub(super) mod derive;
mod entries;
mod node_support;
mod plan;
mod state;
mod tags;
mod uncacheable;

pub(super) use self::{
    cache_lookup::CacheLookup,
    plan::{CachedAnswer, LookupPlan, WORTHWHILE},
    state::CacheState,
    tags::TagMeaning,
};
