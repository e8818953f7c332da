//! Parses the response of a node.

use std::ops::Range;

use bytes::Bytes;

use super::{ErrorObject, JsonKind, Scanner, SyntaxError, unescape};

/// The answer to a call: the JSON text of its `result` or of its `error` object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A result in the node's own bytes; may be `null`.
    Result(Bytes),
    /// An error object, from the node or from Holdfast.
    Error(Bytes),
}

/// One response object of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncomingAnswer {
    /// The id of the call that the response answers.
    pub id: IncomingId,
    /// The payload; `None` if the response has neither `result` nor `error`.
    pub answer: Option<Answer>,
}

/// The id of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncomingId {
    /// A number, which may be the id of one of Holdfast's requests.
    Own(u64),
    /// `null`, which means that the node could not read the request.
    Null,
    /// Any other id, or no id.
    Other,
}

/// Reason why a node's response is unreadable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The body is not UTF-8.
    #[error("not UTF-8 at byte {at}")]
    NotUtf8 {
        /// Offset of the first invalid byte.
        at: usize,
    },
    /// The body is the beginning of a JSON text, but the rest is missing.
    #[error("cut off after {len} bytes")]
    Truncated {
        /// Length of the body.
        len: usize,
    },
    /// The body is not JSON. It may be an HTML page, for example.
    #[error("not JSON: {0}")]
    NotJson(#[source] SyntaxError),
    /// The body is JSON, but neither an object nor an array of objects.
    #[error("not a JSON-RPC response")]
    NotAResponse,
}

/// Parses one response object, or an array of them, without copying the payloads.
///
/// # Errors
/// If the body is not JSON, or not made of objects.
pub fn read_answers(body: &Bytes) -> Result<Vec<IncomingAnswer>, AnswerError> {
    let text = std::str::from_utf8(body).map_err(|error| AnswerError::NotUtf8 { at: error.valid_up_to() })?;
    read(text, body).map_err(|error| match error {
        AnswerError::NotJson(syntax) if syntax.at >= text.len() => AnswerError::Truncated { len: text.len() },
        other => other,
    })
}

fn read(text: &str, body: &Bytes) -> Result<Vec<IncomingAnswer>, AnswerError> {
    let mut scanner = Scanner::new(text);
    let mut answers = Vec::with_capacity(1);
    if scanner.peek() == Some(b'[') {
        scanner.enter();
        let mut first = true;
        while scanner.next_element(&mut first)? {
            answers.push(read_one(&mut scanner, text, body)?);
        }
    } else {
        answers.push(read_one(&mut scanner, text, body)?);
    }
    scanner.end()?;
    Ok(answers)
}

fn read_one(scanner: &mut Scanner<'_>, text: &str, body: &Bytes) -> Result<IncomingAnswer, AnswerError> {
    if scanner.peek() != Some(b'{') {
        scanner.value()?;
        return Err(AnswerError::NotAResponse);
    }
    scanner.enter();
    let (mut id, mut result, mut error): (_, Option<Range<usize>>, Option<Range<usize>>) =
        (IncomingId::Other, None, None);
    let mut first = true;
    while let Some(name) = scanner.next_member(&mut first)? {
        let value = scanner.value()?;
        match unescape(&text[name]).as_ref() {
            "id" => id = IncomingId::read(&text[value]),
            "result" => result = Some(value),
            // Some servers write `"error": null` beside a result.
            "error" if JsonKind::of(&body[value.clone()]) == JsonKind::Object => error = Some(value),
            _ => {}
        }
    }
    let answer = match (error, result) {
        (Some(error), _) => Some(Answer::Error(body.slice(error))),
        (None, Some(result)) => Some(Answer::Result(body.slice(result))),
        (None, None) => None,
    };
    Ok(IncomingAnswer { id, answer })
}

// === impl Answer ===

impl Answer {
    /// Returns whether this is the result `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Result(result) if result == "null")
    }

    /// Returns whether this is a result other than `null`.
    pub fn is_content(&self) -> bool {
        matches!(self, Self::Result(_)) && !self.is_null()
    }

    /// Returns the code of an error.
    pub fn error_code(&self) -> Option<i64> {
        #[derive(serde::Deserialize)]
        struct Coded {
            code: i64,
        }
        match self {
            Self::Error(error) => serde_json::from_slice::<Coded>(error).ok().map(|error| error.code),
            Self::Result(_) => None,
        }
    }

    /// Returns the size of the JSON text.
    pub fn len(&self) -> usize {
        match self {
            Self::Result(bytes) | Self::Error(bytes) => bytes.len(),
        }
    }

    /// Returns whether the text is empty, which a parsed answer never is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<&ErrorObject> for Answer {
    fn from(error: &ErrorObject) -> Self {
        Self::Error(error.to_json())
    }
}

// === impl IncomingId ===

impl IncomingId {
    fn read(raw: &str) -> Self {
        if raw == "null" {
            return Self::Null;
        }
        raw.parse().map_or(Self::Other, Self::Own)
    }
}

// === impl AnswerError ===

impl From<SyntaxError> for AnswerError {
    fn from(error: SyntaxError) -> Self {
        Self::NotJson(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(body: &'static str) -> IncomingAnswer {
        let mut answers = read_answers(&Bytes::from_static(body.as_bytes())).unwrap();
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }

    #[test]
    fn a_null_result_is_a_result() {
        let answer = one(r#"{"jsonrpc":"2.0","id":7,"result":null}"#);
        assert_eq!(answer.id, IncomingId::Own(7));
        assert_eq!(answer.answer, Some(Answer::Result(Bytes::from_static(b"null"))));
    }

    #[test]
    fn a_result_keeps_its_bytes() {
        let answer = one(r#"{"id":1, "result": {"b": 1.0, "a":"\u0061"} ,"error":null}"#);
        assert_eq!(answer.answer, Some(Answer::Result(Bytes::from_static(br#"{"b": 1.0, "a":"\u0061"}"#))));
    }

    #[test]
    fn error_takes_precedence_over_a_result() {
        let answer = one(r#"{"id":1,"result":null,"error":{"code":3,"message":"reverted","data":"0x"}}"#);
        let error = br#"{"code":3,"message":"reverted","data":"0x"}"#;
        assert_eq!(answer.answer, Some(Answer::Error(Bytes::from_static(error))));
    }

    #[test]
    fn missing_result_is_not_null() {
        assert_eq!(one(r#"{"id":"x"}"#), IncomingAnswer { id: IncomingId::Other, answer: None });
    }

    #[test]
    fn errors_of_unusable_bodies_are_specific() {
        let read = |body: &'static [u8]| read_answers(&Bytes::from_static(body)).unwrap_err();
        assert_eq!(read(br#"{"id":1,"resu"#), AnswerError::Truncated { len: 13 });
        assert_eq!(read(b""), AnswerError::Truncated { len: 0 });
        assert_eq!(read(br#"{"id":1,"result":nul"#), AnswerError::Truncated { len: 20 });
        assert_eq!(read(br#"{"id":1,"result":"\"#), AnswerError::Truncated { len: 19 });
        assert_eq!(read(br#"{"id":1,"result":"\u00e"#), AnswerError::Truncated { len: 23 });
        assert!(matches!(read(br#"{"id":1,"result":"\u00x"#), AnswerError::NotJson(_)));
        assert!(matches!(read(b"<html>"), AnswerError::NotJson(_)));
        assert!(matches!(read(b"\xff"), AnswerError::NotUtf8 { at: 0 }));
        assert_eq!(read(b"[1]"), AnswerError::NotAResponse);
        assert_eq!(read(b"null"), AnswerError::NotAResponse);
    }
}
