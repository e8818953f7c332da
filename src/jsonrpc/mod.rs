//! JSON-RPC 2.0 as bytes: what a client sent, and what goes back to it.
//!
//! A request body stays one [`Bytes`](bytes::Bytes). Ids and params are slices of it, read in a
//! single pass without recursion and without building values, so an id comes back byte for byte
//! and the depth of hostile JSON costs no stack. Knows nothing of HTTP or of Ethereum.

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
