//! What is worth asking of another endpoint, and may be.

use super::{Call, Retry, UpstreamError, endpoint::Accepted, limited};
use crate::{
    jsonrpc::Answer,
    verify::{Failure, Verdict},
};

/// Why another endpoint is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Another {
    /// This one did not answer, or not so that it helps.
    Retry,
    /// This one may only not have got it yet.
    Null,
}

/// Might another endpoint do better, and is it safe to ask one?
pub(super) fn another(call: &Call, outcome: &Result<Accepted, UpstreamError>) -> Option<Another> {
    let is_worth_it = match outcome {
        Ok(Accepted { answer: Answer::Error(error), .. }) => {
            call.is_repeatable() && (limited::is_rate_limit(error) || limited::is_pruned(error))
        }
        // It may be right, and another may say it so that it can be seen.
        Ok(Accepted { verdict: Some(Verdict::Unproved(Failure::Unprovable { .. }, _)), .. }) => {
            call.is_repeatable()
        }
        Ok(Accepted { answer, .. }) => {
            return (call.need.null_elsewhere && is_null_answer(answer)).then_some(Another::Null);
        }
        Err(error) if !call.is_repeatable() => error.never_sent(),
        Err(error) => error.retry() != Retry::Never,
    };
    is_worth_it.then_some(Another::Retry)
}

/// Would another endpoint be asked?
pub(super) fn is_worth_another(call: &Call, outcome: &Result<Accepted, UpstreamError>) -> bool {
    another(call, outcome).is_some()
}

/// Did the endpoint fail, rather than be at its rate or have nothing better to say?
pub(super) fn is_failure(outcome: &Result<Accepted, UpstreamError>) -> bool {
    matches!(outcome, Err(error) if error.is_endpoints_fault() && !matches!(error, UpstreamError::RateLimited { .. }))
}

pub(super) fn is_null(outcome: &Result<Accepted, UpstreamError>) -> bool {
    matches!(outcome, Ok(accepted) if is_null_answer(&accepted.answer))
}

fn is_null_answer(answer: &Answer) -> bool {
    matches!(answer, Answer::Result(result) if result == "null")
}
