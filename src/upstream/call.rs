//! What is asked of an upstream.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::{Audience, EndpointId, UpstreamError};
use crate::{
    budget::ByteLease,
    context::CallContext,
    eth::{BlockNumber, Query, is_write},
    jsonrpc::{Answer, MethodName, Params},
    trace::Origin,
    verify::Check,
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
    pub requirements: Requirements,
    /// Where it is written who answered, for whoever wants to know.
    pub(super) answered_by: Option<AnsweredBy>,
    /// Where the bytes that its answer takes are counted, until that was checked.
    pub(super) answer_lease: Option<AnswerLease>,
    /// The trace that it is made for.
    pub(super) origin: Origin,
    /// Those who wait for its answer; `None` where it ends with whoever waits.
    pub(super) audience: Option<Audience>,
}

/// What a call needs of the endpoint that answers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// It should have this block: not be behind it, not have forgotten it.
    pub block: Option<BlockNumber>,
    /// It should not be behind this head: what it says is of the newest block that it has.
    pub head: Option<BlockNumber>,
    /// It must be the one that the view of the chain follows, or whoever takes its place.
    pub primary: bool,
    /// A forwarded call: the primary answers it, or another endpoint if the primary fails. It leaves the last call of the
    /// primary's rate to the view, and one failure does not make another endpoint the primary.
    pub forwarded: bool,
    /// A filter call: only the primary answers it, since each node has filter ids of its own.
    pub filter: bool,
    /// A call of the canonical view itself, for which all clients wait: it takes no slot of `max_in_flight`.
    pub for_view: bool,
    /// The answer is a head: what it shows is all that the endpoint has.
    pub is_head: bool,
    /// A `null` may only mean that this endpoint has not got it yet: one other is asked, once.
    pub retry_null: bool,
}

/// The bytes of an answer, counted for as long as somebody has this. It travels with a call, like its check.
#[derive(Clone, Debug, Default)]
pub(super) struct AnswerLease(Arc<OnceLock<ByteLease>>);

/// Who answered a call. It travels with it, like its check.
#[derive(Clone, Debug, Default)]
pub struct AnsweredBy(Arc<OnceLock<EndpointId>>);

// === impl Call ===

impl Call {
    /// A call whose every answer counts.
    pub fn new(method: impl Into<MethodName>, params: Params) -> Self {
        Self {
            method: method.into(),
            params,
            check: None,
            requirements: Requirements::default(),
            answered_by: None,
            answer_lease: None,
            origin: Origin::default(),
            audience: None,
        }
    }

    /// A call that asks a node for this.
    pub fn of(query: Query) -> Self {
        Self::new(query.method(), query.params())
    }

    /// The same call, whose answer must pass this.
    pub fn with_check(self, check: Check) -> Self {
        Self { check: Some(check), ..self }
    }

    /// The same call, for an endpoint that has this.
    pub fn with_requirements(self, requirements: Requirements) -> Self {
        Self { requirements, ..self }
    }

    /// The same call; who answers it will be told here.
    pub fn with_answered_by(self, by: &AnsweredBy) -> Self {
        Self { answered_by: Some(by.clone()), ..self }
    }

    /// The same call, for the trace and the audience of the current work.
    pub(super) fn with_current_context(self) -> Self {
        Self { origin: CallContext::origin(), audience: Audience::current(), ..self }
    }

    /// The same call, for no trace, and sent whether or not anybody waits.
    pub(super) fn without_context(self) -> Self {
        Self { origin: Origin::default(), audience: None, ..self }
    }

    /// Returns whether anybody waits for its answer.
    pub(super) fn is_awaited(&self) -> bool {
        self.audience.as_ref().is_none_or(Audience::is_there)
    }

    /// The bytes of its answer are counted here.
    pub(super) fn set_answer_lease(&mut self, answer_lease: &AnswerLease) {
        self.answer_lease = Some(answer_lease.clone());
    }

    /// Is its answer of a known shape, and of no more than a block's size?
    pub(super) fn has_known_shape(&self) -> bool {
        const KNOWN: [&str; 5] =
            ["eth_getBlock", "eth_getTransaction", "eth_getUncle", "eth_blockNumber", "eth_chainId"];
        KNOWN.iter().any(|known| self.method.as_str().starts_with(known))
    }

    /// Is it a read that every node has an answer to, whoever asks?
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

    /// Does it run code of the client's choice, which then has a say in the error?
    pub(super) fn runs_client_code(&self) -> bool {
        const EXECUTING: [&str; 6] =
            ["eth_call", "eth_estimateGas", "eth_createAccessList", "eth_simulate", "debug_", "trace_"];
        EXECUTING.iter().any(|runs_client_code| self.method.as_str().starts_with(runs_client_code))
    }

    /// May its answer be as large as the client likes?
    pub(super) fn has_unbounded_answer(&self) -> bool {
        let method = self.method.as_str();
        ["Logs", "ilter", "debug_", "trace_", "Receipts"].iter().any(|wide| method.contains(wide))
    }

    /// Does it name a block by a number above this one? By a tag or a hash it does not.
    pub(super) fn names_block_above(&self, head: BlockNumber) -> bool {
        let number = |text: &Value| {
            let digits = text.as_str()?.strip_prefix("0x")?;
            // What is longer is an address, a hash, a key of a storage.
            (digits.len() <= 16).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
        };
        let params: Vec<Value> = serde_json::from_slice(self.params.as_bytes()).unwrap_or_default();
        let members = params.iter().flat_map(|param| {
            ["blockNumber", "fromBlock", "toBlock"].iter().filter_map(|name| param.get(name))
        });
        // The first is what is asked about: an address, a call, a count.
        params.iter().skip(1).chain(members).filter_map(number).any(|number| number > head.0)
    }

    /// Returns whether it may be sent twice: not if it can change what reads see, or a filter.
    pub(super) fn is_repeatable(&self) -> bool {
        // Beside what reads see, these may change what a node is or mines.
        const NODE_WRITES: [&str; 4] = ["personal_", "admin_", "engine_", "eth_submit"];
        let method = self.method.as_str();
        // A second `eth_newFilter` leaves a filter behind, and a poll removes from the filter what it returns.
        !is_write(method) && !self.is_filter() && !NODE_WRITES.iter().any(|prefix| method.starts_with(prefix))
    }

    /// Returns whether it creates, polls or removes a filter, which only the node that created it has.
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

// === impl AnswerLease ===

impl AnswerLease {
    pub(super) fn hold(&self, lease: ByteLease) {
        // An attempt has one answer.
        let _ = self.0.set(lease);
    }
}

// === impl AnsweredBy ===

impl AnsweredBy {
    /// Who it was; `None` as long as nobody has.
    pub fn get(&self) -> Option<EndpointId> {
        self.0.get().copied()
    }

    pub(super) fn set(&self, by: EndpointId) {
        // A call has one answer that counts.
        let _ = self.0.set(by);
    }
}
