//! Requests and replies on the wire: single or batched, with ids returned byte for byte.

use crate::devchain::chain::error::RpcError;
use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::{json, value::RawValue};

/// The body of an HTTP request.
#[derive(Debug)]
pub(in crate::devchain) enum RpcPacket<'a> {
    One(RpcEntry<'a>),
    Many(Vec<RpcEntry<'a>>),
}

/// One request.
#[derive(Clone, Debug)]
pub(in crate::devchain) enum RpcEntry<'a> {
    /// A call. A call without an id is a notification and gets no reply.
    Call { id: Option<&'a RawValue>, method: String, params: Option<&'a RawValue> },
    /// JSON that is not a request, and its id if it has one.
    Invalid { id: Option<&'a RawValue> },
}

/// One reply.
#[derive(Clone, Debug)]
pub(in crate::devchain) struct RpcReply {
    /// The id as it was sent, as JSON text.
    pub(in crate::devchain) id: String,
    pub(in crate::devchain) outcome: Result<Bytes, RpcError>,
}

#[derive(Deserialize)]
struct Wire<'a> {
    jsonrpc: Option<String>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

// === impl RpcPacket ===

impl<'a> RpcPacket<'a> {
    /// Parses a body. Fails only for malformed JSON and for an empty batch. Each invalid entry gets an error
    /// reply.
    pub(in crate::devchain) fn parse(body: &'a [u8]) -> Result<Self, RpcError> {
        let body = std::str::from_utf8(body).map_err(|_| RpcError::parse())?;
        let raw: &RawValue = serde_json::from_str(body).map_err(|_| RpcError::parse())?;
        if !raw.get().starts_with('[') {
            return Ok(Self::One(RpcEntry::parse(raw)));
        }
        let entries: Vec<&RawValue> = serde_json::from_str(raw.get()).map_err(|_| RpcError::parse())?;
        if entries.is_empty() {
            return Err(RpcError::invalid_request("empty batch"));
        }
        Ok(Self::Many(entries.into_iter().map(RpcEntry::parse).collect()))
    }

    pub(in crate::devchain) fn entries(&self) -> &[RpcEntry<'a>] {
        match self {
            Self::One(entry) => std::slice::from_ref(entry),
            Self::Many(entries) => entries,
        }
    }
}

// === impl RpcEntry ===

impl<'a> RpcEntry<'a> {
    fn parse(raw: &'a RawValue) -> Self {
        let Ok(wire) = serde_json::from_str::<Wire<'a>>(raw.get()) else {
            return Self::Invalid { id: None };
        };
        let id_is_scalar = wire.id.is_none_or(|id| !id.get().starts_with(['{', '[']));
        match wire.method {
            Some(method) if wire.jsonrpc.as_deref() == Some("2.0") && id_is_scalar => {
                Self::Call { id: wire.id, method, params: wire.params }
            }
            _ => Self::Invalid { id: wire.id.filter(|_| id_is_scalar) },
        }
    }
}

// === impl RpcReply ===

impl RpcReply {
    pub(in crate::devchain) fn new(id: Option<&RawValue>, outcome: Result<Bytes, RpcError>) -> Self {
        Self { id: id.map_or("null", RawValue::get).to_owned(), outcome }
    }

    /// Renders the reply as JSON.
    pub(in crate::devchain) fn to_bytes(&self) -> Bytes {
        let (member, value) = match &self.outcome {
            Ok(result) => ("result", result.clone()),
            Err(error) => {
                let object = json!({ "code": error.code, "message": error.message });
                ("error", Bytes::from(object.to_string()))
            }
        };
        let head = format!(r#"{{"jsonrpc":"2.0","id":{},"{member}":"#, self.id);
        [head.as_bytes(), &value, b"}"].concat().into()
    }
}

/// Renders several replies as one body.
pub(in crate::devchain) fn batch(replies: &[RpcReply]) -> Bytes {
    let mut body = Vec::from(b"[");
    for (n, reply) in replies.iter().enumerate() {
        if n > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&reply.to_bytes());
    }
    body.push(b']');
    body.into()
}

/// Parses an id, and accepts `null` as an id, because only a request without the member `id` is a notification.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}
