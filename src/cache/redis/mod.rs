//! A Redis, or Valkey, that a fleet shares: what one has fetched, all others find.
//!
//! # What is kept, and under which keys
//! Every key is the prefix, the [chain](super::tier::ChainKey), one byte for what it is, and by what it is looked for:
//!
//! ```text
//! b r   hash         the block, its receipts                 as sealed
//! n     number       the hash that stands there for good     an entry
//! t     hash         where a transaction is                  an entry
//! f                  the highest final block                 an entry
//! e                  the epoch                               8 bytes, at random
//! ```
//!
//! No command names two keys, so a cluster may spread them over its nodes. Whatever belongs together is sent together:
//! one round trip for a look into the index, one for a block with its number and all its transactions.
//!
//! # Forgetting without a list of what is to be forgotten
//! An entry carries the epoch in which it was written, and counts only in that one. The epoch is read in the same trip as
//! the entry. [Forgetting](super::tier::Tier::forget_canonicity) sets another one; what was written before is overwritten in time, or
//! evicted. Epochs are not counted but drawn at random: a count that is evicted would begin again, and what was forgotten
//! would be back. Without an epoch no entry counts; whoever writes next draws one.
//!
//! This holds as long as Redis keeps its word. Where a replica takes over that has not yet heard of the last epoch, the
//! one before is back, and what counted in it.
//!
//! An entry has a sum over itself and its key: the hash at a number is believed on its word alone.
//!
//! # What it asks of Redis
//! Version 6 or later; `maxmemory` with the policy `allkeys-lru`, so that there is always room: the epoch is read all the
//! time and stays. The commands `GET`, `GETRANGE`, `SET`, `DEL` and `EVAL`, and `INFO` if it is to tell how full it is. One address: in front of a cluster, a proxy that
//! knows its nodes.

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
