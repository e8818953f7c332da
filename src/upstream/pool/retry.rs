//! What is worth asking of another endpoint, and may be.

use super::super::{
    Call, Retry, UpstreamError,
    endpoint::{AcceptedAnswer, counts_against_endpoint, is_about_request_size},
    node_error,
};
use crate::{
    jsonrpc::Answer,
    verify::{Failure, Verdict},
};

/// Why another endpoint is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum RetryReason {
    /// This one did not answer, or not so that it helps.
    Failure,
    /// This one may only not have got it yet.
    Null,
}

/// Might another endpoint do better, and is it safe to ask one?
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
        // It may be right, and another may say it so that it can be seen.
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
        Err(UpstreamError::Status(status)) if is_about_request_size(*status) => false,
        Err(error) => error.retry() != Retry::Never,
    };
    is_worth_it.then_some(RetryReason::Failure)
}

/// Would another endpoint be asked?
pub(in crate::upstream) fn is_worth_retry(
    call: &Call,
    outcome: &Result<AcceptedAnswer, UpstreamError>,
) -> bool {
    retry_reason(call, outcome).is_some()
}

/// Did the endpoint fail, rather than be at its rate or have nothing better to say?
pub(in crate::upstream) fn is_failure(call: &Call, outcome: &Result<AcceptedAnswer, UpstreamError>) -> bool {
    match outcome {
        // A chain has a head: whoever has none to tell of is no good to follow.
        Ok(AcceptedAnswer { answer: Answer::Error(error), .. }) => {
            call.requirements.is_head && !node_error::is_rate_limit(call, error)
        }
        Ok(AcceptedAnswer { answer, .. }) if call.requirements.is_head => answer.is_null(),
        Ok(_) | Err(UpstreamError::RateLimited { .. }) => false,
        // Whatever it says instead of who it is, there is nothing to be had from it.
        Err(UpstreamError::NotSent(error)) => {
            !matches!(**error, UpstreamError::RateLimited { .. } | UpstreamError::Cancelled)
        }
        Err(error) => counts_against_endpoint(call, error),
    }
}

/// Is this an error of which one other endpoint is asked for its opinion? Not where the client's own code may have made it.
fn is_disputed_error(call: &Call, error: &[u8]) -> bool {
    call.is_repeatable()
        && ((!call.runs_client_code() && node_error::is_internal(error))
            // One that is behind the head that everybody has been shown says so too.
            || (node_error::is_unknown_block(error)
                && call.requirements.head.is_some_and(|head| !call.names_block_above(head))))
}

/// Is this such an error?
pub(in crate::upstream) fn is_disputed(call: &Call, outcome: &Result<AcceptedAnswer, UpstreamError>) -> bool {
    matches!(outcome, Ok(AcceptedAnswer { answer: Answer::Error(error), .. }) if is_disputed_error(call, error))
}

pub(in crate::upstream) fn is_null(outcome: &Result<AcceptedAnswer, UpstreamError>) -> bool {
    matches!(outcome, Ok(accepted) if is_absent(accepted))
}

/// Returns whether the endpoint does not have what it was asked for, or not all of it.
fn is_absent(accepted: &AcceptedAnswer) -> bool {
    accepted.answer.is_null() || matches!(accepted.verdict, Some(Verdict::Short))
}

/// Does this outcome replace one that came before? Of two results of the same worth the first stays; of two failures
/// the last tells more.
pub(in crate::upstream) fn replaces(
    outcome: &Result<AcceptedAnswer, UpstreamError>,
    before: &Result<AcceptedAnswer, UpstreamError>,
) -> bool {
    let is_result = matches!(before, Ok(AcceptedAnswer { answer: Answer::Result(_), .. }));
    rank(outcome) > rank(before) || (!is_result && rank(outcome) == rank(before))
}

/// Is it an answer that could not be proved?
pub(in crate::upstream) fn is_unproved(outcome: &Result<AcceptedAnswer, UpstreamError>) -> bool {
    matches!(outcome, Ok(AcceptedAnswer { verdict: Some(Verdict::Unproved(..)), .. }))
}

/// What an outcome is worth beside another of the same call.
pub(in crate::upstream) fn rank(outcome: &Result<AcceptedAnswer, UpstreamError>) -> u8 {
    match outcome {
        Ok(accepted) if accepted.answer.is_content() => 5 - u8::from(is_unproved(outcome)),
        Ok(AcceptedAnswer { answer: Answer::Result(_), .. }) => 3,
        Ok(AcceptedAnswer { answer: Answer::Error(_), .. }) => 2,
        // It may be handed on all the same.
        Err(UpstreamError::Rejected(_) | UpstreamError::Refused { .. }) => 1,
        Err(_) => 0,
    }
}
