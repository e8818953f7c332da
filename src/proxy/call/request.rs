//! A call on its way through the layers.

use std::sync::Arc;

use super::{caller::Caller, packet::PacketContext, read_call::ReadCall};

/// A call, represented by its packet and its index there, so that layers pass it on without a copy.
#[derive(Clone, Debug)]
pub struct Request {
    packet: Arc<PacketContext>,
    index: usize,
}

// === impl Request ===

impl Request {
    /// Returns a request for a call that is not part of a batch.
    pub fn alone(caller: Caller, call: ReadCall) -> Self {
        Self { packet: Arc::new(PacketContext::alone(caller, call)), index: 0 }
    }

    /// Returns the call at this position of a packet.
    pub fn new(packet: Arc<PacketContext>, index: usize) -> Self {
        Self { packet, index }
    }

    /// Returns the call.
    pub fn call(&self) -> &ReadCall {
        &self.packet.calls()[self.index]
    }

    /// Returns the packet, with the caller and the other calls.
    pub fn packet(&self) -> &Arc<PacketContext> {
        &self.packet
    }
}
