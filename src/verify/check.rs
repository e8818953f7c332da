//! The check that a call to an upstream carries with it.

use std::{fmt, pin::pin, sync::Arc, time::SystemTime};

use parking_lot::Mutex;
use tracing::{debug, warn};

use super::{Failure, Known, OnMismatch, Origin, Overdue, ProofWait, Verdict, Verifier};
use crate::{
    eth::{BlockHash, Query},
    jsonrpc::Answer,
    timeout::timeout,
};

/// Tells an answer from a lie. It travels with a call, so that "ask another upstream" can be decided
/// where upstreams are chosen; what it found is kept here for whoever made the call, so that nothing is
/// checked twice.
#[derive(Clone)]
pub struct Check(Arc<Inner>);

struct Inner {
    verifier: Verifier,
    query: Query,
    known: Arc<dyn Known>,
    /// Of the work that the answer is for, as calls of several may travel together.
    wait: ProofWait,
    verdict: Mutex<Option<Verdict>>,
}

// === impl Check ===

impl Check {
    /// Returns a check for the answer to this query, which is held against known data.
    pub fn new(verifier: Verifier, query: Query, known: Arc<dyn Known>) -> Self {
        let wait = ProofWait::current().unwrap_or_default();
        Self(Arc::new(Inner { verifier, query, known, wait, verdict: Mutex::default() }))
    }

    /// Checks an answer of this endpoint's, and tells what was found; that counts once it is [settled](Self::settle), as
    /// another endpoint may be asked at the same time. What is no content, an error or `null`, is nothing to check.
    ///
    /// # Errors
    /// If it cannot be right.
    pub async fn examine(&self, upstream: &Arc<str>, answer: &Answer) -> Result<Option<Verdict>, Failure> {
        let Inner { verifier, query, known, wait, .. } = &*self.0;
        let result = match answer {
            Answer::Result(result) if answer.is_content() => result,
            Answer::Result(_) | Answer::Error(_) => return Ok(None),
        };
        let checking = wait.watch(verifier.check(*query, result.clone(), known.clone()));
        // An answer that is handed on in any case need not wait for ever.
        let found = match verifier.config().on_mismatch {
            OnMismatch::Reject => checking.await,
            OnMismatch::Pass => {
                let mut checking = pin!(timeout(verifier.config().patience, checking));
                let checked = checking.as_mut().await;
                // Looked at before the check is dropped, and leaves the queue.
                let overdue = || if wait.is_waiting() { Overdue::QueueWait } else { Overdue::Slow };
                checked.unwrap_or_else(|_| Verdict::Overdue(overdue()))
            }
        };
        match &found {
            Verdict::Passed(_) => {}
            Verdict::Short => {
                debug!(endpoint = %upstream, asked = %query, "the upstream does not have all receipts of a block yet");
            }
            Verdict::Overdue(overdue) => {
                verifier.metrics().overdue(*overdue);
                let reason = overdue.as_str();
                if overdue.is_overload() && verifier.is_news(reason) {
                    warn!(endpoint = %upstream, asked = %query, reason, "too many proofs at a time; handing answers on without storing them");
                } else {
                    debug!(endpoint = %upstream, asked = %query, reason, "answer not checked in time; handing it on without storing it");
                }
            }
            Verdict::Unproved(failure, _) => {
                verifier.metrics().unprovable();
                if verifier.is_sure() && verifier.is_news(failure.as_str()) {
                    warn!(endpoint = %upstream, asked = %query, block = named(result), %failure, "an answer cannot be proved: it is not kept");
                } else {
                    debug!(endpoint = %upstream, asked = %query, block = named(result), %failure, "an answer cannot be proved: it is not kept");
                }
            }
            Verdict::Wrong(failure) => {
                verifier.metrics().failed(failure);
                // The one line that an operator needs: what was asked, what came, and what is wrong with it.
                let block = named(result);
                if verifier.is_news(failure.as_str()) {
                    warn!(endpoint = %upstream, asked = %query, block, reason = failure.as_str(), %failure, "an answer cannot be right: it is not kept");
                } else {
                    debug!(endpoint = %upstream, asked = %query, block, reason = failure.as_str(), %failure, "an answer cannot be right: it is not kept");
                }
                return Err(failure.clone());
            }
        }
        Ok(Some(match found {
            // What is kept remembers who said it.
            Verdict::Passed(content) => {
                let origin = Origin { endpoint: upstream.clone(), time: SystemTime::now() };
                Verdict::Passed(content.said_by(&origin))
            }
            found => found,
        }))
    }

    /// Of several attempts, this was found of the answer that counts.
    pub fn settle(&self, found: Option<Verdict>) {
        *self.0.verdict.lock() = found;
    }

    /// What was found of the answer that was accepted; `None` if there was nothing to check.
    pub fn verdict(&self) -> Option<Verdict> {
        self.0.verdict.lock().take()
    }
}

/// The block that an answer says it is, or is from; for a line of the log, and believed by nobody.
fn named(result: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Named {
        number: Option<String>,
        block_number: Option<String>,
        hash: Option<String>,
        block_hash: Option<String>,
    }
    let Named { number, block_number, hash, block_hash } = serde_json::from_slice(result).ok()?;
    // A transaction has a hash of its own, and so has a block: which it is, the other members tell.
    let (number, hash) = match (number, block_number) {
        (Some(number), None) => (number, hash?),
        (_, Some(number)) => (number, block_hash?),
        (None, None) => return None,
    };
    let number = u64::from_str_radix(number.strip_prefix("0x")?, 16).ok()?;
    // As a hash is written: what comes from a node does not go into a log as it is.
    let hash: BlockHash = hash.parse().ok()?;
    Some(format!("{number} {hash}"))
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Check").field(&self.0.query).finish()
    }
}
