//! The tier in Redis or Valkey. A fleet can share it: an entry that one instance fetched serves all others.
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
//! No command names two keys, so a cluster may spread them over its nodes. Related commands share a round trip: one for
//! an index lookup, one for a block with its number and all its transactions.
//!
//! # Forgetting the index
//! An index entry carries the epoch in which it was written and is valid only in that epoch. A lookup reads the epoch
//! and the entry in one round trip. [Forgetting](super::tier::Tier::forget_canonicity) sets a new epoch; new entries
//! replace the old ones in time, or Redis evicts those. Epochs are random, not counted: after an eviction, a counter
//! would start again and make forgotten entries valid. Without an epoch, no entry is valid; the next writer sets one.
//!
//! This holds as long as Redis loses no write. After a failover to a replica that lacks the last epoch, the previous
//! epoch and its entries are valid again.
//!
//! Each index entry has a checksum over its key and content, because nothing else can detect a damaged hash at a
//! number.
//!
//! # Requirements
//! - Redis version 6 or later.
//! - `maxmemory` with the policy `allkeys-lru`, so that there is always room. The epoch is read constantly, so it stays.
//! - The commands `GETRANGE`, `SET`, `DEL` and `EVAL`, and `INFO` to report usage.
//! - One address. In front of a cluster, a proxy that knows its nodes.

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
