//! A parsed call.

use crate::{
    eth::{MethodLabel, ParamError, Query, RawCall},
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
    /// The call for an encoded answer. Boxed to keep other calls small.
    pub(crate) raw: Option<Box<RawCall>>,
    /// Whether the call demands that the block it names by hash is canonical.
    pub(crate) requires_canonical: bool,
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
        let raw = if query.is_none() { RawCall::read(method.as_str(), &params) } else { None };
        Self { id, method, params, label, query, raw: raw.map(Box::new), requires_canonical }
    }
}
