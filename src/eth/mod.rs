//! Ethereum's read methods, their parameters and the JSON that nodes return for them.
//!
//! Domain values are types, and a call for chain content is a [`Query`]. This module does not depend on upstreams,
//! caches or HTTP.

mod block_id;
mod chain_name;
mod entity;
mod hash;
mod label;
mod logs;
mod params;
mod quantity;
mod query;
mod raw;
mod write;

use self::entity::MAX_TOPICS;
pub use self::{
    block_id::Tag,
    chain_name::chain_name,
    entity::{
        Block, BlockWithHashes, Disputed, Disputes, Header, Home, IndexedFilter, Log, LogIndex, Place,
        Receipts, ShapeError, SingleReceipt, SingleTransaction,
    },
    hash::{BlockHash, TxHash},
    label::MethodLabel,
    logs::{FilterBlooms, LogBlocks, LogFilter, LogMatch, LogsCall},
    params::ParamError,
    quantity::{BlockNumber, TxPosition},
    query::{At, Part, Query},
    raw::{RawCall, RawForm, header_of_block},
    write::{is_development_method, is_reset, is_write},
};
