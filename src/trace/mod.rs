//! Propagates the trace of a client's call (W3C Trace Context, level 1) through our tasks to the upstream.
//!
//! A [`TraceContext`] holds the client's headers. An [`Origin`] adds the span of the call and travels with it, since a
//! separate task may send the upstream request. If spans are [exported](span), they join the client's trace, and the
//! upstream receives our span as its parent. If not, the client's headers go upstream unchanged.

mod context;
mod origin;
#[cfg_attr(not(feature = "otlp"), path = "unexported.rs")]
pub mod span;

pub use self::{
    context::{TRACEPARENT, TRACESTATE, TraceContext},
    origin::Origin,
};
