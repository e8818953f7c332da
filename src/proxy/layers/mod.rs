//! The layers around a call, in the order of the stack.

pub(super) mod admit;
pub(super) mod cached;
pub(super) mod deadline;
pub(super) mod measure;
