//! Span operations of a build with OpenTelemetry export. Each function ignores spans that are not exported.

use http::HeaderValue;
use opentelemetry::{
    Context,
    trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState},
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::TraceContext;

/// Makes a span part of a client's trace. Call this function before the span is entered.
pub fn join(span: &Span, context: &TraceContext) {
    let ids = (TraceId::from_hex(context.trace_id()), SpanId::from_hex(context.span_id()));
    let (Ok(trace), Ok(parent)) = ids else { return };
    let flags = if context.is_sampled() { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let state = context.state().and_then(|state| state.to_str().ok()?.parse::<TraceState>().ok());
    let parent = SpanContext::new(trace, parent, flags, true, state.unwrap_or_default());
    // `set_parent` fails only if the span is not exported. Then there is no trace to join.
    let _ = span.set_parent(Context::new().with_remote_span_context(parent));
}

/// Ends a span even if other tasks still hold it. A task that was started for a call may outlive the call's response.
pub fn end(span: &Span) {
    if !span.is_disabled() {
        span.context().span().end();
    }
}

/// Returns the `traceparent` that names `span` as the parent; `None` if the span is not exported.
pub fn parent(span: &Span) -> Option<HeaderValue> {
    if span.is_disabled() {
        return None;
    }
    let context = span.context();
    let span = context.span();
    let named = span.span_context();
    let sampled = u8::from(named.is_sampled());
    let parent = || format!("00-{}-{}-{sampled:02x}", named.trace_id(), named.span_id());
    named.is_valid().then(|| HeaderValue::try_from(parent()).ok()).flatten()
}
