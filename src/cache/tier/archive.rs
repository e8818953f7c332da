//! Final blocks in one file, to be carried elsewhere.
//!
//! ```text
//! magic, version, chain                                      sum
//! 1, number, hash, length of block, length of receipts       sum    block, receipts
//! …
//! 0, how many there were                                     sum
//! ```
//!
//! Each sum is over all bytes of the file before it: so no length is believed that was damaged, nothing can be cut out or
//! moved, and a file that ends early has no end. The values are [sealed](Sealed) as tiers keep them; a block without
//! receipts has some of length 0. Sums tell damage, not forgery: whoever reads a file checks what it says.

use std::io::{self, Read, Write};

use alloy_primitives::B256;
use bytes::Bytes;

use super::{ChainKey, Sealed};
use crate::eth::{BlockHash, BlockNumber};

const MAGIC: &[u8; 16] = b"holdfast blocks\n";

/// Changes with the shape of the file; what is in it has [its own](super::FORMAT).
const VERSION: u8 = 1;

const BLOCK: u8 = 1;
const END: u8 = 0;

/// Number, hash, both lengths.
const FIELDS: usize = 8 + 32 + 4 + 4;

/// A value is packed, and so not longer than the longest text but for a little.
const LONGEST_VALUE: u32 = 129 << 20;

/// A block as it is carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Where it stands.
    pub number: BlockNumber,
    /// Its hash.
    pub hash: BlockHash,
    /// The block with whole transactions.
    pub block: Sealed,
    /// All its receipts, if they are carried too.
    pub receipts: Option<Sealed>,
}

/// Writes a file of blocks. It is none before it was [finished](Self::finish).
#[derive(Debug)]
pub struct ArchiveWriter<W> {
    into: W,
    sum: crc32fast::Hasher,
    count: u64,
}

/// Reads a file of blocks, one after the other.
#[derive(Debug)]
pub struct ArchiveReader<R> {
    from: R,
    sum: crc32fast::Hasher,
    chain: ChainKey,
    count: u64,
    ended: bool,
}

/// Why a file of blocks cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file cannot be.
    #[error("it cannot be read: {0}")]
    Unreadable(#[source] io::Error),
    /// It is something else.
    #[error("it is not a file that `holdfast export` has written")]
    Foreign,
    /// It is of another version.
    #[error("it is of format {got}, and this version reads format {VERSION}: export it anew")]
    Version {
        /// The version that it names.
        got: u8,
    },
    /// Its end is not there.
    #[error("it ends early, after {blocks} blocks: it was not written or not copied to its end")]
    Truncated {
        /// How many could be read.
        blocks: u64,
    },
    /// It is not what was written.
    #[error("it is damaged, after {blocks} blocks: copy or export it anew")]
    Damaged {
        /// How many could be read.
        blocks: u64,
    },
}

// === impl ArchiveWriter ===

impl<W: Write> ArchiveWriter<W> {
    /// Begins a file of blocks of this chain.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin(into: W, chain: ChainKey) -> io::Result<Self> {
        let mut writer = Self { into, sum: crc32fast::Hasher::new(), count: 0 };
        writer.write(MAGIC)?;
        writer.write(&[VERSION])?;
        writer.write(&chain.to_bytes())?;
        writer.write_sum()?;
        Ok(writer)
    }

    /// Adds a block.
    ///
    /// # Errors
    /// If it cannot be written, or is too long to be read again.
    pub fn put(&mut self, carried: &Carried) -> io::Result<()> {
        let length = |value: &Sealed| {
            let length = u32::try_from(value.bytes().len()).ok().filter(|length| *length <= LONGEST_VALUE);
            length.ok_or_else(|| io::Error::other(format!("block {} is too long", carried.number.0)))
        };
        let receipts = carried.receipts.as_ref();
        self.write(&[BLOCK])?;
        self.write(&carried.number.0.to_be_bytes())?;
        self.write(carried.hash.0.as_slice())?;
        self.write(&length(&carried.block)?.to_be_bytes())?;
        self.write(&receipts.map(length).transpose()?.unwrap_or(0).to_be_bytes())?;
        self.write_sum()?;
        self.write(carried.block.bytes())?;
        if let Some(receipts) = receipts {
            self.write(receipts.bytes())?;
        }
        self.count += 1;
        Ok(())
    }

    /// Ends the file, and hands back what it was written into.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.write(&[END])?;
        self.write(&self.count.to_be_bytes())?;
        self.write_sum()?;
        self.into.flush()?;
        Ok(self.into)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.into.write_all(bytes)
    }

    fn write_sum(&mut self) -> io::Result<()> {
        let sum = self.sum.clone().finalize();
        self.write(&sum.to_be_bytes())
    }
}

// === impl ArchiveReader ===

impl<R: Read> ArchiveReader<R> {
    /// Reads whose blocks they are.
    ///
    /// # Errors
    /// If this is no file of blocks, one of another version, or damaged.
    pub fn begin(from: R) -> Result<Self, ArchiveError> {
        // Until it is known, nothing is read by it.
        let chain = ChainKey { id: 0, genesis: B256::ZERO };
        let mut reader = Self { from, sum: crc32fast::Hasher::new(), chain, count: 0, ended: false };
        let mut magic = [0; MAGIC.len()];
        match reader.fill(&mut magic) {
            Ok(()) if magic == *MAGIC => {}
            Ok(()) | Err(ArchiveError::Truncated { .. }) => return Err(ArchiveError::Foreign),
            Err(error) => return Err(error),
        }
        let [version] = reader.array()?;
        if version != VERSION {
            return Err(ArchiveError::Version { got: version });
        }
        let chain = reader.array()?;
        reader.check_sum()?;
        reader.chain = ChainKey::from_bytes(&chain).ok_or(ArchiveError::Version { got: chain[0] })?;
        Ok(reader)
    }

    /// Whose blocks they are.
    pub fn chain(&self) -> ChainKey {
        self.chain
    }

    /// The next block; `None` after the last, when all of the file was what was written. Takes no more memory than the
    /// file is long, whatever it says.
    ///
    /// # Errors
    /// If there is neither a block nor the end.
    pub fn next_block(&mut self) -> Result<Option<Carried>, ArchiveError> {
        if self.ended {
            return Ok(None);
        }
        match self.array()? {
            [BLOCK] => {}
            [END] => return self.end(),
            _ => return Err(self.damaged()),
        }
        let fields: [u8; FIELDS] = self.array()?;
        self.check_sum()?;
        let (number, rest) = fields.split_first_chunk().ok_or_else(|| self.damaged())?;
        let (hash, rest) = rest.split_first_chunk::<32>().ok_or_else(|| self.damaged())?;
        let (block, rest) = rest.split_first_chunk().ok_or_else(|| self.damaged())?;
        let receipts = rest.first_chunk().ok_or_else(|| self.damaged())?;
        let block = self.value(u32::from_be_bytes(*block))?;
        let receipts = match u32::from_be_bytes(*receipts) {
            0 => None,
            length => Some(self.value(length)?),
        };
        self.count += 1;
        let (number, hash) = (BlockNumber(u64::from_be_bytes(*number)), BlockHash(B256::from(hash)));
        Ok(Some(Carried { number, hash, block, receipts }))
    }

    fn end(&mut self) -> Result<Option<Carried>, ArchiveError> {
        let count = u64::from_be_bytes(self.array()?);
        self.check_sum()?;
        let more = self.from.read(&mut [0]).map_err(ArchiveError::Unreadable)?;
        if count != self.count || more != 0 {
            return Err(self.damaged());
        }
        self.ended = true;
        Ok(None)
    }

    fn value(&mut self, length: u32) -> Result<Sealed, ArchiveError> {
        if length > LONGEST_VALUE {
            return Err(self.damaged());
        }
        // Grows with what is there, not with what is said.
        let mut value = Vec::new();
        let read = (&mut self.from).take(length.into()).read_to_end(&mut value);
        if read.map_err(ArchiveError::Unreadable)? < length as usize {
            return Err(ArchiveError::Truncated { blocks: self.count });
        }
        self.sum.update(&value);
        Ok(Sealed::from(Bytes::from(value)))
    }

    fn check_sum(&mut self) -> Result<(), ArchiveError> {
        let sum = self.sum.clone().finalize();
        if u32::from_be_bytes(self.array()?) == sum { Ok(()) } else { Err(self.damaged()) }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ArchiveError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), ArchiveError> {
        let read = self.from.read_exact(bytes);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ArchiveError::Truncated { blocks: self.count },
            _ => ArchiveError::Unreadable(error),
        })?;
        self.sum.update(bytes);
        Ok(())
    }

    fn damaged(&self) -> ArchiveError {
        ArchiveError::Damaged { blocks: self.count }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHAIN: ChainKey = ChainKey { id: 5, genesis: B256::repeat_byte(9) };

    fn carried() -> impl Strategy<Value = Vec<Carried>> {
        let block = (any::<u64>(), any::<[u8; 32]>(), any::<Vec<u8>>(), any::<Option<Vec<u8>>>());
        let block = block.prop_map(|(number, hash, block, receipts)| Carried {
            number: BlockNumber(number),
            hash: BlockHash(hash.into()),
            block: Sealed::new(&block).unwrap(),
            receipts: receipts.map(|receipts| Sealed::new(&receipts).unwrap()),
        });
        proptest::collection::vec(block, 0..5)
    }

    fn write(blocks: &[Carried]) -> Vec<u8> {
        let mut writer = ArchiveWriter::begin(Vec::new(), CHAIN).unwrap();
        for block in blocks {
            writer.put(block).unwrap();
        }
        writer.finish().unwrap()
    }

    fn read(file: &[u8]) -> Result<(ChainKey, Vec<Carried>), ArchiveError> {
        let mut reader = ArchiveReader::begin(file)?;
        let mut blocks = Vec::new();
        while let Some(block) = reader.next_block()? {
            blocks.push(block);
        }
        assert!(reader.next_block()?.is_none(), "the end stays the end");
        Ok((reader.chain(), blocks))
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(blocks in carried()) {
            prop_assert_eq!(read(&write(&blocks)).unwrap(), (CHAIN, blocks));
        }

        #[test]
        fn a_file_with_any_bit_changed_is_refused(blocks in carried(), at: usize, bit in 0..8u32) {
            let mut file = write(&blocks);
            let at = at % file.len();
            file[at] ^= 1 << bit;
            prop_assert!(read(&file).is_err());
        }

        #[test]
        fn a_file_that_ends_early_is_refused_and_so_is_one_that_does_not_end(blocks in carried(), at: usize) {
            let mut file = write(&blocks);
            file.push(0);
            let refused = read(&file);
            prop_assert!(matches!(refused, Err(ArchiveError::Damaged { .. })), "{:?}", refused);
            file.truncate(at % (file.len() - 1));
            let refused = read(&file);
            prop_assert!(
                matches!(refused, Err(ArchiveError::Truncated { .. } | ArchiveError::Foreign)),
                "{:?}", refused
            );
        }

        #[test]
        fn garbage_is_refused(begun: bool, tag in 0..3u8, garbage: Vec<u8>) {
            let head = if begun { ArchiveWriter::begin(Vec::new(), CHAIN).unwrap().into } else { Vec::new() };
            prop_assert!(read(&[head, vec![tag], garbage].concat()).is_err());
        }
    }

    #[test]
    fn what_cannot_be_so_long_is_not_read_whatever_its_sum() {
        for (length, refusal) in [(LONGEST_VALUE + 1, "damaged"), (LONGEST_VALUE, "ends early")] {
            let mut writer = ArchiveWriter::begin(Vec::new(), CHAIN).unwrap();
            writer.write(&[BLOCK]).unwrap();
            writer.write(&[0; 40]).unwrap();
            writer.write(&length.to_be_bytes()).unwrap();
            writer.write(&[0; 4]).unwrap();
            writer.write_sum().unwrap();
            let error = read(&writer.into).unwrap_err().to_string();
            assert!(error.contains(refusal), "{error}");
        }
    }

    #[test]
    fn another_version_is_told_apart_from_what_is_no_such_file() {
        let mut file = write(&[]);
        file[MAGIC.len()] += 1;
        let error = read(&file).unwrap_err().to_string();
        assert_eq!(error, "it is of format 2, and this version reads format 1: export it anew");
        assert!(matches!(read(b"{\"jsonrpc\":\"2.0\",\"id\":1}"), Err(ArchiveError::Foreign)));
        assert!(matches!(read(b""), Err(ArchiveError::Foreign)));
    }
}
