//! Values as a tier stores them: compressed, and with a checksum.
//!
//! The checksum detects damage, not forgery, because an attacker with write access to a tier can compute it. Callers
//! verify the content like an upstream's response.

use bytes::Bytes;

/// Version of the stored format. Lookups do not find entries of another version.
pub const FORMAT: u8 = 3;

/// Length of the header: format, checksum, length of the text.
const HEAD: usize = 1 + 4 + 4;

/// Longest text in bytes: the default limit on an upstream's response. Holdfast stores no text above this limit, so a
/// value that claims a greater length is damaged or forged. Opening it might exhaust memory.
const LONGEST: usize = 128 << 20;

/// Zstd level. Level 1 is fast and compresses a text to a fifth. The next levels take three times as long, and their
/// output is 10 % smaller.
const LEVEL: i32 = 1;

/// A compressed value with its checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed(Bytes);

/// A value that does not match its checksum or has another format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored value is damaged or has another format")]
pub struct Damaged;

// === impl Sealed ===

impl Sealed {
    /// Compresses a text; `None` if it is longer than [`open`](Self::open) accepts. Takes about a millisecond for a
    /// block.
    pub fn new(text: &[u8]) -> Option<Self> {
        let length = u32::try_from(text.len()).ok().filter(|length| *length as usize <= LONGEST)?;
        let packed = zstd::bulk::compress(text, LEVEL).ok()?;
        let mut value = Vec::with_capacity(HEAD + packed.len());
        value.push(FORMAT);
        value.extend(sum(length, &packed).to_be_bytes());
        value.extend(length.to_be_bytes());
        value.extend(packed);
        Some(Self(value.into()))
    }

    /// Returns the text.
    ///
    /// # Errors
    /// If the value is damaged or has another format.
    pub fn open(&self) -> Result<Bytes, Damaged> {
        let (said, length, packed) = self.parts().ok_or(Damaged)?;
        if said != sum(length, packed) || length as usize > LONGEST {
            return Err(Damaged);
        }
        let text = zstd::bulk::decompress(packed, length as usize).map_err(|_| Damaged)?;
        if text.len() == length as usize { Ok(text.into()) } else { Err(Damaged) }
    }

    /// Number of bytes that [`open`](Self::open) allocates, according to the header.
    pub fn takes(&self) -> usize {
        self.parts().map_or(0, |(_, length, _)| length as usize).min(LONGEST)
    }

    /// Splits the value into checksum, length of the text, and compressed text.
    fn parts(&self) -> Option<(u32, u32, &[u8])> {
        let (_, rest) = self.0.split_first().filter(|(format, _)| **format == FORMAT)?;
        let (sum, rest) = rest.split_first_chunk()?;
        let (length, packed) = rest.split_first_chunk()?;
        Some((u32::from_be_bytes(*sum), u32::from_be_bytes(*length), packed))
    }

    /// Returns the value as a tier stores it.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl From<Bytes> for Sealed {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

fn sum(length: u32, packed: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[FORMAT]);
    hasher.update(&length.to_be_bytes());
    hasher.update(packed);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sealed_value_round_trips(text: Vec<u8>) {
            prop_assert_eq!(Sealed::new(&text).unwrap().open(), Ok(Bytes::from(text)));
        }

        #[test]
        fn changed_value_does_not_open(text in ".{1,200}", at: usize, bit in 0..8u32, cut: bool) {
            let mut value = Sealed::new(text.as_bytes()).unwrap().0.to_vec();
            let at = at % value.len();
            if cut { value.truncate(at) } else { value[at] ^= 1 << bit }
            prop_assert_eq!(Sealed::from(Bytes::from(value)).open(), Err(Damaged));
        }

        #[test]
        fn garbage_does_not_open(garbage: Vec<u8>) {
            prop_assert_eq!(Sealed::from(Bytes::from(garbage)).open(), Err(Damaged));
        }
    }

    #[test]
    fn value_with_an_excessive_length_is_not_unpacked() {
        let packed = zstd::bulk::compress(&[0; 100], LEVEL).unwrap();
        let length = u32::MAX;
        let value =
            [&[FORMAT][..], &sum(length, &packed).to_be_bytes(), &length.to_be_bytes(), &packed].concat();
        assert_eq!(Sealed::from(Bytes::from(value)).open(), Err(Damaged));
    }
}
