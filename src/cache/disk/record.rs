//! A record of a segment: head, transaction hashes, value.

use std::{fs::File, io, os::unix::fs::FileExt};

use alloy_primitives::B256;
use bytes::Bytes;

use crate::{
    cache::tier::{ChainKey, Part, Record},
    eth::{BlockHash, BlockNumber, TxHash},
};

/// Length of the fields of a head: kind, number, hash, number of transactions, length of the value.
pub(super) const FIELDS: usize = 1 + 8 + 32 + 4 + 4;

/// Length of a head: the fields, and a checksum of them and of the transaction hashes.
pub(super) const HEAD: usize = FIELDS + 4;

const HASH: usize = size_of::<B256>();

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The record stores this part.
    Kept(Part),
    /// The record removes this part, which an earlier record stored.
    Removed(Part),
}

/// Head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) number: BlockNumber,
    pub(super) hash: BlockHash,
    /// Offset of the record in the segment.
    pub(super) at: u32,
    /// Number of transactions.
    pub(super) transactions: u32,
    /// Length of the value in bytes.
    pub(super) length: u32,
}

/// Chain and segment of a record. The checksum covers them and the offset, so a record copied to another place does not
/// match its checksum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) chain: ChainKey,
    pub(super) segment: u32,
}

/// A record to be written. Its offset is not known yet.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) head: Head,
    pub(super) transactions: Vec<TxHash>,
    value: Bytes,
}

// === impl Kind ===

impl Kind {
    fn to_byte(self) -> u8 {
        match self {
            Self::Kept(Part::Block) => 1,
            Self::Kept(Part::Receipts) => 2,
            Self::Removed(Part::Block) => 3,
            Self::Removed(Part::Receipts) => 4,
            Self::Kept(Part::Header) => 5,
            Self::Removed(Part::Header) => 6,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Kept(Part::Block),
            2 => Self::Kept(Part::Receipts),
            3 => Self::Removed(Part::Block),
            4 => Self::Removed(Part::Receipts),
            5 => Self::Kept(Part::Header),
            6 => Self::Removed(Part::Header),
            _ => return None,
        })
    }
}

// === impl Head ===

impl Head {
    pub(super) fn to_bytes(self) -> [u8; FIELDS] {
        let mut bytes = [0; FIELDS];
        bytes[0] = self.kind.to_byte();
        bytes[1..9].copy_from_slice(&self.number.0.to_le_bytes());
        bytes[9..41].copy_from_slice(self.hash.0.as_slice());
        bytes[41..45].copy_from_slice(&self.transactions.to_le_bytes());
        bytes[45..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// Decodes the fields of a head at offset `at`. The caller checks the checksum.
    pub(super) fn from_bytes(bytes: &[u8; FIELDS], at: u64) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (hash, rest) = rest.split_first_chunk::<HASH>()?;
        let (transactions, rest) = rest.split_first_chunk()?;
        Some(Self {
            kind: Kind::from_byte(*kind)?,
            number: BlockNumber(u64::from_le_bytes(*number)),
            hash: BlockHash(B256::from(hash)),
            at: u32::try_from(at).ok()?,
            transactions: u32::from_le_bytes(*transactions),
            length: u32::from_le_bytes(*rest.first_chunk()?),
        })
    }

    /// Returns the offset of the hash of the `nth` transaction.
    pub(super) fn transaction_at(&self, nth: u32) -> Option<u64> {
        (nth < self.transactions).then(|| u64::from(self.at) + HEAD as u64 + u64::from(nth) * HASH as u64)
    }

    /// Offset of the next record.
    pub(super) fn end(&self) -> u64 {
        self.value_at() + u64::from(self.length)
    }

    fn value_at(&self) -> u64 {
        u64::from(self.at) + HEAD as u64 + u64::from(self.transactions) * HASH as u64
    }

    fn sum(&self, stamp: Stamp, transactions: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&stamp.chain.to_bytes());
        hasher.update(&stamp.segment.to_le_bytes());
        hasher.update(&self.at.to_le_bytes());
        hasher.update(&self.to_bytes());
        hasher.update(transactions);
        hasher.finalize()
    }

    /// Reads the head at offset `at` and its transaction hashes. Returns `None` if the head is damaged, or if the
    /// record does not fit into the file, which has `length` bytes.
    pub(super) fn read(
        file: &File,
        stamp: Stamp,
        at: u64,
        length: u64,
    ) -> io::Result<Option<(Self, Vec<TxHash>)>> {
        if at.saturating_add(HEAD as u64) > length {
            return Ok(None);
        }
        let mut bytes = [0; HEAD];
        file.read_exact_at(&mut bytes, at)?;
        let head = bytes.first_chunk().and_then(|fields| Self::from_bytes(fields, at));
        // Check the length before allocating memory, because a damaged number of transactions may be huge.
        let Some(head) = head.filter(|head| head.end() <= length) else { return Ok(None) };
        let mut transactions = vec![0; head.transactions as usize * HASH];
        file.read_exact_at(&mut transactions, at + HEAD as u64)?;
        let is_whole = bytes.ends_with(&head.sum(stamp, &transactions).to_le_bytes());
        Ok(is_whole.then(|| {
            let hashes = transactions.as_chunks::<HASH>().0.iter();
            (head, hashes.map(|hash| TxHash(B256::from(hash))).collect())
        }))
    }

    /// Reads the value of this record; `None` if the file no longer holds this record.
    pub(super) fn read_value(&self, file: &File, stamp: Stamp) -> io::Result<Option<Bytes>> {
        // Do not allocate memory for a record that a truncated file no longer holds.
        if file.metadata()?.len() < self.end() {
            return Ok(None);
        }
        let (before, all) = (self.value_at() - u64::from(self.at), self.end() - u64::from(self.at));
        let mut record = vec![0; all as usize];
        file.read_exact_at(&mut record, u64::from(self.at))?;
        let is_ours = record.split_first_chunk::<HEAD>().is_some_and(|(head, rest)| {
            let transactions = rest.get(..before as usize - HEAD).unwrap_or_default();
            head.starts_with(&self.to_bytes()) && head.ends_with(&self.sum(stamp, transactions).to_le_bytes())
        });
        Ok(is_ours.then(|| Bytes::from(record).slice(before as usize..)))
    }
}

// === impl Draft ===

impl Draft {
    /// Drafts a record that stores a part; `None` if a length exceeds 32 bits.
    pub(super) fn keep(record: Record) -> Option<Self> {
        let value = record.value.bytes().clone();
        let transactions = record.transactions;
        let head = Head {
            kind: Kind::Kept(record.part),
            number: record.home.number,
            hash: record.home.block,
            at: 0,
            transactions: u32::try_from(transactions.len()).ok()?,
            length: u32::try_from(value.len()).ok()?,
        };
        Some(Self { head, transactions, value })
    }

    /// Drafts a record that removes a part.
    pub(super) fn remove(part: Part, number: BlockNumber, hash: BlockHash) -> Self {
        let head = Head { kind: Kind::Removed(part), number, hash, at: 0, transactions: 0, length: 0 };
        Self { head, transactions: Vec::new(), value: Bytes::new() }
    }

    /// Size of the record in bytes.
    pub(super) fn size(&self) -> u64 {
        self.head.end() - u64::from(self.head.at)
    }

    /// Encodes the record for offset `at`.
    pub(super) fn to_bytes(&self, stamp: Stamp, at: u32) -> Vec<u8> {
        let head = Head { at, ..self.head };
        let transactions: Vec<u8> = self.transactions.iter().flat_map(|hash| hash.0).collect();
        let sum = head.sum(stamp, &transactions).to_le_bytes();
        [&head.to_bytes()[..], &sum, &transactions, &self.value].concat()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        cache::{disk::scratch::Scratch, tier::Sealed},
        eth::Home,
    };

    const AT: u32 = 7;

    fn stamp(id: u64, segment: u32) -> Stamp {
        Stamp { chain: ChainKey { id, genesis: B256::ZERO }, segment }
    }

    fn draft() -> Draft {
        let record = Record {
            home: Home { number: BlockNumber(5), block: BlockHash(B256::repeat_byte(5)) },
            part: Part::Block,
            transactions: vec![TxHash(B256::repeat_byte(1)), TxHash(B256::repeat_byte(2))],
            value: Sealed::from(Bytes::from_static(b"value")),
        };
        Draft::keep(record).unwrap()
    }

    fn file(folder: &Scratch, bytes: &[u8]) -> (File, u64) {
        let path = folder.join("record");
        fs::write(&path, [&[0; AT as usize][..], bytes].concat()).unwrap();
        (File::open(path).unwrap(), AT as u64 + bytes.len() as u64)
    }

    #[test]
    fn record_is_read_only_in_its_chain_segment_and_offset() {
        let folder = Scratch::new();
        let draft = draft();
        let bytes = draft.to_bytes(stamp(1, 3), AT);
        assert_eq!(bytes.len() as u64, draft.size());
        let (file, length) = file(&folder, &bytes);
        let read = |stamp, at| Head::read(&file, stamp, at, length).unwrap();
        let (head, transactions) = read(stamp(1, 3), AT.into()).unwrap();
        assert_eq!(head, Head { at: AT, ..draft.head });
        assert_eq!((transactions, head.end()), (draft.transactions, length));
        assert_eq!(head.read_value(&file, stamp(1, 3)).unwrap(), Some(Bytes::from_static(b"value")));
        assert_eq!(read(stamp(2, 3), AT.into()), None, "another chain");
        assert_eq!(read(stamp(1, 4), AT.into()), None, "another segment");
        assert_eq!(read(stamp(1, 3), length), None, "past the end");
        let moved = Head { at: AT - 1, ..head };
        assert_eq!(moved.read_value(&file, stamp(1, 3)).unwrap(), None);
    }

    #[test]
    fn damaged_record_is_not_read() {
        let folder = Scratch::new();
        let draft = draft();
        let whole = draft.to_bytes(stamp(1, 3), AT);
        let head = Head { at: AT, ..draft.head };
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x80;
            let (file, length) = file(&folder, &bytes);
            let is_value = at >= whole.len() - b"value".len();
            assert_eq!(
                Head::read(&file, stamp(1, 3), AT.into(), length).unwrap().is_some(),
                is_value,
                "byte {at}"
            );
            assert_eq!(head.read_value(&file, stamp(1, 3)).unwrap().is_some(), is_value, "byte {at}");
            let (file, length) = self::file(&folder, &whole[..at]);
            assert_eq!(Head::read(&file, stamp(1, 3), AT.into(), length).unwrap(), None, "only {at} bytes");
            assert_eq!(head.read_value(&file, stamp(1, 3)).unwrap(), None, "only {at} bytes");
        }
    }
}
