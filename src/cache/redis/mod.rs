//! The tier in Redis or Valkey. Several instances (a fleet) can share it, so that an entry that one instance fetched
//! serves all others.
//!
//! # Keys and values
//! A key consists of the prefix, the [chain](super::tier::ChainKey), one byte for the kind of value, and the lookup
//! key:
//!
//! ```text
//! b r   hash         the block, its receipts                 a sealed value
//! n     number       hash of the finalized block             an index entry
//! t     hash         block and position of a transaction     an index entry
//! f                  the highest finalized block             an index entry
//! e                  the epoch                               8 random bytes
//! ```
//!
//! Each command names one key, so a cluster may spread the keys over its nodes. Related commands share a round trip: an
//! index lookup takes one round trip, and so does a write of a block with its number and all its transactions.
//!
//! # Forgetting the index
//! An index entry carries the epoch in which it was written and is valid only in that epoch. A lookup reads the current
//! epoch and the entry in one round trip. [Forgetting the index](super::tier::Tier::forget_canonicity) sets a new
//! epoch. Entries of older epochs stay until new entries replace them or Redis evicts them. Epochs are random numbers.
//! A counter would start again after Redis evicted it, and make forgotten entries valid. If Redis has no epoch, no
//! entry is valid, and the next writer sets an epoch.
//!
//! Forgetting is reliable only if Redis loses no write. If Redis fails over to a replica that lacks the last epoch, the
//! previous epoch and its entries become valid again.
//!
//! Each index entry has a checksum over its key and content, because nothing else can detect damage to the hash that
//! the index stores for a block number.
//!
//! # Requirements
//! - Redis version 6 or later.
//! - `maxmemory` with the policy `allkeys-lru`, so that Redis always makes room for new entries. Holdfast reads the
//!   epoch constantly, so Redis does not evict it.
//! - The commands `GETRANGE`, `SET`, `DEL` and `EVAL`, and `INFO` to report usage.
//! - One address. A cluster needs a proxy in front of it that forwards each command to the right node.

mod config;
mod entry;
mod key;
mod link;
mod tier;
mod url;
mod usage;

pub use self::{
    config::{ConfigError, RedisConfig},
    tier::Redis,
    url::{RedisUrl, RedisUrlError},
};
