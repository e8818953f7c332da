//! Encoding of index entries: checksum, epoch, content.

use redis::Value;

use crate::eth::{BlockHash, BlockNumber, TxPosition};

const SUM: usize = 4;
const EPOCH: usize = 8;

/// Epoch of an index entry. Only entries of the current epoch are valid. Epochs are random, so that none occurs twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch(pub(super) [u8; EPOCH]);

/// Block number and position of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(pub(super) BlockNumber, pub(super) TxPosition);

/// A finalized block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Final(pub(super) BlockNumber, pub(super) BlockHash);

/// Content of an index entry, of fixed length.
pub(super) trait Content: Sized {
    const LENGTH: usize;

    fn write(self, to: &mut Vec<u8>);

    fn read(bytes: &[u8]) -> Option<Self>;
}

/// Length in bytes of an entry with this content.
pub(super) fn length<C: Content>() -> usize {
    SUM + EPOCH + C::LENGTH
}

/// Encodes the entry for `key`, which the checksum covers.
pub(super) fn seal<C: Content>(key: &[u8], epoch: Epoch, content: C) -> Vec<u8> {
    let mut entry = vec![0; SUM];
    entry.extend(epoch.0);
    content.write(&mut entry);
    let sum = sum(key, &entry[SUM..]);
    entry[..SUM].copy_from_slice(&sum);
    entry
}

/// Decodes the entry found under `key`; `None` if the entry is damaged, or if it was written under another key or in
/// another epoch.
pub(super) fn open<C: Content>(key: &[u8], epoch: Epoch, entry: &[u8]) -> Option<C> {
    let (said, rest) = entry.split_first_chunk::<SUM>()?;
    let (of, content) = rest.split_first_chunk()?;
    let counts = content.len() == C::LENGTH && *of == epoch.0 && *said == sum(key, rest);
    if counts { C::read(content) } else { None }
}

fn sum(key: &[u8], rest: &[u8]) -> [u8; SUM] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(rest);
    hasher.finalize().to_be_bytes()
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    bytes.split_first_chunk().map(|(number, rest)| (u64::from_be_bytes(*number), rest))
}

// === impl Epoch ===

impl Epoch {
    pub(super) const LENGTH: usize = EPOCH;

    pub(super) fn random() -> Self {
        Self(fastrand::u64(..).to_be_bytes())
    }

    /// Reads the epoch from Redis's reply; `None` if it is absent or malformed.
    pub(super) fn read(value: &Value) -> Option<Self> {
        match value {
            Value::BulkString(bytes) => bytes.as_slice().try_into().ok().map(Self),
            _ => None,
        }
    }
}

// === impl Content ===

impl Content for BlockHash {
    const LENGTH: usize = 32;

    fn write(self, to: &mut Vec<u8>) {
        to.extend(self.0);
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl Content for Place {
    const LENGTH: usize = 16;

    fn write(self, to: &mut Vec<u8>) {
        to.extend(self.0.0.to_be_bytes());
        to.extend(self.1.0.to_be_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (block, rest) = number(bytes)?;
        let (position, _) = number(rest)?;
        Some(Self(BlockNumber(block), TxPosition(position)))
    }
}

impl Content for Final {
    const LENGTH: usize = 40;

    fn write(self, to: &mut Vec<u8>) {
        to.extend(self.0.0.to_be_bytes());
        to.extend(self.1.0);
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (block, hash) = number(bytes)?;
        Some(Self(BlockNumber(block), BlockHash::read(hash)?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entry_opens_only_whole_with_its_key_and_epoch(
            key: Vec<u8>, block: u64, position: u64, at: usize, bit in 0..8u32, cut: bool,
        ) {
            let (epoch, place) = (Epoch([7; EPOCH]), Place(BlockNumber(block), TxPosition(position)));
            let mut entry = seal(&key, epoch, place);
            prop_assert_eq!(entry.len(), length::<Place>());
            prop_assert_eq!(open(&key, epoch, &entry), Some(place));
            prop_assert_eq!(open::<Place>(&key, Epoch([8; EPOCH]), &entry), None);
            prop_assert_eq!(open::<Place>(&[&key[..], b"x"].concat(), epoch, &entry), None);
            let at = at % entry.len();
            if cut { entry.truncate(at) } else { entry[at] ^= 1 << bit }
            prop_assert_eq!(open::<Place>(&key, epoch, &entry), None);
        }

        #[test]
        fn finalized_block_round_trips(block: u64, hash: [u8; 32]) {
            let (epoch, highest) = (Epoch::random(), Final(BlockNumber(block), BlockHash(hash.into())));
            prop_assert_eq!(open(b"f", epoch, &seal(b"f", epoch, highest)), Some(highest));
            prop_assert_eq!(open(b"n", epoch, &seal(b"n", epoch, highest.1)), Some(highest.1));
        }
    }
}
