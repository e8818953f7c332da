//! Values in Ethereum's JSON: parsing, and formatting for messages.

use alloy_primitives::{Address, B64, B256, Bloom, Bytes, U256, hex};

use crate::jsonrpc::JsonKind;

/// A value as Ethereum's JSON-RPC writes it.
pub(super) trait Value: PartialEq + Sized {
    /// Name of the type, for error messages that say which type was expected.
    const WHAT: &'static str;

    /// Parses a JSON value; `None` if the value is not of this type.
    fn read(raw: &str) -> Option<Self>;

    /// Formats the value as in JSON, but without quotes, and shortened if it is long.
    fn shown(&self) -> String;
}

/// A 256-bit number that some nodes pad with zeros: `r` or `s` of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Padded(pub(super) U256);

/// A time in seconds. Most nodes write a quantity, some a JSON number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seconds(pub(super) u64);

/// Number of characters at the start of a long text that messages show.
const HEAD: usize = 24;
/// Number of characters at the end of a long text that messages show.
const TAIL: usize = 8;

/// Length of the longest text that messages show in full, which is the length of a hash.
const WHOLE: usize = 66;

// === impl Value ===

macro_rules! fixed {
    ($($kind:ty => $what:literal),*) => {$(
        impl Value for $kind {
            const WHAT: &'static str = $what;

            fn read(raw: &str) -> Option<Self> {
                let mut value = Self::ZERO;
                hex::decode_to_slice(prefixed(raw)?, value.as_mut_slice()).ok()?;
                Some(value)
            }

            fn shown(&self) -> String {
                shown(&hex::encode_prefixed(self))
            }
        }
    )*};
}

fixed!(B256 => "a hash", Address => "an address", Bloom => "a bloom", B64 => "eight bytes");

impl Value for u64 {
    const WHAT: &'static str = "a quantity of 64 bits";

    fn read(raw: &str) -> Option<Self> {
        Self::from_str_radix(quantity(raw)?, 16).ok()
    }

    fn shown(&self) -> String {
        format!("{self:#x}")
    }
}

impl Value for u128 {
    const WHAT: &'static str = "a quantity of 128 bits";

    fn read(raw: &str) -> Option<Self> {
        Self::from_str_radix(quantity(raw)?, 16).ok()
    }

    fn shown(&self) -> String {
        format!("{self:#x}")
    }
}

impl Value for U256 {
    const WHAT: &'static str = "a quantity of 256 bits";

    fn read(raw: &str) -> Option<Self> {
        word(quantity(raw)?)
    }

    fn shown(&self) -> String {
        format!("{self:#x}")
    }
}

/// Parses `0x0` or `0x1`, such as a status or a parity.
impl Value for bool {
    const WHAT: &'static str = "0x0 or 0x1";

    fn read(raw: &str) -> Option<Self> {
        match raw {
            "\"0x0\"" => Some(false),
            "\"0x1\"" => Some(true),
            _ => None,
        }
    }

    fn shown(&self) -> String {
        u64::from(*self).shown()
    }
}

impl Value for Bytes {
    const WHAT: &'static str = "bytes";

    fn read(raw: &str) -> Option<Self> {
        hex::decode(prefixed(raw)?).ok().map(Into::into)
    }

    fn shown(&self) -> String {
        shown(&hex::encode_prefixed(self))
    }
}

impl Value for Padded {
    const WHAT: &'static str = "a number of 256 bits";

    fn read(raw: &str) -> Option<Self> {
        let digits = prefixed(raw)?.strip_prefix("0x")?;
        word(digits).filter(|_| !digits.is_empty()).map(Self)
    }

    fn shown(&self) -> String {
        self.0.shown()
    }
}

impl Value for Seconds {
    const WHAT: &'static str = "a time";

    fn read(raw: &str) -> Option<Self> {
        match JsonKind::of(raw.as_bytes()) {
            // Accepts only digits, because they have a single form. JSON also allows `1e9` and `-0`.
            JsonKind::Number if raw.bytes().all(|digit| digit.is_ascii_digit()) => raw.parse().ok().map(Self),
            _ => u64::read(raw).map(Self),
        }
    }

    fn shown(&self) -> String {
        self.0.shown()
    }
}

/// Returns the content of a string that starts with `0x`. The result includes the prefix, because the hex decoder
/// strips at most one prefix and so rejects `0x0x`.
fn prefixed(raw: &str) -> Option<&str> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    inner.starts_with("0x").then_some(inner)
}

/// Returns the digits of a quantity; `None` if the quantity has leading zeros or is otherwise malformed.
fn quantity(raw: &str) -> Option<&str> {
    let digits = prefixed(raw)?.strip_prefix("0x")?;
    let written = match digits.as_bytes() {
        [] | [b'0', _, ..] => false,
        digits => digits.iter().all(u8::is_ascii_hexdigit),
    };
    written.then_some(digits)
}

/// Parses up to 64 hex digits.
fn word(digits: &str) -> Option<U256> {
    let digits = digits.as_bytes();
    let mut padded = [b'0'; 64];
    padded.get_mut(64_usize.checked_sub(digits.len())?..)?.copy_from_slice(digits);
    let mut word = B256::ZERO;
    // If the text has a second `0x`, the decoder strips it, finds too few digits, and fails.
    hex::decode_to_slice(padded, word.as_mut_slice()).ok()?;
    Some(word.into())
}

/// Formats text for a message: escapes control characters, and leaves out the middle of a long text.
pub(super) fn shown(text: &str) -> String {
    let count = text.chars().count();
    if count <= WHOLE {
        return text.escape_debug().to_string();
    }
    let head: String = text.chars().take(HEAD).collect();
    let tail: String = text.chars().skip(count - TAIL).collect();
    format!("{}…{} ({count} characters)", head.escape_debug(), tail.escape_debug())
}

/// Formats a JSON value for a message.
pub(super) fn shown_json(raw: &str) -> String {
    match JsonKind::of(raw.as_bytes()) {
        JsonKind::Object => "an object".to_owned(),
        JsonKind::Array => "a list".to_owned(),
        JsonKind::String => shown(raw.trim_matches('"')),
        JsonKind::Null | JsonKind::Bool | JsonKind::Number => shown(raw),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quoted(text: &str) -> String {
        format!("\"{text}\"")
    }

    #[test]
    fn a_quantity_is_written_in_one_way() {
        for wrong in [
            "", "0", "0x", "0x00", "0x01", "0X1", "x1", "0x0x1", "0x+1", "0x 1", "0xg", "0xé", " 0x1", "-0x1",
        ] {
            assert_eq!(u64::read(&quoted(wrong)), None, "{wrong}");
            assert_eq!(u128::read(&quoted(wrong)), None, "{wrong}");
            assert_eq!(U256::read(&quoted(wrong)), None, "{wrong}");
        }
        for wrong in ["1", "null", "true", "[]", "{}", r#""\u0030x1""#, "\""] {
            assert_eq!(u64::read(wrong), None, "{wrong}");
        }
        let widest = quoted(&format!("0x{}", "f".repeat(64)));
        assert_eq!((U256::read(&widest), u128::read(&widest)), (Some(U256::MAX), None));
        assert_eq!(U256::read(&quoted(&format!("0x1{}", "0".repeat(64)))), None);
    }

    #[test]
    fn a_hash_has_all_its_digits() {
        let digits = "ab".repeat(32);
        assert_eq!(B256::read(&quoted(&format!("0x{digits}"))), Some(B256::repeat_byte(0xab)));
        for wrong in
            [digits.clone(), format!("0x{}", &digits[1..]), format!("0x{digits}a"), format!("0x0x{digits}")]
        {
            assert_eq!(B256::read(&quoted(&wrong)), None, "{wrong}");
        }
        assert_eq!(B256::read(&quoted(&format!("0x0x{}", &digits[2..]))), None);
    }

    #[test]
    fn bytes_are_pairs_of_digits() {
        assert_eq!(Bytes::read("\"0x\""), Some(Bytes::new()));
        assert_eq!(Bytes::read("\"0x00fF\""), Some(vec![0, 255].into()));
        for wrong in ["", "00", "0x0", "0xfg", "0x0x00", "0X00", "0x\\u0030"] {
            assert_eq!(Bytes::read(&quoted(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn signatures_may_be_padded_and_times_plain() {
        assert_eq!(Padded::read("\"0x0001\""), Some(Padded(U256::ONE)));
        assert_eq!(Padded::read("\"0x\""), None);
        assert_eq!(Padded::read(&quoted(&format!("0x{}", "0".repeat(65)))), None);
        assert_eq!(Padded::read(&quoted(&format!("0x0x{}", "0".repeat(62)))), None);
        assert_eq!(Padded::read(&quoted(&format!("0x0x{}", "0".repeat(61)))), None);
        assert_eq!((Seconds::read("16"), Seconds::read("\"0x10\"")), (Some(Seconds(16)), Some(Seconds(16))));
        for wrong in ["-0", "1.0", "1e3", "\"16\"", "18446744073709551616"] {
            assert_eq!(Seconds::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn messages_are_short_and_plain() {
        assert_eq!(shown_json("\"0x1\""), "0x1");
        assert_eq!(shown_json("[1,2]"), "a list");
        assert_eq!(shown("\u{1b}[2J"), "\\u{1b}[2J");
        let hash = "é".repeat(WHOLE);
        assert_eq!(shown(&hash), hash);
        assert!(shown(&format!("{hash}é")).ends_with("(67 characters)"));
        assert_eq!(shown(&"é".repeat(100)), format!("{}…{} (100 characters)", "é".repeat(24), "é".repeat(8)));
    }

    proptest! {
        #[test]
        fn shown_value_parses_to_itself(small: u64, large: u128, word: [u8; 32], data in prop::collection::vec(any::<u8>(), 0..33)) {
            let word = U256::from_be_bytes(word);
            prop_assert_eq!(u64::read(&quoted(&small.shown())), Some(small));
            prop_assert_eq!(u128::read(&quoted(&large.shown())), Some(large));
            prop_assert_eq!(U256::read(&quoted(&word.shown())), Some(word));
            let data = Bytes::from(data);
            prop_assert_eq!(Bytes::read(&quoted(&hex::encode_prefixed(&data))), Some(data));
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            u64::read(&text);
            U256::read(&quoted(&text));
            Padded::read(&quoted(&text));
            Bytes::read(&quoted(&text));
            Bloom::read(&quoted(&text));
            Seconds::read(&text);
            shown_json(&text);
        }
    }
}
