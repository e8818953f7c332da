//! Beside calls: the follower, and what operators see and change.
//!
//! # Floors
//! ```text
//! gauges    gauges of the chain
//! status    the state of the chain and of verification
//! inspect   shows and removes cached entries
//! warm      fetches blocks before clients ask
//! follower  follows the chain
//! ```

pub(super) mod follower;
pub(super) mod gauges;
pub(super) mod inspect;
pub(super) mod status;
pub(super) mod warm;
