//! Checks what a node said before it may be kept.
//!
//! [`Verified`] can only be made here, and only what is verified can be put into the cache. The
//! bytes are copied once on the way: a slice of a response would keep its whole buffer alive.

mod failure;
pub mod prove;
mod structural;
mod verified;

pub use self::{
    failure::{Failure, Part, Reason},
    structural::{
        AskedBlock, block, lone_receipt, lone_transaction, lone_transaction_at, receipts, receipts_block,
        receipts_number, thin_block,
    },
    verified::{Level, Verified},
};
