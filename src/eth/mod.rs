//! Ethereum's read operations: what their parameters mean, strictly.
//!
//! Domain values are types, an operation is a file in [`ops`], and [`Operation`] gathers them.
//! Knows nothing of upstreams, caches or HTTP.

mod block_id;
mod entity;
mod extra;
mod hash;
mod label;
mod operation;
pub mod ops;
mod params;
mod quantity;
mod write;

pub use self::{
    block_id::{NumberOrTag, Tag},
    entity::{Block, Header, LoneReceipt, LoneTransaction, Place, Receipts, ShapeError, ThinBlock},
    extra::{BlockRef, Extra},
    hash::{BlockHash, TxHash},
    label::MethodLabel,
    operation::Operation,
    params::ParamError,
    quantity::{BlockNumber, TxPosition},
    write::{is_reset, is_write},
};
