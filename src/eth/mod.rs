//! Ethereum's read operations: what their parameters mean, strictly.
//!
//! Domain values are types, and a call that asks for chain content is a [`Query`].
//! Knows nothing of upstreams, caches or HTTP.

mod block_id;
mod entity;
mod hash;
mod label;
mod params;
mod quantity;
mod query;
mod write;

pub use self::{
    block_id::Tag,
    entity::{
        Block, BlockWithHashes, Header, Home, Place, Receipts, ShapeError, SingleReceipt, SingleTransaction,
    },
    hash::{BlockHash, TxHash},
    label::MethodLabel,
    params::ParamError,
    quantity::{BlockNumber, TxPosition},
    query::{At, Part, Query},
    write::{is_reset, is_write},
};
