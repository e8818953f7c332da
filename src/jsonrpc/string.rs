//! The content of JSON strings.

use std::borrow::Cow;

/// Returns the text of a scanned string; `raw` includes its quotes.
///
/// Borrows from `raw` unless the string contains escapes. An unpaired surrogate becomes U+FFFD, as in Go.
pub fn unescape(raw: &str) -> Cow<'_, str> {
    let inner = &raw[1..raw.len() - 1];
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Cow::Borrowed(inner);
    }
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(slash) = rest.find('\\') {
        text.push_str(&rest[..slash]);
        let code = rest.as_bytes()[slash + 1];
        rest = &rest[slash + 2..];
        text.push(match code {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => utf16_unit(&mut rest),
            other => char::from(other),
        });
    }
    text.push_str(rest);
    Cow::Owned(text)
}

/// Reads the four digits after `\u`. If they are a high surrogate, also reads the `\u` and four digits of the low
/// surrogate that follows.
fn utf16_unit(rest: &mut &str) -> char {
    let unit = |digits: &str| u16::from_str_radix(digits, 16).unwrap_or(0xFFFD);
    let first = unit(&rest[..4]);
    *rest = &rest[4..];
    let second = rest.strip_prefix("\\u").map(|next| unit(&next[..4]));
    let units = [first, second.unwrap_or(0)];
    let read = match second {
        Some(_) if (0xD800..0xDC00).contains(&first) => &units[..],
        _ => &units[..1],
    };
    let decoded = char::decode_utf16(read.iter().copied()).next();
    match decoded {
        Some(Ok(character)) => {
            if character.len_utf16() == 2 {
                *rest = &rest[6..];
            }
            character
        }
        _ => char::REPLACEMENT_CHARACTER,
    }
}

/// Number of bytes at the start of a string that are scanned 8 at a time. A longer string is probably much longer, so
/// its rest is scanned 32 bytes at a time.
const SHORT: usize = 24;

/// Returns the number of bytes before the first quote, backslash or control character.
///
/// Most scanned bytes are in strings, so this function must be fast both for names and numbers, which end soon, and for
/// hashes and data, which are long.
#[inline(always)]
pub(super) fn plain(text: &[u8]) -> usize {
    let mut passed = 0;
    while passed < SHORT
        && let Some(word) = text[passed..].first_chunk()
    {
        match special_in(*word) {
            Some(at) => return passed + at,
            None => passed += 8,
        }
    }
    while text[passed..].first_chunk().is_some_and(|wide| !has_special(wide)) {
        passed += 32;
    }
    while let Some(word) = text[passed..].first_chunk() {
        match special_in(*word) {
            Some(at) => return passed + at,
            None => passed += 8,
        }
    }
    let rest = &text[passed..];
    passed + rest.iter().position(|byte| is_special(*byte)).unwrap_or(rest.len())
}

fn is_special(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

/// Returns whether any byte is special. There is no branch between bytes, so that the compiler compares all bytes at
/// once.
fn has_special(wide: &[u8; 32]) -> bool {
    let marks = wide.map(|byte| u8::from(byte == b'"') | u8::from(byte == b'\\') | u8::from(byte < 0x20));
    marks.iter().fold(0, |any, mark| any | mark) != 0
}

/// Returns the position of the first special byte.
#[inline]
fn special_in(word: [u8; 8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES * 0x80;
    let word = u64::from_le_bytes(word);
    let is_zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    // A borrow in the subtraction can wrongly mark a byte above a special byte, but none below it, so the lowest mark
    // is always right.
    let marked = (is_zero(word ^ (ONES * 0x22)) | is_zero(word ^ (ONES * 0x5c)) | control) & HIGH;
    (marked != 0).then(|| marked.trailing_zeros() as usize / 8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_become_their_characters() {
        assert_eq!(unescape(r#""eth\u005fcall""#), "eth_call");
        assert_eq!(unescape(r#""\ud83e\udd84""#), "\u{1f984}");
        assert_eq!(unescape(r#""\ud800x""#), "\u{fffd}x");
        assert_eq!(unescape(r#""\ud800\u0061""#), "\u{fffd}a");
        assert_eq!(unescape(r#""\ud800\ud800\udc00""#), "\u{fffd}\u{10000}");
    }

    proptest! {
        #[test]
        fn plain_prefix_ends_at_the_first_special_byte(
            before in proptest::collection::vec(prop_oneof![20 => 0x23u8..=0x5b, 1 => any::<u8>()], 0..120),
            mixed in proptest::collection::vec(prop_oneof![4 => 0x20u8..=0xff, 1 => any::<u8>()], 0..40),
        ) {
            let text = [before, mixed].concat();
            let first = text.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
            prop_assert_eq!(plain(&text), first.unwrap_or(text.len()));
        }

        #[test]
        fn strings_unescape_as_in_serde_json(text: String) {
            let raw = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(unescape(&raw), text);
        }
    }
}
