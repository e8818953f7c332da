//! Reads and writes JSON-RPC 2.0 as bytes: the packets of clients, the replies to them, and the answers of nodes.
//!
//! A request body stays one [`Bytes`](bytes::Bytes). Params are slices of it, and ids are slices or
//! short copies. They are read in a single pass without recursion and without building values, so an
//! id is echoed byte for byte and deeply nested JSON uses no stack. This module does not depend on HTTP or Ethereum.

mod answer;
mod call;
mod error;
mod id;
mod packet;
mod reply;
mod rope;
mod scan;
mod string;

pub use self::{
    answer::{Answer, AnswerError, IncomingAnswer, IncomingId, read_answers},
    call::{Call, MethodName, Params},
    error::{Code, ErrorObject},
    id::RawId,
    packet::{Entry, Packet, PacketError},
    reply::ReplyWriter,
    rope::{Rope, RopeWriter},
    scan::{JsonKind, Scanner, SyntaxError},
    string::unescape,
};
