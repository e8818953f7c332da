//! A parsed call.

use crate::{
    eth::{LogsCall, MethodLabel, ParamError, Part, Query, RawCall, Tag},
    jsonrpc::{Call, MethodName, Params, RawId},
};

/// Methods whose answer identifies the chain.
const LOCAL: [&str; 2] = ["eth_chainId", "net_version"];

/// A call with its query, parsed once.
#[derive(Clone, Debug)]
pub struct ReadCall {
    /// `None` for a notification.
    pub id: Option<RawId>,
    /// Method name.
    pub method: MethodName,
    /// Parameters.
    pub params: Params,
    pub(crate) label: MethodLabel,
    /// The query that the call makes; `None` if the cache cannot answer this method.
    pub(crate) query: Option<Result<Query, ParamError>>,
    /// A call whose answer is composed of other content. Boxed to keep other calls small.
    pub(crate) composed: Option<Box<ComposedCall>>,
    /// Whether the call demands that the block it names by hash is canonical.
    pub(crate) requires_canonical: bool,
}

/// A call whose answer is composed of content that other calls ask for.
#[derive(Clone, Debug)]
pub(crate) enum ComposedCall {
    /// Encoded from a block, receipts or a transaction.
    Raw(RawCall),
    /// Cut out of the receipts of blocks.
    Logs(LogsCall),
}

// === impl ComposedCall ===

impl ComposedCall {
    fn read(method: &str, params: &Params) -> Option<Self> {
        let logs = || LogsCall::read(method, params).map(Self::Logs);
        RawCall::read(method, params).map(Self::Raw).or_else(logs)
    }

    /// Returns whether answers to this method are composed.
    pub(crate) fn is_method(method: &str) -> bool {
        RawCall::is_method(method) || LogsCall::is_method(method)
    }

    /// Returns the query for the content, or for the block of the first tag.
    pub(crate) fn query(&self) -> Option<Query> {
        let (raw, logs) = match self {
            Self::Raw(raw) => (Some(raw.query), None),
            Self::Logs(logs) => (None, Some(logs)),
        };
        let of_tag = |tag: Tag| Query::new(Part::BlockWithHashes, tag);
        raw.or_else(|| logs?.tags().next().map(of_tag))
    }
}

// === impl ReadCall ===

impl ReadCall {
    /// Returns whether the call asks for the identity of the chain, which does not change.
    pub(crate) fn is_local(&self) -> bool {
        LOCAL.contains(&self.method.as_str()) && self.params == Params::EMPTY
    }
}

impl From<Call> for ReadCall {
    fn from(Call { id, method, params }: Call) -> Self {
        let label = MethodLabel::of(method.as_str());
        let query = Query::read(method.as_str(), &params);
        let requires_canonical = matches!(&query, Some(Ok(query)) if query.requires_canonical(&params));
        let composed = if query.is_none() { ComposedCall::read(method.as_str(), &params) } else { None };
        Self { id, method, params, label, query, composed: composed.map(Box::new), requires_canonical }
    }
}
