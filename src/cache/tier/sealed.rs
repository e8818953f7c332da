//! Values as a tier keeps them: packed, and with a sum that tells what was damaged.
//!
//! The sum tells damage, not forgery: whoever can write to a tier can write that, too. What comes out is checked like an
//! upstream's answer.

use bytes::Bytes;

/// Version of all that a tier stores: entries of another version are not found.
pub const FORMAT: u8 = 2;

/// Format, sum, length.
const HEAD: usize = 1 + 4 + 4;

/// What is longer when it is unpacked was not put there by us: it might fill the memory. As long as an upstream's answer may
/// be, if nobody says otherwise.
const LONGEST: usize = 128 << 20;

/// Fast to pack, and a fifth of the text; the next levels cost three times as much for a tenth less.
const LEVEL: i32 = 1;

/// A packed value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed(Bytes);

/// A value that is not what was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value is damaged, or of another format")]
pub struct Damaged;

// === impl Sealed ===

impl Sealed {
    /// Packs a text; `None` if it is too long to come out again. Takes a millisecond for a block.
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

    /// The text.
    ///
    /// # Errors
    /// If it is not what was sealed.
    pub fn open(&self) -> Result<Bytes, Damaged> {
        let (said, length, packed) = self.parts().ok_or(Damaged)?;
        if said != sum(length, packed) || length as usize > LONGEST {
            return Err(Damaged);
        }
        let text = zstd::bulk::decompress(packed, length as usize).map_err(|_| Damaged)?;
        if text.len() == length as usize { Ok(text.into()) } else { Err(Damaged) }
    }

    /// How much memory it takes to open it, by what it says of itself.
    pub fn takes(&self) -> usize {
        self.parts().map_or(0, |(_, length, _)| length as usize).min(LONGEST)
    }

    /// Sum, length, and what is packed.
    fn parts(&self) -> Option<(u32, u32, &[u8])> {
        let (_, rest) = self.0.split_first().filter(|(format, _)| **format == FORMAT)?;
        let (sum, rest) = rest.split_first_chunk()?;
        let (length, packed) = rest.split_first_chunk()?;
        Some((u32::from_be_bytes(*sum), u32::from_be_bytes(*length), packed))
    }

    /// As it is kept.
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
        fn what_is_sealed_comes_out_again(text: Vec<u8>) {
            prop_assert_eq!(Sealed::new(&text).unwrap().open(), Ok(Bytes::from(text)));
        }

        #[test]
        fn what_was_changed_does_not(text in ".{1,200}", at: usize, bit in 0..8u32, cut: bool) {
            let mut value = Sealed::new(text.as_bytes()).unwrap().0.to_vec();
            let at = at % value.len();
            if cut { value.truncate(at) } else { value[at] ^= 1 << bit }
            prop_assert_eq!(Sealed::from(Bytes::from(value)).open(), Err(Damaged));
        }

        #[test]
        fn garbage_is_not_read(garbage: Vec<u8>) {
            prop_assert_eq!(Sealed::from(Bytes::from(garbage)).open(), Err(Damaged));
        }
    }

    #[test]
    fn a_value_that_would_be_too_large_is_not_unpacked() {
        let packed = zstd::bulk::compress(&[0; 100], LEVEL).unwrap();
        let length = u32::MAX;
        let value =
            [&[FORMAT][..], &sum(length, &packed).to_be_bytes(), &length.to_be_bytes(), &packed].concat();
        assert_eq!(Sealed::from(Bytes::from(value)).open(), Err(Damaged));
    }
}
