//! One call of a client: method, params, id.

use bytes::Bytes;
use bytestring::ByteString;

use super::{RawId, Scanner};

/// A well-formed request object.
#[derive(Clone, Debug)]
pub struct Call {
    /// `None` for a notification, which gets no answer.
    pub id: Option<RawId>,
    /// The method's name, unescaped.
    pub method: MethodName,
    /// The positional parameters.
    pub params: Params,
}

/// A method's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodName(ByteString);

/// The text of a JSON array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params(ByteString);

// === impl MethodName ===

impl MethodName {
    pub(super) fn new(name: ByteString) -> Self {
        Self(name)
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&'static str> for MethodName {
    fn from(name: &'static str) -> Self {
        Self(ByteString::from_static(name))
    }
}

// === impl Params ===

impl Params {
    /// The empty array.
    pub const EMPTY: Self = Self(ByteString::from_static("[]"));

    /// Creates params from the text of a scanned JSON array.
    pub(super) fn new(raw: ByteString) -> Self {
        Self(raw)
    }

    /// Creates params from an array that the program itself wrote.
    ///
    /// # Panics
    /// In debug builds, if `raw` is not a JSON array.
    pub fn from_own(raw: impl Into<ByteString>) -> Self {
        let raw = raw.into();
        debug_assert!(
            serde_json::from_str::<Vec<serde::de::IgnoredAny>>(&raw).is_ok(),
            "not an array: {raw:?}"
        );
        Self(raw)
    }

    /// Returns the array's JSON text.
    pub fn as_bytes(&self) -> &Bytes {
        self.0.as_bytes()
    }

    /// Returns the JSON texts of the elements, in order.
    pub fn elements(&self) -> impl Iterator<Item = &str> {
        let text = &*self.0;
        let mut scanner = Scanner::new(text);
        scanner.peek();
        scanner.enter();
        let mut first = true;
        std::iter::from_fn(move || {
            let more = scanner.next_element(&mut first).expect("params were scanned when they were read");
            more.then(|| {
                let range = scanner.value().expect("params were scanned when they were read");
                &text[range]
            })
        })
        // `fuse` ensures that nothing is scanned past the end of the array.
        .fuse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_split_at_commas() {
        let params = Params::from_own(r#" [ 1 , "a,b" ,{"c":[ ]}, null] "#);
        assert_eq!(params.elements().collect::<Vec<_>>(), ["1", "\"a,b\"", "{\"c\":[ ]}", "null"]);
        assert_eq!(Params::EMPTY.elements().count(), 0);
    }
}
