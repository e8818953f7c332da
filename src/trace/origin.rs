//! The trace and span of a call.

use http::{HeaderMap, HeaderValue};
use tracing::Span;

use super::{TRACEPARENT, TRACESTATE, TraceContext, span};

/// The trace and the span of a call. The default has neither and is for background calls. Each call carries its
/// `Origin`, because a spawned task does not know the span of the task that spawned it.
#[derive(Clone, Debug)]
pub struct Origin {
    span: Span,
    context: Option<TraceContext>,
}

// === impl Origin ===

impl Default for Origin {
    fn default() -> Self {
        Self { span: Span::none(), context: None }
    }
}

impl Origin {
    /// Creates the origin of a call with this span. `context` is the client's trace, if the client sent one.
    pub fn new(span: Span, context: Option<TraceContext>) -> Self {
        Self { span, context }
    }

    /// The span of the call.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// Replaces the span. Use it for an upstream request that has its own span.
    pub fn with_span(self, span: Span) -> Self {
        Self { span, ..self }
    }

    /// Adds the trace headers to an upstream request. They name Holdfast's span as the parent if Holdfast exports its
    /// spans, otherwise the client's span.
    pub fn tell(&self, headers: &mut HeaderMap) {
        let context = self.context.as_ref();
        let parent: Option<HeaderValue> =
            span::parent(&self.span).or_else(|| context.map(|context| context.parent().clone()));
        let Some(parent) = parent else { return };
        headers.insert(TRACEPARENT, parent);
        if let Some(state) = context.and_then(TraceContext::state) {
            headers.insert(TRACESTATE, state.clone());
        }
    }
}
