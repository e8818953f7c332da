//! The id of a call, as the client wrote it.

use std::{fmt, ops::Range};

use bytes::Bytes;

/// Length of the longest id that is stored inline, in the space that a `Bytes` takes anyway. Clients rarely send longer
/// ids.
const SHORT: usize = 30;

/// A JSON number, string or `null`, as the bytes that the client sent.
///
/// `1.0`, `1e3`, 2^70 and `"\u0061"` are ids, and a client may compare them as text, so ids are never parsed, only echoed.
#[derive(Clone)]
pub struct RawId(Text);

#[derive(Clone)]
enum Text {
    /// A copy of the id. A slice of the request body would cost an update of its reference count.
    Short {
        bytes: [u8; SHORT],
        len: u8,
    },
    Long(Bytes),
}

// === impl RawId ===

impl RawId {
    /// The id of the reply to a request whose id could not be read.
    pub const NULL: Self = {
        let mut bytes = [0; SHORT];
        (bytes[0], bytes[1], bytes[2], bytes[3]) = (b'n', b'u', b'l', b'l');
        Self(Text::Short { bytes, len: 4 })
    };

    /// Creates an id from a scanned JSON number, string or `null`.
    pub(super) fn new(text: &Bytes, range: Range<usize>) -> Self {
        let raw = &text[range.clone()];
        if raw.len() > SHORT {
            return Self(Text::Long(text.slice(range)));
        }
        let mut bytes = [0; SHORT];
        bytes[..raw.len()].copy_from_slice(raw);
        Self(Text::Short { bytes, len: raw.len() as u8 })
    }

    /// Returns the id's JSON text.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Short { bytes, len } => &bytes[..usize::from(*len)],
            Text::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for RawId {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for RawId {}

impl fmt::Debug for RawId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawId({})", String::from_utf8_lossy(self.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_of_any_length_is_unchanged() {
        for len in [1, SHORT - 1, SHORT, SHORT + 1, 1000] {
            let text = Bytes::from(format!("x{}x", "7".repeat(len)));
            let id = RawId::new(&text, 1..len + 1);
            assert_eq!(id.as_bytes(), &text[1..=len]);
            assert_eq!(id, id.clone());
        }
        assert_eq!(RawId::NULL.as_bytes(), b"null");
    }
}
