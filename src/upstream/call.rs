//! What is asked of an upstream.

use super::{Need, UpstreamError, filters::FilterCall};
use crate::{
    eth::is_write,
    jsonrpc::{Answer, MethodName, Params},
    verify::{Check, Failure},
};

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
    /// Tells an answer from a lie; without it, whatever the upstream says is its answer.
    pub check: Option<Check>,
    /// What the endpoint that answers it must have.
    pub need: Need,
}

/// An answer that cannot be right.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{failure}")]
pub struct Mismatch {
    /// What is wrong with it.
    pub failure: Failure,
    /// It, for whoever wants it all the same.
    pub answer: Answer,
}

// === impl Call ===

impl Call {
    /// A call whose every answer counts.
    pub fn new(method: impl Into<MethodName>, params: Params) -> Self {
        Self { method: method.into(), params, check: None, need: Need::default() }
    }

    /// The same call, whose answer must pass this.
    pub fn with_check(self, check: Check) -> Self {
        Self { check: Some(check), ..self }
    }

    /// The same call, for an endpoint that has this.
    pub fn with_need(self, need: Need) -> Self {
        Self { need, ..self }
    }

    /// What it has to do with filters.
    pub(super) fn filter(&self) -> Option<FilterCall> {
        FilterCall::of(self.method.as_str())
    }

    /// May it be sent twice? Not if it can change what reads see, or what a filter tells next.
    pub(super) fn is_repeatable(&self) -> bool {
        // Beside what reads see, these may change what a node is or mines.
        const DEEDS: [&str; 4] = ["personal_", "admin_", "engine_", "eth_submit"];
        let method = self.method.as_str();
        !is_write(method) && self.filter().is_none() && !DEEDS.iter().any(|deed| method.starts_with(deed))
    }
}
