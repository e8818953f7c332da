//! What is asked of an upstream.

use super::UpstreamError;
use crate::{
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
        Self { method: method.into(), params, check: None }
    }

    /// The same call, whose answer must pass this.
    pub fn with_check(self, check: Check) -> Self {
        Self { check: Some(check), ..self }
    }

    /// Checks an answer to it.
    pub(super) async fn accept(&self, answer: Answer) -> Result<Answer, UpstreamError> {
        let Some(check) = &self.check else { return Ok(answer) };
        match check.accept(&answer).await {
            Ok(()) => Ok(answer),
            Err(failure) => Err(UpstreamError::Rejected(Box::new(Mismatch { failure, answer }))),
        }
    }
}
