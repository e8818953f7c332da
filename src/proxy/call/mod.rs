//! One call: its request, its caller, the packet that it came in, and its result.

pub(super) mod cacheable;
pub(super) mod packet;
pub(super) mod policy;
pub(super) mod rate;
pub(super) mod request;
pub(super) mod result;
