//! Quantities: hex numbers without leading zeros.

use std::fmt;

/// Number of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockNumber(pub u64);

/// Position of a transaction in its block, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TxPosition(pub u64);

/// Error of parsing a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text has no `0x` prefix. Usually it is a decimal number.
    #[error("a quantity starts with 0x")]
    NoPrefix,
    /// The text is `0x` without digits.
    #[error("a quantity has at least one hex digit; zero is 0x0")]
    Empty,
    /// The digits have leading zeros, as in `0x01`.
    #[error("a quantity has no leading zeros")]
    LeadingZero,
    /// A character is not a hex digit.
    #[error("a quantity has only hex digits")]
    Digit,
    /// The number needs more than 64 bits.
    #[error("the quantity is larger than 64 bits")]
    TooLarge,
}

/// Parses `0x` and hex digits of any case.
pub(super) fn parse(text: &str) -> Result<u64, QuantityError> {
    let digits = text.strip_prefix("0x").ok_or(QuantityError::NoPrefix)?;
    match digits.as_bytes() {
        [] => Err(QuantityError::Empty),
        digits if !digits.iter().all(u8::is_ascii_hexdigit) => Err(QuantityError::Digit),
        [b'0', _, ..] => Err(QuantityError::LeadingZero),
        _ => u64::from_str_radix(digits, 16).map_err(|_| QuantityError::TooLarge),
    }
}

// === impl BlockNumber ===

impl fmt::Display for BlockNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

// === impl TxPosition ===

impl fmt::Display for TxPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantity_errors_are_specific() {
        assert_eq!(parse("5"), Err(QuantityError::NoPrefix));
        assert_eq!(parse("0X5"), Err(QuantityError::NoPrefix));
        assert_eq!(parse("-0x5"), Err(QuantityError::NoPrefix));
        assert_eq!(parse("0x"), Err(QuantityError::Empty));
        assert_eq!(parse("0x05"), Err(QuantityError::LeadingZero));
        assert_eq!(parse("0x00"), Err(QuantityError::LeadingZero));
        assert_eq!(parse("0xg"), Err(QuantityError::Digit));
        assert_eq!(parse("0x+5"), Err(QuantityError::Digit));
        assert_eq!(parse("0x 5"), Err(QuantityError::Digit));
        assert_eq!(parse("0x10000000000000000"), Err(QuantityError::TooLarge));
    }

    proptest! {
        #[test]
        fn written_quantity_parses_to_the_same_number(number: u64, upper: bool) {
            let digits = if upper { format!("0x{number:X}") } else { BlockNumber(number).to_string() };
            prop_assert_eq!(parse(&digits), Ok(number));
        }
    }
}
