//! Sends calls to an endpoint and records the outcome: an answer, a failure, or an attempt that was cut off.

use std::{fmt, time::Duration};

use futures_util::future::join_all;
use parking_lot::MutexGuard;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{self, Instant},
};
use tower::Service;
use tracing::{Instrument, Span, debug, debug_span, field, info, warn};

use super::{
    super::{
        AcceptedAnswer, AcceptedAnswers, Answers, Call, Calls, Mismatch, UpstreamError, call::AnswerLease,
        identity::IdentityError, metrics, node_error,
    },
    Endpoint,
    failure::{counts_against_endpoint, counts_against_primary},
    health::{EndpointHealth, MISMATCH_PENALTY},
};
use crate::{display::seconds, eth::MethodLabel, jsonrpc::Answer, log_throttle, trace::Origin};

/// Number of consecutive refusals that Holdfast attributes to the code that clients' calls run. If a longer series has
/// no answer in between, the client code is not the cause, and further refusals count against the endpoint.
const MAX_REFUSALS: u32 = 20;

/// Time within which a healthy node answers everyday calls ([`Call::is_everyday`]). It is shorter than the time that a
/// call has left after a failed attempt at another endpoint: if two endpoints hang, Holdfast must notice the second
/// one, too.
const SILENCE_THRESHOLD: Duration = Duration::from_secs(3);

/// How long the answer to a call that must not be sent twice waits for an identity check. After that, the client gets
/// the answer unconfirmed, because the call could otherwise time out and lose its answer.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of methods named in the span of a batch.
const MAX_METHODS: usize = 4;

/// A place among the requests in flight, held until the answers have come: their proofs may wait for long.
pub(in crate::upstream) type Slot = Option<OwnedSemaphorePermit>;

/// Purpose of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Check the chain identity. A proxy in front of a node may answer this check without the node, so its answer does
    /// not close the circuit breaker.
    Identity,
    Call,
}

/// An attempt in progress. If it is dropped before its outcome is recorded, it was cut off: by the time-out of its
/// call, by a faster hedge request, or by a client that disconnected.
struct PendingAttempt<'a> {
    endpoint: &'a Endpoint,
    calls: &'a Calls,
    at: Instant,
    /// Whether all calls are everyday calls ([`Call::is_everyday`]), which every node answers quickly.
    is_everyday: bool,
    is_recorded: bool,
    span: Span,
}

/// Displays the methods of the calls in one request, each once. Unknown methods appear as `other`, because clients can
/// make them up.
struct MethodList<'a>(&'a Calls);

/// Sends calls and checks the answers, once the endpoint's chain identity is confirmed. If the attempt opens a
/// connection while no older one is in use, the identity is checked again before the answers are accepted, unless such
/// a check was made shortly before.
pub(in crate::upstream) async fn attempt(endpoint: &Endpoint, calls: &Calls, slot: Slot) -> AcceptedAnswers {
    let Some(identity) = &endpoint.identity else { return ask(endpoint, calls, slot, Purpose::Call).await };
    if endpoint.monitor.take_due_recheck(Instant::now()) {
        identity.require_recheck();
    }
    if let Err(error) = identity.confirm().await {
        return vec![Err(UpstreamError::NotSent(Box::new(error.into()))); calls.len()];
    }
    let reconnects = endpoint.monitor.reconnects();
    let attempted = endpoint.monitor.monitor_request(ask(endpoint, calls, slot, Purpose::Call)).await;
    let said_anything = |outcome| matches!(outcome, &Ok(_) | &Err(UpstreamError::Rejected(_)));
    if endpoint.monitor.reconnects() == reconnects || !attempted.iter().any(said_anything) {
        return attempted;
    }
    if endpoint.monitor.take_due_recheck(Instant::now()) {
        identity.require_recheck();
    }
    let is_repeatable = calls.iter().all(Call::is_repeatable);
    let confirmed = if is_repeatable {
        identity.confirm().await
    } else {
        match time::timeout(CONFIRM_TIMEOUT, identity.confirm()).await {
            Ok(confirmed) => confirmed,
            Err(_) => return attempted,
        }
    };
    match confirmed {
        Ok(_) => attempted,
        Err(IdentityError::WrongChain(wrong_chain)) => {
            vec![Err(UpstreamError::WrongChain(wrong_chain)); calls.len()]
        }
        // The endpoint may have executed the call, so the client gets its answer even with an unconfirmed identity.
        Err(_) if !is_repeatable => attempted,
        Err(IdentityError::Upstream(error)) => vec![Err(error); calls.len()],
    }
}

/// Sends an identity check.
pub(in crate::upstream) async fn ask_identity(endpoint: &Endpoint, calls: &Calls) -> AcceptedAnswers {
    ask(endpoint, calls, None, Purpose::Identity).await
}

/// Sends calls and checks the answers, without confirming the chain identity. Sends nothing during a pause after a rate
/// limit.
async fn ask(endpoint: &Endpoint, calls: &Calls, slot: Slot, purpose: Purpose) -> AcceptedAnswers {
    let now = Instant::now();
    {
        let mut health = endpoint.health.lock();
        let wait = match purpose {
            Purpose::Identity => health.pause_left(now),
            Purpose::Call => health.limit_wait(now),
        };
        if !wait.is_zero() {
            let limit = UpstreamError::RateLimited { retry_after: Some(wait), words: None };
            return vec![Err(limit); calls.len()];
        }
        health.begin(calls.len() as u32, now);
    }
    let _in_use = endpoint.monitor.begin_request();
    let is_everyday = calls.iter().all(Call::is_everyday);
    let (span, origin) = span(endpoint, calls);
    let mut begun = PendingAttempt { endpoint, calls, at: now, is_everyday, is_recorded: false, span };
    // Counts the response's bytes in the memory budget until the answers have been checked and recorded.
    let answer_lease = AnswerLease::default();
    let mut sent = calls.clone();
    if let Some(call) = sent.first_mut() {
        call.set_answer_lease(&answer_lease);
        call.origin = origin;
    }
    let answers = send(endpoint, sent, now).instrument(begun.span.clone()).await;
    drop(slot);
    let attempted = match answers {
        Ok(answers) => {
            let mut accepted = answers.into_iter().zip(calls);
            let accept = async |(answer, call): (Result<_, _>, _)| accept(endpoint, call, answer?).await;
            match (calls.len(), accepted.next()) {
                // Most requests hold one call, which needs no list of futures.
                (1, Some(one)) => vec![accept(one).await],
                (_, first) => join_all(first.into_iter().chain(accepted).map(accept)).await,
            }
        }
        Err(error) => vec![Err(error); calls.len()],
    };
    for (call, attempted) in calls.iter().zip(&attempted) {
        record(endpoint, call, attempted, purpose, now);
    }
    begun.is_recorded = true;
    let mut outcomes = attempted
        .iter()
        .map(|attempted| metrics::outcome(attempted.as_ref().map(|accepted| &accepted.answer)));
    begun
        .span
        .record("outcome", outcomes.find(|outcome| *outcome != metrics::RESULT).unwrap_or(metrics::RESULT));
    drop(answer_lease);
    attempted
}

/// Returns the span of an attempt and the trace context that the node receives. Both derive from the first call,
/// because the calls of a request have the same origin.
fn span(endpoint: &Endpoint, calls: &Calls) -> (Span, Origin) {
    let origin = calls.first().map(|call| call.origin.clone()).unwrap_or_default();
    let span = debug_span!(
        parent: origin.span(),
        "upstream",
        endpoint = %endpoint.name,
        calls = calls.len(),
        method = %MethodList(calls),
        outcome = field::Empty,
    );
    (span.clone(), origin.with_span(span))
}

/// Checks an answer.
async fn accept(endpoint: &Endpoint, call: &Call, answer: Answer) -> Result<AcceptedAnswer, UpstreamError> {
    let by = Some(endpoint.id);
    let Some(check) = &call.check else {
        return Ok(AcceptedAnswer { answer, verdict: None, by });
    };
    match check.examine(&endpoint.name, &answer).await {
        Ok(verdict) => Ok(AcceptedAnswer { answer, verdict, by }),
        Err(failure) => Err(UpstreamError::Rejected(Box::new(Mismatch { failure, answer }))),
    }
}

async fn send(endpoint: &Endpoint, calls: Calls, begun: Instant) -> Result<Answers, UpstreamError> {
    let _in_flight = endpoint.metrics.begin();
    let sent = {
        // A transport is always ready, so `poll_ready` is not called.
        endpoint.transport.lock().call(calls)
    };
    let answers = sent.await;
    let now = Instant::now();
    let elapsed = now.saturating_duration_since(begun);
    endpoint.metrics.request_ended(elapsed);
    // Records the time before the answers are checked, because the check takes time, too.
    if !matches!(&answers, Err(error) if error.has_no_response()) {
        endpoint.health.lock().responded_at = Some(now);
    }
    debug!(elapsed_seconds = seconds(elapsed), ok = answers.is_ok(), "upstream request ended");
    answers
}

/// Updates the endpoint's health with the outcome of a call that began at `begun`.
fn record(
    endpoint: &Endpoint,
    call: &Call,
    attempted: &Result<AcceptedAnswer, UpstreamError>,
    purpose: Purpose,
    begun: Instant,
) {
    let now = Instant::now();
    endpoint.metrics.call_ended(call.method.as_str(), attempted.as_ref().map(|accepted| &accepted.answer));
    let mut health = endpoint.health.lock();
    match attempted {
        Ok(AcceptedAnswer { answer, verdict, .. }) => {
            if let Answer::Error(error) = answer
                && node_error::is_rate_limit(call, error)
            {
                endpoint.metrics.rate_limited();
                let limit = UpstreamError::rate_limit(error);
                health.limit(&limit, None, now);
                return warn(endpoint, health, &limit, true);
            }
            health.hung_at = None;
            if purpose == Purpose::Identity {
                if endpoint.is_wrong_chain() {
                    // These heights belong to the other chain, and would be wrong if the endpoint returned to the
                    // right one.
                    health.forget_heights();
                }
                health.breaker.allow_probe(now);
                // While the breaker is open, `last_error` stays, so that the status shows the reason.
                // A provider that refuses calls may still tell its chain id.
                if health.breaker.lets_pass(now) && call.method.as_str() == "eth_getBlockByNumber" {
                    report_success(endpoint, health, begun, now);
                }
                return;
            }
            health.learn(call, answer, verdict.as_ref(), now);
            health.breaker.succeed();
            (health.mismatches, health.refusals) = (0, 0);
            if call.requirements.forwarded {
                (health.forward_failures, health.forwarded_at) = (0, Some(now));
            }
            health.pause_backoff.reset();
            report_success(endpoint, health, begun, now);
        }
        Err(error @ UpstreamError::RateLimited { retry_after, .. }) => {
            endpoint.metrics.rate_limited();
            health.limit(error, *retry_after, now);
            warn(endpoint, health, error, true);
        }
        Err(UpstreamError::Rejected(mismatch)) => {
            health.last_mismatch = Some(mismatch.failure.to_string());
            health.mismatches = (health.mismatches + 1).min(MISMATCH_PENALTY);
            health.failed = Some(now);
        }
        Err(error) => {
            let is_refusal = matches!(error, UpstreamError::Refused { .. }) && call.runs_client_code();
            health.refusals = health.refusals.saturating_add(u32::from(is_refusal));
            if call.requirements.forwarded && counts_against_primary(call, error) {
                health.fail_forwarded(error, begun, now);
            }
            // A slow call says nothing about the endpoint if the endpoint has answered another call meanwhile.
            let is_slow_call = matches!(error, UpstreamError::TimedOut { .. })
                && !call.is_everyday()
                && health.responded_at.is_some_and(|responded_at| responded_at >= begun);
            let counts = (counts_against_endpoint(call, error) && !is_slow_call)
                || (is_refusal && health.refusals > MAX_REFUSALS);
            if counts {
                health.fail(error, begun, now);
            }
            warn(endpoint, health, error, counts);
            if error.is_connection_loss() {
                endpoint.require_recheck();
            }
        }
    }
}

/// Records that an attempt was cut off. The attempt counts as a failure only if it waited longer than a healthy
/// endpoint needs and the endpoint answered no other call meanwhile. If one of its calls may be slow at any node, the
/// attempt only causes a probe.
fn record_cut_off(endpoint: &Endpoint, begun: Instant, is_everyday: bool) {
    let now = Instant::now();
    let waited = now.saturating_duration_since(begun);
    let mut health = endpoint.health.lock();
    if waited < SILENCE_THRESHOLD || health.responded_at.is_some_and(|responded_at| responded_at >= begun) {
        return;
    }
    if is_everyday {
        let error = UpstreamError::TimedOut { after: Duration::from_secs(waited.as_secs()) };
        health.fail(&error, begun, now);
        warn(endpoint, health, &error, true);
    } else if let Some(identity) = &endpoint.identity {
        drop(health);
        identity.probe();
    }
}

/// Logs a failure. `counts` says whether it counts against the endpoint, and not against the call.
fn warn(
    endpoint: &Endpoint,
    mut health: MutexGuard<'_, EndpointHealth>,
    error: &UpstreamError,
    counts: bool,
) {
    let (words, name) = (error.words(), &endpoint.name);
    let words = words.as_deref();
    let is_refusal = counts && error.is_refusal();
    let is_due = endpoint.log_throttle.is_due(if is_refusal { "refusal" } else { error.as_str() });
    // During a long pause there are no calls, and so no later chance to warn of this outage.
    let is_long = matches!(error, UpstreamError::RateLimited { retry_after: Some(wait), .. } if *wait >= log_throttle::EVERY);
    let is_due = is_due || (is_long && !health.outage.is_logged());
    if counts && is_due {
        health.outage.fail(Instant::now(), true);
    }
    drop(health);
    if !is_due {
        debug!(%error, words, endpoint = %name, "upstream call failed");
        return;
    }
    match error {
        UpstreamError::RateLimited { .. } => {
            warn!(words, endpoint = %name, "upstream limits the rate of our calls; pausing calls to it");
        }
        error if is_refusal => {
            warn!(%error, words, endpoint = %name, "upstream refuses our calls; check its key and plan");
        }
        error => warn!(%error, words, endpoint = %name, "upstream call failed"),
    }
}

/// Records the success of a call that began at `begun`. If it ends an outage that was logged, logs the end.
fn report_success(
    endpoint: &Endpoint,
    mut health: MutexGuard<'_, EndpointHealth>,
    begun: Instant,
    now: Instant,
) {
    let end = health.outage.succeed(begun, now);
    if health.outage.since().is_none() {
        (health.last_error, health.refusal) = (None, None);
    } else if let Some(identity) = &endpoint.identity {
        // The call began before the outage. Without further calls, only a probe shows whether the outage has ended.
        drop(health);
        return identity.probe();
    }
    drop(health);
    if let Some(length) = end.and_then(|end| end.logged) {
        info!(endpoint = %endpoint.name, outage_seconds = seconds(length), "upstream answers again");
    }
}

// === impl PendingAttempt ===

impl Drop for PendingAttempt<'_> {
    fn drop(&mut self) {
        if !self.is_recorded {
            self.span.record("outcome", metrics::CUT_OFF);
            for call in self.calls {
                self.endpoint.metrics.call_cut_off(call.method.as_str());
            }
            record_cut_off(self.endpoint, self.at, self.is_everyday);
        }
        self.endpoint.health.lock().breaker.abandon(self.at);
    }
}

// === impl MethodList ===

impl fmt::Display for MethodList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut named = Vec::with_capacity(MAX_METHODS);
        for call in self.0 {
            let name = MethodLabel::of(call.method.as_str()).as_str();
            if named.contains(&name) {
                continue;
            }
            if named.len() == MAX_METHODS {
                named.push("…");
                break;
            }
            named.push(name);
        }
        f.write_str(&named.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::{MethodName, Params};

    fn shown(methods: &[&'static str]) -> String {
        let call = |method: &&'static str| Call::new(MethodName::from(*method), Params::EMPTY);
        MethodList(&methods.iter().map(call).collect()).to_string()
    }

    #[test]
    fn log_names_few_methods_once_and_no_unknown_ones() {
        assert_eq!(shown(&["eth_call"]), "eth_call");
        assert_eq!(shown(&["eth_call", "eth_gasPrice", "eth_call"]), "eth_call, eth_gasPrice");
        let four = ["eth_call", "eth_gasPrice", "eth_getCode", "eth_getLogs"];
        assert_eq!(shown(&[&four[..], &four[..1]].concat()), four.join(", "));
        assert_eq!(shown(&[&four[..], &["eth_chainId"]].concat()), format!("{}, …", four.join(", ")));
        assert_eq!(shown(&["eth_evil", "eth_\n", "eth_call"]), "other, eth_call");
    }
}
