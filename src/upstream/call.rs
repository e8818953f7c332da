//! A call to an upstream, and its requirements on the endpoint and the answer.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::{EndpointId, UpstreamError};
use crate::{
    budget::ByteLease,
    context::CallContext,
    eth::{BlockNumber, Query, is_write},
    jsonrpc::{Answer, MethodName, Params},
    trace::Origin,
    verify::{Check, Verdict},
};

/// One or more calls that are sent in one request.
pub type Calls = Vec<Call>;

/// An answer or an error of the transport for each call, in the order of the calls.
pub type Answers = Vec<Result<Answer, UpstreamError>>;

/// An accepted answer or an error for each call, in the order of the calls.
pub type AcceptedAnswers = Vec<Result<AcceptedAnswer, UpstreamError>>;

/// A call to an upstream, with the conditions for accepting an answer.
#[derive(Clone, Debug)]
pub struct Call {
    /// The method name.
    pub method: MethodName,
    /// The parameters. [`Call::of`] writes them in canonical form; other calls carry them as given.
    pub params: Params,
    /// Verifies the answer; without a check, the call accepts any answer.
    pub check: Option<Check>,
    /// Requirements on the endpoint that answers.
    pub requirements: Requirements,
    /// Counts the answer's bytes in the memory budget until the answer has been checked.
    pub(super) answer_lease: Option<AnswerLease>,
    /// The trace that the call belongs to.
    pub(super) origin: Origin,
}

/// Requirements of a call on the endpoint that answers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// The endpoint should have this block: neither be behind it nor have pruned it.
    pub block: Option<BlockNumber>,
    /// The endpoint should not be behind this head, because the answer depends on the endpoint's newest block.
    pub head: Option<BlockNumber>,
    /// The primary should answer. Another endpoint answers only if the primary is unavailable, fails or lacks the
    /// block. If the primary fails, another endpoint replaces it as the primary.
    pub primary: bool,
    /// A call that bypasses the cache, such as `eth_call` or a write. As with `primary`, the primary should answer, but
    /// the call leaves the last token of an endpoint's rate limit to calls with `primary`, and its failure alone does
    /// not replace the primary.
    pub forwarded: bool,
    /// A filter call: only the primary answers it, because each node has filter ids of its own.
    pub filter: bool,
    /// A call of the canonical view itself. It takes no slot of `max_in_flight`, because all clients wait for it.
    pub for_view: bool,
    /// The answer is a head, the newest block that the endpoint has.
    pub is_head: bool,
    /// After a `null`, the pool asks one other endpoint, because the first may not have the data yet.
    pub retry_null: bool,
    /// The last call on its HTTP/1.1 connection, so that the next call may reach another replica behind the URL.
    pub closes: bool,
}

/// Counts an answer's bytes in the memory budget until the last clone is dropped.
#[derive(Clone, Debug, Default)]
pub(super) struct AnswerLease(Arc<OnceLock<ByteLease>>);

/// An answer that passed its check, or whose call has none.
#[derive(Clone, Debug)]
pub struct AcceptedAnswer {
    /// The answer.
    pub answer: Answer,
    /// The verdict of the check; `None` if nothing was verified.
    pub verdict: Option<Verdict>,
    /// The endpoint that gave the answer; `None` if the answer is an error object from a failed attempt.
    pub by: Option<EndpointId>,
}

// === impl Call ===

impl Call {
    /// Creates a call that accepts any answer.
    pub fn new(method: impl Into<MethodName>, params: Params) -> Self {
        Self {
            method: method.into(),
            params,
            check: None,
            requirements: Requirements::default(),
            answer_lease: None,
            origin: Origin::default(),
        }
    }

    /// Creates the call that asks a node for `query`.
    pub fn of(query: Query) -> Self {
        Self::new(query.method(), query.params())
    }

    /// Requires the answer to pass `check`.
    pub fn with_check(self, check: Check) -> Self {
        Self { check: Some(check), ..self }
    }

    /// Sets the requirements on the endpoint.
    pub fn with_requirements(self, requirements: Requirements) -> Self {
        Self { requirements, ..self }
    }

    /// Attaches the trace of the running future.
    pub(super) fn with_current_context(self) -> Self {
        Self { origin: CallContext::origin(), ..self }
    }

    /// Detaches the call from its trace.
    pub(super) fn without_context(self) -> Self {
        Self { origin: Origin::default(), ..self }
    }

    /// Counts the bytes of the answer in `answer_lease`.
    pub(super) fn set_answer_lease(&mut self, answer_lease: &AnswerLease) {
        self.answer_lease = Some(answer_lease.clone());
    }

    /// Returns whether the answer has a known shape and is at most as large as a block.
    pub(super) fn has_known_shape(&self) -> bool {
        const KNOWN: [&str; 5] =
            ["eth_getBlock", "eth_getTransaction", "eth_getUncle", "eth_blockNumber", "eth_chainId"];
        KNOWN.iter().any(|known| self.method.as_str().starts_with(known))
    }

    /// Returns whether the call is a common read, which every node answers quickly and every provider offers to all
    /// customers.
    pub(super) fn is_everyday(&self) -> bool {
        const EVERYDAY: [&str; 8] = [
            "eth_getBalance",
            "eth_getCode",
            "eth_getStorageAt",
            "eth_gasPrice",
            "eth_maxPriorityFeePerGas",
            "eth_feeHistory",
            "net_version",
            "web3_clientVersion",
        ];
        self.has_known_shape() || EVERYDAY.contains(&self.method.as_str())
    }

    /// Returns whether the call runs code of the client's choice, which can influence the error.
    pub(super) fn runs_client_code(&self) -> bool {
        const EXECUTING: [&str; 6] =
            ["eth_call", "eth_estimateGas", "eth_createAccessList", "eth_simulate", "debug_", "trace_"];
        EXECUTING.iter().any(|runs_client_code| self.method.as_str().starts_with(runs_client_code))
    }

    /// Returns whether the size of the answer depends on the params, so that a node may refuse the call because its
    /// answer would be too large.
    pub(super) fn has_unbounded_answer(&self) -> bool {
        let method = self.method.as_str();
        ["Logs", "ilter", "debug_", "trace_", "Receipts"].iter().any(|wide| method.contains(wide))
    }

    /// Returns whether the call names a block by a number above `head`. Ignores tags and hashes.
    pub(super) fn names_block_above(&self, head: BlockNumber) -> bool {
        let number = |text: &Value| {
            let digits = text.as_str()?.strip_prefix("0x")?;
            // Longer values are addresses, hashes or storage keys.
            (digits.len() <= 16).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
        };
        let params: Vec<Value> = serde_json::from_slice(self.params.as_bytes()).unwrap_or_default();
        let members = params.iter().flat_map(|param| {
            ["blockNumber", "fromBlock", "toBlock"].iter().filter_map(|name| param.get(name))
        });
        // Skips the first parameter, because it is the subject of the call: an address, a call object, a count.
        params.iter().skip(1).chain(members).filter_map(number).any(|number| number > head.0)
    }

    /// Returns whether the call may be sent twice, because it changes no filter, no state that reads see, and nothing
    /// in the node itself.
    pub(super) fn is_repeatable(&self) -> bool {
        // Prefixes of methods that may change the node itself or the blocks that it mines.
        const NODE_WRITES: [&str; 4] = ["personal_", "admin_", "engine_", "eth_submit"];
        let method = self.method.as_str();
        // A second `eth_newFilter` would leak a filter, and a second poll would miss the changes that the first one
        // returned.
        !is_write(method) && !self.is_filter() && !NODE_WRITES.iter().any(|prefix| method.starts_with(prefix))
    }

    /// Returns whether the call creates, polls or removes a filter, which exists only on the node that created it.
    pub(super) fn is_filter(&self) -> bool {
        const FILTERS: [&str; 6] = [
            "eth_newFilter",
            "eth_newBlockFilter",
            "eth_newPendingTransactionFilter",
            "eth_getFilterChanges",
            "eth_getFilterLogs",
            "eth_uninstallFilter",
        ];
        FILTERS.contains(&self.method.as_str())
    }
}

// === impl AcceptedAnswer ===

impl AcceptedAnswer {
    /// An answer without a verdict, from an endpoint that is not known.
    pub fn unverified(answer: Answer) -> Self {
        Self { answer, verdict: None, by: None }
    }
}

// === impl AnswerLease ===

impl AnswerLease {
    pub(super) fn hold(&self, lease: ByteLease) {
        // Called once, because an attempt has one response.
        let _ = self.0.set(lease);
    }
}
