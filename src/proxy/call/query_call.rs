//! A call together with its query.

use crate::{
    eth::{BlockHash, Query},
    proxy::call::{read_call::ReadCall, request::Request},
    upstream::Call,
};

/// A call that the cache can answer.
#[derive(Clone, Debug)]
pub(crate) struct QueryCall {
    pub(crate) query: Query,
    pub(crate) request: Request,
}

// === impl QueryCall ===

impl QueryCall {
    /// Returns the call with its tag replaced by this block.
    pub(crate) fn of_block(&self, hash: BlockHash) -> Self {
        Self { query: self.query.pinned(hash), request: self.request.clone() }
    }

    /// Returns the upstream call. For a method outside [`Query::METHODS`] with an unchanged query, this is the client's
    /// own call, so that the node judges its parameters.
    pub(crate) fn call(&self) -> Call {
        let ReadCall { method, params, query, .. } = self.request.call();
        let is_pinned = *query != Some(Ok(self.query));
        if is_pinned || Query::METHODS.contains(&self.query.method()) {
            return Call::of(self.query);
        }
        Call::new(method.clone(), params.clone())
    }

    /// Returns whether the answer to `fetch` also answers the call as a whole, so that nothing must be cut out of it.
    pub(crate) fn takes(&self, fetch: Query) -> bool {
        self.query.part == fetch.part
    }
}
