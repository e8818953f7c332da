//! Operations apart from calls: the follower, and the handles of the admin interface.
//!
//! # Floors
//! ```text
//! gauges    gauges of the chain
//! status    the state of the chain and of verification
//! inspect   shows and removes cached entries
//! warm      fetches blocks on request of an operator
//! follower  follows the chain
//! ```

pub(super) mod follower;
pub(super) mod gauges;
pub(super) mod inspect;
pub(super) mod status;
pub(super) mod warm;
