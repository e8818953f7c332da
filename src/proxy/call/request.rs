//! A call on its way through the layers.

use std::sync::Arc;

use super::{caller::Caller, packet::PacketContext, read_call::ReadCall};
use crate::{
    eth::{ParamError, Query},
    jsonrpc::{Call, Params},
};

/// A call, represented by its packet and its index there, so that layers pass it on without a copy.
#[derive(Clone, Debug)]
pub struct Request {
    packet: Arc<PacketContext>,
    index: usize,
    /// The query to answer instead of the call, whose answer is composed of the answers to such queries.
    instead: Option<Box<Query>>,
    /// Whether the answer only shows which block a tag means.
    resolves: bool,
}

// === impl Request ===

impl Request {
    /// Returns a request for a call that is not part of a batch.
    pub fn alone(caller: Caller, call: ReadCall) -> Self {
        Self::new(Arc::new(PacketContext::alone(caller, call)), 0)
    }

    /// Returns the call at this position of a packet.
    pub fn new(packet: Arc<PacketContext>, index: usize) -> Self {
        Self { packet, index, instead: None, resolves: false }
    }

    /// Returns the call.
    pub fn call(&self) -> &ReadCall {
        &self.packet.calls()[self.index]
    }

    /// Returns the request for content of which the answer to this call is composed.
    pub(crate) fn for_content(&self, query: Query) -> Self {
        Self { instead: Some(Box::new(query)), ..self.clone() }
    }

    /// Returns a request whose answer only shows which block the tag of `query` means. No call is answered from that block
    /// yet.
    pub(crate) fn to_resolve(&self, query: Query) -> Self {
        Self { resolves: true, ..self.for_content(query) }
    }

    /// Returns whether the answer only shows which block a tag means.
    pub(crate) fn resolves(&self) -> bool {
        self.resolves
    }

    /// Returns the call as one that arrives now, with tags that mean the blocks of now. In a batch, tags keep their
    /// meaning.
    pub(crate) fn anew(&self) -> Self {
        match self.packet.calls() {
            [call] => Self::alone(self.without_gzip(), call.clone()),
            _ => self.clone(),
        }
    }

    /// Returns a request of Holdfast's own on behalf of the same caller.
    pub(crate) fn on_behalf(&self, (method, params): (&'static str, Params)) -> Self {
        Self::alone(self.without_gzip(), ReadCall::from(Call { id: None, method: method.into(), params }))
    }

    /// Returns the caller as one that accepts no gzip, because the client does not get the content itself.
    fn without_gzip(&self) -> Caller {
        Caller { gzip: false, ..self.packet.caller().clone() }
    }

    /// Returns the query that the cache can answer; `None` if the upstream must answer the call.
    pub(crate) fn query(&self) -> Option<Result<Query, &ParamError>> {
        match &self.instead {
            Some(query) => Some(Ok(**query)),
            None => self.call().query.as_ref().map(|query| query.as_ref().copied()),
        }
    }

    /// Returns the packet, with the caller and the other calls.
    pub fn packet(&self) -> &Arc<PacketContext> {
        &self.packet
    }
}
