//! A call on its way through the layers.

use std::sync::Arc;

use super::{caller::Caller, packet::PacketContext, read_call::ReadCall};
use crate::eth::{ParamError, Query};

/// A call, represented by its packet and its index there, so that layers pass it on without a copy.
#[derive(Clone, Debug)]
pub struct Request {
    packet: Arc<PacketContext>,
    index: usize,
    /// Whether to answer a call for an encoded answer with the content to encode.
    unencoded: bool,
}

// === impl Request ===

impl Request {
    /// Returns a request for a call that is not part of a batch.
    pub fn alone(caller: Caller, call: ReadCall) -> Self {
        Self::new(Arc::new(PacketContext::alone(caller, call)), 0)
    }

    /// Returns the call at this position of a packet.
    pub fn new(packet: Arc<PacketContext>, index: usize) -> Self {
        Self { packet, index, unencoded: false }
    }

    /// Returns the call.
    pub fn call(&self) -> &ReadCall {
        &self.packet.calls()[self.index]
    }

    /// Returns the request for the content from which the answer to this call is encoded.
    pub(crate) fn unencoded(&self) -> Self {
        Self { unencoded: true, ..self.clone() }
    }

    /// Returns the query that the cache can answer; `None` if the upstream must answer the call.
    pub(crate) fn query(&self) -> Option<Result<Query, &ParamError>> {
        let call = self.call();
        match &call.raw {
            Some(raw) if self.unencoded => Some(Ok(raw.query)),
            _ => call.query.as_ref().map(|query| query.as_ref().copied()),
        }
    }

    /// Returns the packet, with the caller and the other calls.
    pub fn packet(&self) -> &Arc<PacketContext> {
        &self.packet
    }
}
