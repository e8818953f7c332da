//! What is asked of an upstream.

use std::{fmt, sync::Arc};

use super::UpstreamError;
use crate::jsonrpc::{Answer, MethodName, Params};

/// One to many calls that travel together.
pub type Calls = Vec<Call>;

/// An answer for each call, in the order of the calls.
pub type Answers = Vec<Result<Answer, UpstreamError>>;

/// A call to an upstream, with what an answer must be like to count.
#[derive(Clone, Debug)]
pub struct Call {
    /// The method's name.
    pub method: MethodName,
    /// Its params, canonical where the operation is known.
    pub params: Params,
    /// Tells an answer from a lie. It travels with the call, so that "ask another upstream" can be
    /// decided where upstreams are chosen.
    pub accept: Accept,
}

/// Checks an answer before it counts as one.
#[derive(Clone)]
pub struct Accept(Option<Arc<Check>>);

type Check = dyn Fn(&Answer) -> Result<(), Mismatch> + Send + Sync;

/// An answer that cannot be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Mismatch(pub String);

// === impl Call ===

impl Call {
    /// A call whose every answer counts.
    pub fn new(method: impl Into<MethodName>, params: Params) -> Self {
        Self { method: method.into(), params, accept: Accept::anything() }
    }

    /// The same call, with a check on its answer.
    pub fn with_accept(self, accept: Accept) -> Self {
        Self { accept, ..self }
    }
}

// === impl Accept ===

impl Accept {
    /// Whatever the upstream says is its answer.
    pub fn anything() -> Self {
        Self(None)
    }

    /// Only what passes `check` is an answer.
    pub fn only(check: impl Fn(&Answer) -> Result<(), Mismatch> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(check)))
    }

    /// Does `answer` pass?
    ///
    /// # Errors
    /// If not: what is wrong with it.
    pub fn check(&self, answer: &Answer) -> Result<(), Mismatch> {
        self.0.as_ref().map_or(Ok(()), |check| check(answer))
    }
}

impl fmt::Debug for Accept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Accept::only" } else { "Accept::anything" })
    }
}
