//! The context of a call: its client, its permit, its trace, and an observer of the connections that it opens.
//!
//! The context is a task-local value instead of an argument, because the code that reads bytes, makes spans and opens
//! connections runs far below the code that receives a call, with an HTTP client in between.

use std::{fmt, sync::Arc};

use tokio::{sync::OwnedSemaphorePermit, task::futures::TaskLocalFuture, task_local};
use tracing::Span;

use crate::{
    client::Client,
    trace::{Origin, TraceContext},
};

/// The context of the current task. The default belongs to no call. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct CallContext {
    /// The client that the task works for; `None` for background work.
    pub client: Option<Client>,
    /// The client's permit for a fetch, released when its last clone is dropped.
    pub permit: Option<Arc<OwnedSemaphorePermit>>,
    /// The trace that the client's request belongs to.
    pub trace: Option<TraceContext>,
    /// Observes connections that the task opens.
    pub connection: Option<Arc<dyn ConnectionObserver>>,
}

/// Observes connections.
pub trait ConnectionObserver: fmt::Debug + Send + Sync {
    /// Called when a connection is about to open.
    fn opening(&self);
}

/// A future within a context.
pub type InContext<F> = TaskLocalFuture<CallContext, F>;

task_local! {
    static CURRENT: CallContext;
}

// === impl CallContext ===

impl CallContext {
    /// Returns the context of the current task.
    pub fn current() -> Self {
        CURRENT.try_with(Self::clone).unwrap_or_default()
    }

    /// Returns the client that the current task works for.
    pub fn client() -> Option<Client> {
        CURRENT.try_with(|context| context.client).ok().flatten()
    }

    /// Returns the trace and the span of the current task, for the calls that it makes.
    pub fn origin() -> Origin {
        let trace = CURRENT.try_with(|context| context.trace.clone()).ok().flatten();
        Origin::new(Span::current(), trace)
    }

    /// Reports to the observer that the current task opens a connection.
    pub fn report_connection() {
        let _ = CURRENT.try_with(|context| {
            if let Some(connection) = &context.connection {
                connection.opening();
            }
        });
    }

    /// Runs `work` within this context.
    pub fn scope<F: Future>(self, work: F) -> InContext<F> {
        CURRENT.scope(self, work)
    }
}
