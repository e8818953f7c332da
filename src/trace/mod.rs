//! Propagates the trace of a client's call (W3C Trace Context, level 1) through Holdfast's tasks to the upstream.
//!
//! A [`TraceContext`] holds the client's trace headers. An [`Origin`] adds the span of the call. Each call carries its
//! `Origin`, because another task may send the upstream request. If Holdfast [exports](span) its spans, they join the
//! client's trace, and the upstream receives Holdfast's span as the parent. Otherwise, the upstream receives the
//! client's span as the parent.

mod context;
mod origin;
#[cfg_attr(not(feature = "otlp"), path = "unexported.rs")]
pub mod span;

pub use self::{
    context::{TRACEPARENT, TRACESTATE, TraceContext},
    origin::Origin,
};
