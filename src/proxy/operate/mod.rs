//! Status, inspection and prefetching, for operators.

pub(super) mod follower;
pub(super) mod gauges;
pub(super) mod inspect;
pub(super) mod status;
pub(super) mod warm;
