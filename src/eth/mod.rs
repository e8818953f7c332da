//! Ethereum's read methods, their parameters and the JSON that nodes return for them.
//!
//! Domain values are types, and a call for chain content is a [`Query`]. This module does not depend on upstreams,
//! caches or HTTP.

mod block_id;
mod chain_name;
mod entity;
mod hash;
mod label;
mod params;
mod quantity;
mod query;
mod raw;
mod write;

pub use self::{
    block_id::Tag,
    chain_name::chain_name,
    entity::{
        Block, BlockWithHashes, Header, Home, Place, Receipts, ShapeError, SingleReceipt, SingleTransaction,
    },
    hash::{BlockHash, TxHash},
    label::MethodLabel,
    params::ParamError,
    quantity::{BlockNumber, TxPosition},
    query::{At, Part, Query},
    raw::{RawCall, RawForm, header_of_block},
    write::{is_development_method, is_reset, is_write},
};
