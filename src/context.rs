//! The context of a call: its client, its permit, its trace, and the connection that a request for it may open.
//!
//! It is one task-local and no argument: bytes are read, spans are made and connections are opened many steps from where a
//! call comes in, and an HTTP client is in between.

use std::{fmt, sync::Arc};

use tokio::{sync::OwnedSemaphorePermit, task::futures::TaskLocalFuture, task_local};
use tracing::Span;

use crate::{
    client::Client,
    trace::{Origin, TraceContext},
};

/// The context that work is done in. The default is that of no call. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct CallContext {
    /// The client that the work is for; `None` for work of the program itself.
    pub client: Option<Client>,
    /// The client's permit for a fetch, which is returned when the last clone is dropped.
    pub permit: Option<Arc<OwnedSemaphorePermit>>,
    /// The trace that the client's request belongs to.
    pub trace: Option<TraceContext>,
    /// Hears of connections that the work opens.
    pub connection: Option<Arc<dyn ConnectionObserver>>,
}

/// Hears of connections.
pub trait ConnectionObserver: fmt::Debug + Send + Sync {
    /// A connection is being opened.
    fn opening(&self);
}

/// Work within a context.
pub type InContext<F> = TaskLocalFuture<CallContext, F>;

task_local! {
    static CURRENT: CallContext;
}

// === impl CallContext ===

impl CallContext {
    /// Returns the context of the work at hand.
    pub fn current() -> Self {
        CURRENT.try_with(Self::clone).unwrap_or_default()
    }

    /// Returns the client that the work at hand is for.
    pub fn client() -> Option<Client> {
        CURRENT.try_with(|context| context.client).ok().flatten()
    }

    /// Returns the trace and the span of the work at hand, for calls that it makes.
    pub fn origin() -> Origin {
        let trace = CURRENT.try_with(|context| context.trace.clone()).ok().flatten();
        Origin::new(Span::current(), trace)
    }

    /// Reports that the work at hand opens a connection.
    pub fn report_connection() {
        let _ = CURRENT.try_with(|context| {
            if let Some(connection) = &context.connection {
                connection.opening();
            }
        });
    }

    /// Does work within this context.
    pub fn scope<F: Future>(self, work: F) -> InContext<F> {
        CURRENT.scope(self, work)
    }
}
