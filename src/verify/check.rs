//! The check that is passed along with a call to an upstream.

use std::{fmt, sync::Arc, time::SystemTime};

use tracing::{debug, warn};

use super::{Failure, Known, Origin, Verdict, Verifier};
use crate::{
    eth::{BlockHash, LogsCall, Query},
    jsonrpc::Answer,
};

/// Verifies the answer to one call. It is passed along with the call, so that the code that chooses endpoints can ask
/// another endpoint if the answer is wrong.
#[derive(Clone)]
pub struct Check(Arc<Inner>);

/// The question that the answer must fit.
#[derive(Clone, Debug)]
enum Question {
    Content(Query),
    /// Logs of a block or a range. They are checked, but not cached.
    Logs(Arc<LogsCall>),
}

struct Inner {
    verifier: Verifier,
    question: Question,
    known: Arc<dyn Known>,
}

// === impl Check ===

impl Check {
    /// Returns a check that compares the answer to this query with known data.
    pub fn new(verifier: Verifier, query: Query, known: Arc<dyn Known>) -> Self {
        Self::of(verifier, Question::Content(query), known)
    }

    /// Returns a check that compares logs with their filter and with known data.
    pub fn of_logs(verifier: Verifier, call: LogsCall, known: Arc<dyn Known>) -> Self {
        Self::of(verifier, Question::Logs(Arc::new(call)), known)
    }

    fn of(verifier: Verifier, question: Question, known: Arc<dyn Known>) -> Self {
        Self(Arc::new(Inner { verifier, question, known }))
    }

    /// Verifies an answer of this endpoint, and returns the verdict; `None` for an error or `null`, which has no
    /// content to verify.
    ///
    /// # Errors
    /// If the answer is wrong.
    pub async fn examine(&self, upstream: &Arc<str>, answer: &Answer) -> Result<Option<Verdict>, Failure> {
        let Inner { verifier, question, known, .. } = &*self.0;
        // `null` is an answer to a question for content, but not for logs.
        let is_logs = matches!(question, Question::Logs(_));
        let result = match answer {
            Answer::Result(result) if answer.is_content() || is_logs => result,
            Answer::Result(_) | Answer::Error(_) => return Ok(None),
        };
        let found = match question {
            Question::Content(query) => verifier.check(*query, result.clone(), known.clone()).await,
            Question::Logs(call) => verifier.check_logs(call.clone(), result.clone(), known.clone()).await,
        };
        match &found {
            Verdict::Passed(_) | Verdict::Checked => {}
            Verdict::Short => {
                debug!(endpoint = %upstream, asked = %question, "upstream does not have all receipts of the block yet");
            }
            Verdict::Overdue(overdue) => {
                verifier.metrics().overdue(*overdue);
                let reason = overdue.as_str();
                if overdue.is_overload() && verifier.is_news(reason) {
                    warn!(endpoint = %upstream, asked = %question, reason, "proof threads are overloaded; not caching unverified answers");
                } else {
                    debug!(endpoint = %upstream, asked = %question, reason, "answer was not verified in time; not caching it");
                }
            }
            // Nothing is wrong: usually, the answer is an empty list of receipts, and its block has not arrived yet.
            Verdict::Unproved(failure @ Failure::Unfounded, _) => {
                debug!(endpoint = %upstream, asked = %question, %failure, "upstream's answer cannot be proved; not caching it");
            }
            Verdict::Unproved(failure, _) => {
                verifier.metrics().unprovable();
                if verifier.is_sure() && verifier.is_news(failure.as_str()) {
                    warn!(endpoint = %upstream, asked = %question, block = named(result), %failure, "upstream's answer cannot be proved; not caching it");
                } else {
                    debug!(endpoint = %upstream, asked = %question, block = named(result), %failure, "upstream's answer cannot be proved; not caching it");
                }
            }
            Verdict::Wrong(failure) => {
                verifier.metrics().failed(failure);
                // This one log line gives an operator the query, the answer's block and the failure.
                let block = named(result);
                if verifier.is_news(failure.as_str()) {
                    warn!(endpoint = %upstream, asked = %question, block, reason = failure.as_str(), %failure, "upstream returned invalid data; not caching it");
                } else {
                    debug!(endpoint = %upstream, asked = %question, block, reason = failure.as_str(), %failure, "upstream returned invalid data; not caching it");
                }
                return Err(failure.clone());
            }
        }
        Ok(Some(match found {
            // Cached content records its origin.
            Verdict::Passed(content) => {
                let origin = Origin { endpoint: upstream.clone(), time: SystemTime::now() };
                Verdict::Passed(content.said_by(&origin))
            }
            found => found,
        }))
    }
}

/// Returns the block that an answer claims to be or to belong to. The claim is unverified, so use it in log lines only.
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
    // Blocks and transactions both have a `hash`, but only a block has a `number`.
    let (number, hash) = match (number, block_number) {
        (Some(number), None) => (number, hash?),
        (_, Some(number)) => (number, block_hash?),
        (None, None) => return None,
    };
    let number = u64::from_str_radix(number.strip_prefix("0x")?, 16).ok()?;
    // The hash is parsed and formatted again, because raw text from a node must not reach the log.
    let hash: BlockHash = hash.parse().ok()?;
    Some(format!("{number} {hash}"))
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content(query) => query.fmt(f),
            Self::Logs(call) => call.fmt(f),
        }
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Check").field(&self.0.question).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        eth::{At, BlockNumber, LogBlocks, LogFilter, Part},
        verify::{Config, Metrics, verdict::KnownReceipts},
    };

    #[tokio::test]
    async fn null_answers_a_question_for_content_but_not_for_logs() {
        let verifier = || Verifier::new(Config::default(), Metrics::default());
        let (node, null) = (Arc::from("node"), Answer::Result("null".into()));
        let at = At::Number(BlockNumber(5));
        let known = || Arc::new(KnownReceipts::default());
        let content = Check::new(verifier(), Query::new(Part::Block, at), known());
        assert!(content.examine(&node, &null).await.is_ok_and(|verdict| verdict.is_none()));
        let call = LogsCall { blocks: LogBlocks::Range(at, at), filter: LogFilter::default() };
        assert!(Check::of_logs(verifier(), call, known()).examine(&node, &null).await.is_err());
    }
}
