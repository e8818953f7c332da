//! Reads the bytes of a request, and runs the calls of its packet.

mod batch;
pub(in crate::http) mod in_flight;
pub(in crate::http) mod packet;
mod read;
pub(in crate::http) mod rpc;
