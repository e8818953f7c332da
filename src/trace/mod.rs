//! Whose trace a call belongs to (W3C Trace Context, level 1): what a client says of it comes in here, goes with the call
//! wherever that is carried out, and out again to the node that is asked.
//!
//! A [`TraceContext`] is what the client said. An [`Origin`] is that, with the span that a call is made in: it goes with
//! the call, since what is asked of a node may be asked by a task of its own. Where spans are [exported](span) they are of
//! the client's trace, and the node is told of ours; where they are not, what the client said is handed on as it came.

mod context;
mod origin;
#[cfg_attr(not(feature = "otlp"), path = "unexported.rs")]
pub mod span;

pub use self::{
    context::{TRACEPARENT, TRACESTATE, TraceContext},
    origin::Origin,
};
