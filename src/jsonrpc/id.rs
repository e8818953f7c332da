//! The id of a call, as the client wrote it.

use bytes::Bytes;

/// A JSON number, string or `null`, kept as the bytes it came as.
///
/// `1.0`, `1e3`, 2^70 and `"\u0061"` are ids, and a client may compare them as text: so they are
/// never read, only echoed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawId(Bytes);

// === impl RawId ===

impl RawId {
    /// What an answer carries when the id could not be made out.
    pub const NULL: Self = Self(Bytes::from_static(b"null"));

    /// Takes the text of a scanned JSON number, string or `null`.
    pub(super) fn new(raw: Bytes) -> Self {
        Self(raw)
    }

    /// The id's JSON text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
