//! Decides which outcomes justify a retry at another endpoint, and when a retry is safe.

use super::super::{
    AcceptedAnswer, Call, Retry, UpstreamError,
    endpoint::{counts_against_endpoint, is_about_request_size},
    node_error,
};
use crate::{
    jsonrpc::Answer,
    verify::{Failure, Verdict},
};

/// Why the pool asks another endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum RetryReason {
    /// This endpoint gave no useful answer.
    Failure,
    /// This endpoint may not have the data yet.
    Null,
}

/// Returns the reason for a retry, if another endpoint might do better and a retry is safe.
pub(in crate::upstream) fn retry_reason(
    call: &Call,
    outcome: &Result<AcceptedAnswer, UpstreamError>,
) -> Option<RetryReason> {
    let is_worth_it = match outcome {
        Ok(AcceptedAnswer { answer: Answer::Error(error), .. }) => {
            call.is_repeatable()
                && (node_error::is_rate_limit(call, error)
                    || node_error::is_pruned(error)
                    || call.requirements.is_head
                    || is_disputed_error(call, error))
        }
        // The answer may be right, and another endpoint may return it in a form that can be proved.
        Ok(AcceptedAnswer { verdict: Some(Verdict::Unproved(failure, _)), .. })
            if *failure != Failure::Unfounded =>
        {
            call.is_repeatable()
        }
        Ok(accepted) => {
            let must_be = call.requirements.retry_null || call.requirements.is_head;
            return (must_be && is_absent(accepted)).then_some(RetryReason::Null);
        }
        Err(error) if !call.is_repeatable() => {
            (error.never_sent() || error.is_refusal()) && !call.is_filter()
        }
        Err(UpstreamError::TooLarge { is_batch, .. }) => call.has_known_shape() && !is_batch,
        Err(UpstreamError::Status { status, .. }) if is_about_request_size(*status) => false,
        Err(error) => error.retry() != Retry::Never,
    };
    is_worth_it.then_some(RetryReason::Failure)
}

/// Returns whether the pool would ask another endpoint.
pub(in crate::upstream) fn is_worth_retry(
    call: &Call,
    outcome: &Result<AcceptedAnswer, UpstreamError>,
) -> bool {
    retry_reason(call, outcome).is_some()
}

/// Returns whether the endpoint failed, rather than being at its rate limit or having no better answer.
pub(in crate::upstream) fn is_failure(call: &Call, outcome: &Result<AcceptedAnswer, UpstreamError>) -> bool {
    match outcome {
        // Every chain has a head, so an endpoint without one is unsuitable as primary.
        Ok(AcceptedAnswer { answer: Answer::Error(error), .. }) => {
            call.requirements.is_head && !node_error::is_rate_limit(call, error)
        }
        Ok(AcceptedAnswer { answer, .. }) if call.requirements.is_head => answer.is_null(),
        Ok(_) | Err(UpstreamError::RateLimited { .. }) => false,
        // An endpoint whose identity check fails is unusable, unless the check only met a rate limit.
        Err(UpstreamError::NotSent(error)) => !matches!(**error, UpstreamError::RateLimited { .. }),
        Err(error) => counts_against_endpoint(call, error),
    }
}

/// Returns whether the error deserves a second opinion from one other endpoint. An internal error does not if the
/// client's own code may have caused it.
fn is_disputed_error(call: &Call, error: &[u8]) -> bool {
    call.is_repeatable()
        && ((!call.runs_client_code() && node_error::is_internal(error))
            // An endpoint also reports an unknown block if it is behind the head that clients have already seen.
            || (node_error::is_unknown_block(error)
                && call.requirements.head.is_some_and(|head| !call.names_block_above(head))))
}

/// Returns whether the outcome is an error that deserves a second opinion.
pub(in crate::upstream) fn is_disputed(call: &Call, outcome: &Result<AcceptedAnswer, UpstreamError>) -> bool {
    matches!(outcome, Ok(AcceptedAnswer { answer: Answer::Error(error), .. }) if is_disputed_error(call, error))
}

pub(in crate::upstream) fn is_null(outcome: &Result<AcceptedAnswer, UpstreamError>) -> bool {
    matches!(outcome, Ok(accepted) if is_absent(accepted))
}

/// Returns whether the endpoint lacks the requested data, or part of it.
fn is_absent(accepted: &AcceptedAnswer) -> bool {
    accepted.answer.is_null() || matches!(accepted.verdict, Some(Verdict::Short))
}

/// Returns whether this outcome replaces an earlier one. Of two results with the same rank, the first stays. Of two
/// errors with the same rank, the last stays.
pub(in crate::upstream) fn replaces(
    outcome: &Result<AcceptedAnswer, UpstreamError>,
    before: &Result<AcceptedAnswer, UpstreamError>,
) -> bool {
    let is_result = matches!(before, Ok(AcceptedAnswer { answer: Answer::Result(_), .. }));
    rank(outcome) > rank(before) || (!is_result && rank(outcome) == rank(before))
}

/// Returns whether the answer could not be proved.
pub(in crate::upstream) fn is_unproved(outcome: &Result<AcceptedAnswer, UpstreamError>) -> bool {
    matches!(outcome, Ok(AcceptedAnswer { verdict: Some(Verdict::Unproved(..)), .. }))
}

/// Returns the rank of an outcome among those of the same call; higher is better.
pub(in crate::upstream) fn rank(outcome: &Result<AcceptedAnswer, UpstreamError>) -> u8 {
    match outcome {
        Ok(accepted) if accepted.answer.is_content() => 5 - u8::from(is_unproved(outcome)),
        Ok(AcceptedAnswer { answer: Answer::Result(_), .. }) => 3,
        Ok(AcceptedAnswer { answer: Answer::Error(_), .. }) => 2,
        // These errors contain an answer or an error object, which the client may still get.
        Err(UpstreamError::Rejected(_) | UpstreamError::Refused { .. }) => 1,
        Err(_) => 0,
    }
}
