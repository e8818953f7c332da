//! Parses a request body: one call, or a batch of calls.

use std::ops::Range;

use bytes::Bytes;
use bytestring::ByteString;

use super::{Call, Code, ErrorObject, JsonKind, MethodName, Params, RawId, Scanner, SyntaxError, unescape};

/// A request body that is JSON.
#[derive(Clone, Debug)]
pub enum Packet {
    /// A single entry, answered by a single object.
    Single(Entry),
    /// At least one entry, answered by an array.
    Batch(Vec<Entry>),
}

/// One entry of a packet. An invalid entry does not affect the others.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A valid call.
    Call(Call),
    /// An invalid entry, to be answered with an error.
    Refused {
        /// The entry's id, or `null` if it is missing or invalid.
        id: RawId,
        /// The reason.
        error: ErrorObject,
    },
    /// A notification with invalid params, which is not executed and gets no answer.
    Ignored,
}

/// Reason why a request body is refused as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// The body is not UTF-8, which is checked first.
    #[error("the body is not UTF-8: byte {at} is invalid")]
    NotUtf8 {
        /// Offset of the first invalid byte.
        at: usize,
    },
    /// The body is not JSON, or has trailing garbage.
    #[error("the body is not JSON: {0}")]
    NotJson(#[source] SyntaxError),
    /// The body is `[]`.
    #[error("the batch is empty; send at least one call")]
    EmptyBatch,
    /// The batch is too long; parsing stops at the first entry over the limit.
    #[error("the batch has more than {max} entries; send it in parts")]
    BatchTooLong {
        /// The limit in force.
        max: usize,
    },
}

/// Ranges of the members of a request object. If a member occurs more than once, the last one is used.
#[derive(Default)]
struct Members {
    version: Option<Range<usize>>,
    id: Option<Range<usize>>,
    method: Option<Range<usize>>,
    params: Option<Range<usize>>,
}

// === impl Packet ===

impl Packet {
    /// Parses `body` in one pass.
    ///
    /// # Errors
    /// If the body is not JSON, or is a batch with no entries or more than `max_batch`.
    pub fn read(body: &Bytes, max_batch: usize) -> Result<Self, PacketError> {
        let text = ByteString::try_from(body.clone())
            .map_err(|error| PacketError::NotUtf8 { at: error.valid_up_to() })?;
        let mut scanner = Scanner::new(&text);
        let packet = if scanner.peek() == Some(b'[') {
            scanner.enter();
            let mut entries = Vec::new();
            let mut first = true;
            while scanner.next_element(&mut first)? {
                if entries.len() == max_batch {
                    return Err(PacketError::BatchTooLong { max: max_batch });
                }
                entries.push(Entry::read(&mut scanner, &text)?);
            }
            Self::Batch(entries)
        } else {
            Self::Single(Entry::read(&mut scanner, &text)?)
        };
        scanner.end()?;
        match packet {
            Self::Batch(entries) if entries.is_empty() => Err(PacketError::EmptyBatch),
            packet => Ok(packet),
        }
    }
}

// === impl Entry ===

impl Entry {
    fn read(scanner: &mut Scanner<'_>, text: &ByteString) -> Result<Self, SyntaxError> {
        if scanner.peek() != Some(b'{') {
            scanner.value()?;
            return Ok(Self::invalid(RawId::NULL, "a request is a JSON object"));
        }
        let members = Members::read(scanner, text)?;

        let id = match members.id {
            None => None,
            Some(range) => match JsonKind::of(&text.as_bytes()[range.clone()]) {
                JsonKind::Number | JsonKind::String | JsonKind::Null => {
                    Some(RawId::new(text.as_bytes(), range))
                }
                JsonKind::Bool | JsonKind::Array | JsonKind::Object => {
                    return Ok(Self::invalid(RawId::NULL, "id must be a number, a string or null"));
                }
            },
        };
        let id_or_null = || id.clone().unwrap_or(RawId::NULL);

        match members.version {
            Some(range) if is_text(&text[range.clone()], "2.0") => {}
            _ => return Ok(Self::invalid(id_or_null(), r#"jsonrpc must be "2.0""#)),
        }
        let method = match members.method {
            Some(range) if JsonKind::of(&text.as_bytes()[range.clone()]) == JsonKind::String => {
                MethodName::new(match scanner.has_passed_escapes() {
                    true => unescape(&text[range]).into_owned().into(),
                    false => text.slice_ref(&text[range.start + 1..range.end - 1]),
                })
            }
            _ => return Ok(Self::invalid(id_or_null(), "method must be a string")),
        };
        let params = match members.params {
            None => Params::EMPTY,
            Some(range) => match JsonKind::of(&text.as_bytes()[range.clone()]) {
                JsonKind::Array => Params::new(text.slice_ref(&text[range])),
                // Old clients send `null` if there are no params, and nodes accept that.
                JsonKind::Null => Params::EMPTY,
                _ => {
                    let error = ErrorObject::new(
                        Code::InvalidParams,
                        "params must be an array of positional parameters",
                    );
                    return Ok(id.map_or(Self::Ignored, |id| Self::Refused { id, error }));
                }
            },
        };
        Ok(Self::Call(Call { id, method, params }))
    }

    fn invalid(id: RawId, message: &'static str) -> Self {
        Self::Refused { id, error: ErrorObject::new(Code::InvalidRequest, message) }
    }
}

// === impl Members ===

impl Members {
    fn read(scanner: &mut Scanner<'_>, text: &str) -> Result<Self, SyntaxError> {
        let mut members = Self::default();
        scanner.enter();
        let mut first = true;
        while scanner.another_member(&mut first)? {
            let member = match () {
                // The first four arms match the usual spelling. The last arm reads all other names and spellings.
                () if scanner.pass(br#""jsonrpc":"#) => Some(&mut members.version),
                () if scanner.pass(br#""id":"#) => Some(&mut members.id),
                () if scanner.pass(br#""method":"#) => Some(&mut members.method),
                () if scanner.pass(br#""params":"#) => Some(&mut members.params),
                () => match unescape(&text[scanner.name()?]).as_ref() {
                    "jsonrpc" => Some(&mut members.version),
                    "id" => Some(&mut members.id),
                    "method" => Some(&mut members.method),
                    "params" => Some(&mut members.params),
                    _ => None,
                },
            };
            let value = scanner.value()?;
            if let Some(member) = member {
                *member = Some(value);
            }
        }
        Ok(members)
    }
}

// === impl PacketError ===

impl PacketError {
    /// Returns the JSON-RPC error code.
    pub fn code(self) -> Code {
        match self {
            Self::NotUtf8 { .. } | Self::NotJson(_) => Code::Parse,
            Self::EmptyBatch | Self::BatchTooLong { .. } => Code::InvalidRequest,
        }
    }
}

impl From<SyntaxError> for PacketError {
    fn from(error: SyntaxError) -> Self {
        Self::NotJson(error)
    }
}

/// Returns whether this JSON value is the string `expected`, with or without escapes.
fn is_text(raw: &str, expected: &str) -> bool {
    JsonKind::of(raw.as_bytes()) == JsonKind::String
        && (raw[1..].starts_with(expected) && raw.len() == expected.len() + 2 || unescape(raw) == expected)
}

#[cfg(test)]
#[path = "packet/tests.rs"]
mod tests;
