//! Operations that are not client calls: the follower, and the handles for the admin interface.
//!
//! # Floors
//! ```text
//! gauges    gauges of the chain
//! status    the state of the chain and of verification
//! inspect   shows and removes cached entries
//! follower  follows the chain
//! ```

pub(super) mod follower;
pub(super) mod gauges;
pub(super) mod inspect;
pub(super) mod status;
