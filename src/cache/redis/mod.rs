//! The tier in Redis or Valkey. Several instances (a fleet) can share it, so that an entry that one instance fetched
//! serves all others.
//!
//! # Keys and values
//! A key consists of the prefix, the [chain](super::tier::ChainKey), one byte for the kind of value, and the lookup
//! key:
//!
//! ```text
//! h b r   hash         the header, the block, its receipts    a sealed value
//! n       number       the hash of the block                  32 bytes
//! t       hash         the block of a transaction             number and hash
//! ```
//!
//! Each command names one key, so a cluster may spread the keys over its nodes. Related commands share a round trip. The
//! keys `n` and `t` are hints: whatever they say, Holdfast serves a block at a number only if parent hashes or the node
//! lead to it.
//!
//! # Requirements
//! - Redis version 6 or later.
//! - `maxmemory` with the policy `allkeys-lru`, so that Redis always makes room for new entries.
//! - The commands `GETRANGE`, `SET` and `DEL`, and `INFO` to report usage.
//! - One address. A cluster needs a proxy in front of it that forwards each command to the right node.

mod config;
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
