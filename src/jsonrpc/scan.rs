//! Scans JSON text and returns where values begin and end.
//!
//! The scanner builds no values and does not recurse. It stores one bit for each open bracket, so five megabytes of `[`
//! take 640 KB of heap and no stack. It accepts exactly the grammar of RFC 8259.

use std::ops::Range;

use super::string::plain;

/// Reason why a text is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected} at byte {at}")]
pub struct SyntaxError {
    /// Offset of the unexpected byte.
    pub at: usize,
    /// The expected token.
    pub expected: &'static str,
}

/// The kind of a JSON value, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "JSON's own names")]
pub enum JsonKind {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

/// A position in a JSON text.
///
/// The text must be UTF-8; the scanner reads only its ASCII structure. The offsets that it returns are character
/// boundaries.
#[derive(Clone, Debug)]
pub struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    has_passed_escapes: bool,
}

/// The kinds of the open brackets, one bit per level.
#[derive(Default)]
struct Nesting {
    depth: usize,
    /// The innermost levels, at most 64, with the innermost in the lowest bit.
    near: u64,
    /// The outer levels, 64 in each word.
    far: Vec<u64>,
}

// === impl JsonKind ===

impl JsonKind {
    /// Returns the kind of the value `raw`, which has no leading white space.
    pub fn of(raw: &[u8]) -> Self {
        match raw.first() {
            Some(b'{') => Self::Object,
            Some(b'[') => Self::Array,
            Some(b'"') => Self::String,
            Some(b't' | b'f') => Self::Bool,
            Some(b'n') | None => Self::Null,
            Some(_) => Self::Number,
        }
    }
}

// === impl Scanner ===

impl<'a> Scanner<'a> {
    /// Creates a scanner at the start of `text`.
    pub fn new(text: &'a str) -> Self {
        Self { text: text.as_bytes(), at: 0, has_passed_escapes: false }
    }

    /// Returns the offset of the next byte.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Returns whether any string so far had an escape.
    pub fn has_passed_escapes(&self) -> bool {
        self.has_passed_escapes
    }

    /// Skips white space, and returns the next byte without skipping it.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.text.get(self.at) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    /// Skips one opening bracket, which the caller has [peeked](Self::peek).
    pub fn enter(&mut self) {
        self.at += 1;
    }

    /// Inside an object, returns `true` if another member follows, whose [name](Self::name) and value the caller scans.
    /// At the closing brace, skips it and returns `false`.
    ///
    /// # Errors
    /// If the text is not JSON.
    #[inline]
    pub fn another_member(&mut self, first: &mut bool) -> Result<bool, SyntaxError> {
        let more = self.more(first, b'}', "',' or '}'")?;
        self.peek();
        Ok(more)
    }

    /// Skips the next bytes if they are exactly `spelled`, and returns whether they are.
    #[inline]
    pub fn pass<const N: usize>(&mut self, spelled: &[u8; N]) -> bool {
        let passed = self.text[self.at..].first_chunk() == Some(spelled);
        self.at += if passed { N } else { 0 };
        passed
    }

    /// Inside an object, scans the next member's name and returns its range, quotes included. At the closing brace,
    /// skips it and returns `None`.
    ///
    /// `first` is `true` before the first member, and this method sets it to `false`. The caller scans the value.
    ///
    /// # Errors
    /// If the text is not JSON.
    pub fn next_member(&mut self, first: &mut bool) -> Result<Option<Range<usize>>, SyntaxError> {
        if !self.more(first, b'}', "',' or '}'")? {
            return Ok(None);
        }
        self.name().map(Some)
    }

    /// Inside an array, returns `true` if another element follows, which the caller scans. At the closing bracket,
    /// skips it and returns `false`.
    ///
    /// # Errors
    /// If the text is not JSON.
    pub fn next_element(&mut self, first: &mut bool) -> Result<bool, SyntaxError> {
        self.more(first, b']', "',' or ']'")
    }

    /// Scans one whole value and returns its range, without the white space around it.
    ///
    /// # Errors
    /// If the text is not JSON.
    pub fn value(&mut self) -> Result<Range<usize>, SyntaxError> {
        let first = self.peek();
        let start = self.at;
        // A scalar needs no record of open brackets.
        match first {
            Some(b'{' | b'[') => {}
            _ => return self.scalar().map(|()| start..self.at),
        }
        let mut open = Nesting::default();
        loop {
            match self.peek() {
                Some(b'{') => {
                    self.at += 1;
                    if self.peek() == Some(b'}') {
                        self.at += 1;
                    } else {
                        open.push(true);
                        self.name()?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.at += 1;
                    if self.peek() == Some(b']') {
                        self.at += 1;
                    } else {
                        open.push(false);
                        continue;
                    }
                }
                _ => self.scalar()?,
            }
            // A value has ended. The arrays and objects around it may end here, too.
            loop {
                let Some(object) = open.innermost() else { return Ok(start..self.at) };
                match (object, self.peek()) {
                    (true, Some(b'}')) | (false, Some(b']')) => {
                        self.at += 1;
                        open.pop();
                    }
                    (_, Some(b',')) => {
                        self.at += 1;
                        if object {
                            self.name()?;
                        }
                        break;
                    }
                    (true, _) => return Err(self.expected("',' or '}'")),
                    (false, _) => return Err(self.expected("',' or ']'")),
                }
            }
        }
    }

    /// Skips trailing white space.
    ///
    /// # Errors
    /// If anything else follows.
    pub fn end(&mut self) -> Result<(), SyntaxError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.expected("the end")),
        }
    }

    fn expected(&self, expected: &'static str) -> SyntaxError {
        SyntaxError { at: self.at, expected }
    }

    /// Returns a syntax error. If the text is cut off, as in `tru` or `"\u00`, the error is at the end of the text, so
    /// that callers can tell a truncated text from a wrong one.
    fn cut_or_wrong(&self, cut: bool, expected: &'static str) -> SyntaxError {
        SyntaxError { at: if cut { self.text.len() } else { self.at }, expected }
    }

    #[inline]
    fn more(&mut self, first: &mut bool, close: u8, expected: &'static str) -> Result<bool, SyntaxError> {
        let was_first = std::mem::take(first);
        match self.peek() {
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(false)
            }
            Some(b',') if !was_first => {
                self.at += 1;
                Ok(true)
            }
            Some(_) if was_first => Ok(true),
            _ => Err(self.expected(expected)),
        }
    }

    /// Scans a member's name and the colon after it, and returns the range of the name, quotes included.
    ///
    /// # Errors
    /// If the text is not JSON.
    pub fn name(&mut self) -> Result<Range<usize>, SyntaxError> {
        if self.peek() != Some(b'"') {
            return Err(self.expected("a member's name in quotes"));
        }
        let start = self.at;
        self.string()?;
        let name = start..self.at;
        if self.peek() != Some(b':') {
            return Err(self.expected("':'"));
        }
        self.at += 1;
        Ok(name)
    }

    fn scalar(&mut self) -> Result<(), SyntaxError> {
        match self.text.get(self.at) {
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal(b"true"),
            Some(b'f') => self.literal(b"false"),
            Some(b'n') => self.literal(b"null"),
            _ => Err(self.expected("a value")),
        }
    }

    #[inline]
    fn string(&mut self) -> Result<(), SyntaxError> {
        self.at += 1;
        loop {
            self.at += plain(&self.text[self.at..]);
            match self.text.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(0..=0x1f) => return Err(self.expected("an escape, not a control character,")),
                Some(_) => self.at += 1,
                None => return Err(self.expected("a closing quote")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), SyntaxError> {
        self.has_passed_escapes = true;
        match self.text.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => {
                let rest = &self.text[self.at + 2..];
                let digits = rest.iter().take(4).take_while(|digit| digit.is_ascii_hexdigit()).count();
                if digits < 4 {
                    return Err(self.cut_or_wrong(digits == rest.len(), "\\u and four hex digits"));
                }
                self.at += 6;
            }
            other => return Err(self.cut_or_wrong(other.is_none(), "an escape such as \\n")),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), SyntaxError> {
        if self.text.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        match self.text.get(self.at) {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.text.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), SyntaxError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.text.get(self.at) {
            self.at += 1;
        }
        if self.at == start { Err(self.expected("a digit")) } else { Ok(()) }
    }

    fn literal(&mut self, word: &'static [u8]) -> Result<(), SyntaxError> {
        let rest = &self.text[self.at..];
        if !rest.starts_with(word) {
            return Err(self.cut_or_wrong(word.starts_with(rest), "a value"));
        }
        self.at += word.len();
        Ok(())
    }
}

// === impl Nesting ===

impl Nesting {
    fn push(&mut self, object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.far.push(self.near);
        }
        self.near = self.near << 1 | u64::from(object);
        self.depth += 1;
    }

    fn pop(&mut self) {
        self.depth -= 1;
        self.near >>= 1;
        if self.depth > 0
            && self.depth.is_multiple_of(64)
            && let Some(word) = self.far.pop()
        {
            self.near = word;
        }
    }

    fn innermost(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.near & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scans(text: &str) -> Result<Range<usize>, SyntaxError> {
        let mut scanner = Scanner::new(text);
        let value = scanner.value()?;
        scanner.end().map(|()| value)
    }

    /// Returns whether serde_json accepts the text. `IgnoredAny` checks the syntax without building values.
    fn serde_accepts(text: &str) -> bool {
        serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
    }

    #[test]
    fn value_excludes_surrounding_space() {
        assert_eq!(scans(" \n[1, {\"a\": null}]\t"), Ok(2..18));
    }

    #[test]
    fn errors_name_the_byte_and_the_expected_token() {
        let error = scans(r#"{"a" 1}"#).unwrap_err();
        assert_eq!(error.to_string(), "expected ':' at byte 5");
    }

    #[test]
    fn deep_nesting_uses_no_stack() {
        let depth = 2_000_000;
        assert!(scans(&("[".repeat(depth) + &"]".repeat(depth))).is_ok());
        let objects = r#"{"a":["#.repeat(depth / 8) + &"]}".repeat(depth / 8);
        assert!(scans(&objects).is_ok());
        assert!(scans(&"[".repeat(depth)).is_err());
    }

    #[test]
    fn brackets_must_match_across_words_of_nesting() {
        for depth in [1, 63, 64, 65, 128, 129] {
            let opened = "[{\"a\":".repeat(depth);
            let good = opened.clone() + "1" + &"}]".repeat(depth);
            let bad = opened + "1" + &"]}".repeat(depth);
            assert!(scans(&good).is_ok(), "{depth}");
            assert!(scans(&bad).is_err(), "{depth}");
        }
    }

    fn json_like() -> impl Strategy<Value = String> {
        let token = prop_oneof![
            Just("{"),
            Just("}"),
            Just("["),
            Just("]"),
            Just(","),
            Just(":"),
            Just("\"a\""),
            Just("\"\\u00e9\""),
            Just("\"\\x\""),
            Just("\""),
            Just("1"),
            Just("-0"),
            Just("01"),
            Just("1.5e+3"),
            Just("1."),
            Just("-"),
            Just("true"),
            Just("fals"),
            Just("null"),
            Just(" "),
            Just("\n"),
            Just("\u{b}"),
            Just("é"),
        ];
        proptest::collection::vec(token, 0..24).prop_map(|tokens| tokens.concat())
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(5, 64, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                proptest::collection::vec((any::<String>(), inner), 0..6)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn accepts_the_same_texts_as_serde_json(text in json_like()) {
            prop_assert_eq!(scans(&text).is_ok(), serde_accepts(&text), "{}", text);
        }

        #[test]
        fn any_value_is_one_value(value in json(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            prop_assert_eq!(scans(&text), Ok(0..text.len()));
        }
    }
}
