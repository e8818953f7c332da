//! Checks what a node said before it may be kept.
//!
//! [`Verified`] can only be made here, and only what is verified can be put into the cache. The
//! bytes are copied once on the way: a slice of a response would keep its whole buffer alive.

mod asked;
mod check;
mod config;
mod failure;
mod metrics;
mod provability;
pub mod prove;
mod structural;
mod verified;
mod verifier;

pub use self::{
    asked::{Asked, AskedBlock, Checked, Known, Verdict},
    check::Check,
    config::{Config, Demand, OnMismatch, Share},
    failure::{Failure, Part, Reason},
    metrics::Metrics,
    structural::{block, lone_receipt, lone_transaction, lone_transaction_at, receipts, thin_block},
    verified::{Level, Verified},
    verifier::{InForce, Verifier},
};
