//! Where a call comes from.

use http::{HeaderMap, HeaderValue};
use tracing::Span;

use super::{TRACEPARENT, TRACESTATE, TraceContext, span};

/// The trace that a call is made for, and the span it is made in: nothing of either, if it is made for nobody. It goes
/// with the call, since tasks of their own do not know what began them.
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
    /// Returns the origin of calls that are made in this span, for this trace.
    pub fn new(span: Span, context: Option<TraceContext>) -> Self {
        Self { span, context }
    }

    /// The span that it is made in.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// The same, with what is asked of a node in a span of its own.
    pub fn with_span(self, span: Span) -> Self {
        Self { span, ..self }
    }

    /// Tells the node that is asked which trace this is, and which span of it is the node's parent: ours, where spans are
    /// exported, and else the client's.
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
