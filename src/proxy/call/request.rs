//! A call on its way through the layers.

use std::sync::Arc;

use super::{caller::Caller, packet::PacketContext, read_call::ReadCall};

/// A call, where it stands in its packet: it goes through all layers, and is not carried along.
#[derive(Clone, Debug)]
pub struct Request {
    packet: Arc<PacketContext>,
    index: usize,
}

// === impl Request ===

impl Request {
    /// A call that came alone.
    pub fn alone(caller: Caller, call: ReadCall) -> Self {
        Self { packet: Arc::new(PacketContext::alone(caller, call)), index: 0 }
    }

    /// Returns the call at this position of a packet.
    pub fn new(packet: Arc<PacketContext>, index: usize) -> Self {
        Self { packet, index }
    }

    /// What is asked.
    pub fn call(&self) -> &ReadCall {
        &self.packet.calls()[self.index]
    }

    /// Who asks, and what else.
    pub fn packet(&self) -> &Arc<PacketContext> {
        &self.packet
    }
}
