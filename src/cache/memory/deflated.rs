//! Deflated content. Holdfast deflates a text once and puts it into the gzip streams of all clients that accept gzip.
//!
//! A deflated text is an entry like any other, with its own weight and the same eviction rules. It belongs to the exact
//! content that it was made of. A lookup names the content to serve, and finds nothing if the text was made of other
//! content. So no order in which entries are removed and replaced can lead to a wrong text.

use std::{
    any::Any,
    ptr,
    sync::{Arc, Weak},
};

use bytes::Bytes;
use crc32fast::Hasher;
use flate2::{Compress, Compression, FlushCompress};

use crate::{
    eth::{Block, BlockWithHashes, Home, Part, Receipts},
    verify::Verified,
};

/// Deflate level. Level 6 compresses mainnet's blocks to a third or less, and their receipts to a tenth. The output of
/// level 4 is up to 8 % larger. Level 9 takes two to four times as long as level 6, and its output is not smaller.
const LEVEL: u32 = 6;

/// Deflate level of a text that is compressed for one client.
const FAST: u32 = 1;

/// Spare bytes of the buffer for the end of a flush. They are more than a flush needs, because a flush that fills the
/// buffer may be incomplete.
const FLUSH: usize = 64;

/// Identifies a text to serve, such as a whole block, by its content. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Whole {
    /// The kind of text: the block with transactions, the block with transaction hashes, or the receipts.
    pub(super) part: Part,
    pub(super) home: Home,
    pub(super) content: Arc<dyn Any + Send + Sync>,
}

/// A deflated text: deflate blocks (RFC 1951) that end on a byte boundary and of which none is final. So other deflate
/// blocks can come before and after the text in a stream.
#[derive(Debug)]
pub struct Deflated {
    bytes: Bytes,
    checksum: Hasher,
    len: usize,
    /// The content that the text was made of. A weak reference keeps the allocation, so that no other content gets the
    /// same address.
    of: Weak<dyn Any + Send + Sync>,
}

// === impl Whole ===

impl Whole {
    /// Identifies the block with full transactions.
    pub fn full(block: &Arc<Verified<Block>>) -> Self {
        Self::of_block(Part::Block, block)
    }

    /// Identifies the block with transaction hashes, cut out of the full block.
    pub fn hashes(block: &Arc<Verified<Block>>) -> Self {
        Self::of_block(Part::BlockWithHashes, block)
    }

    /// Identifies the block with transaction hashes, as the upstream sent it.
    pub fn block_with_hashes(with_hashes: &Arc<Verified<BlockWithHashes>>) -> Self {
        Self { part: Part::BlockWithHashes, home: with_hashes.header().home(), content: with_hashes.clone() }
    }

    /// Identifies all receipts of a block; `None` if the list is empty.
    pub fn receipts(receipts: &Arc<Verified<Receipts>>) -> Option<Self> {
        Some(Self { part: Part::Receipts, home: receipts.named_home()?, content: receipts.clone() })
    }

    fn of_block(part: Part, block: &Arc<Verified<Block>>) -> Self {
        Self { part, home: block.header().home(), content: block.clone() }
    }

    /// Returns a number that is unlikely to equal the fingerprint of another text.
    pub fn fingerprint(&self) -> u64 {
        let bytes = self.home.block.0;
        // A block hash is as good as random, so any eight bytes of it will do.
        let [a, b, c, d, e, f, g, h, ..] = bytes.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h]).rotate_left(self.part as u32)
    }
}

// === impl Deflated ===

impl Deflated {
    /// Deflates `text`, the text of `whole`; `None` if that fails. Takes milliseconds.
    pub fn new(whole: &Whole, text: &[u8]) -> Option<Self> {
        Self::at_level(LEVEL, Arc::downgrade(&whole.content), text)
    }

    /// Deflates a text that only one client gets; `None` if that fails. Takes about 10 ms per megabyte.
    pub fn once(text: &[u8]) -> Option<Self> {
        Self::at_level(FAST, Weak::<()>::new(), text)
    }

    fn at_level(level: u32, of: Weak<dyn Any + Send + Sync>, text: &[u8]) -> Option<Self> {
        let mut deflate = Compress::new(Compression::new(level), false);
        let mut bytes = Vec::with_capacity(text.len() / 2 + FLUSH);
        loop {
            let read = usize::try_from(deflate.total_in()).ok()?;
            deflate.compress_vec(text.get(read..)?, &mut bytes, FlushCompress::Sync).ok()?;
            if deflate.total_in() == text.len() as u64 && bytes.len() < bytes.capacity() {
                break;
            }
            bytes.reserve(text.len() / 4 + FLUSH);
        }
        bytes.shrink_to_fit();
        let mut checksum = Hasher::new();
        checksum.update(text);
        Some(Self { bytes: bytes.into(), checksum, len: text.len(), of })
    }

    /// The deflated text.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// CRC-32 of the original text.
    pub fn checksum(&self) -> &Hasher {
        &self.checksum
    }

    /// Length of the original text in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether the text was made of this exact content.
    pub(super) fn is_of(&self, whole: &Whole) -> bool {
        ptr::addr_eq(self.of.as_ptr(), Arc::as_ptr(&whole.content))
    }

    /// Memory in bytes, including the allocation of the content, which the weak reference retains.
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>() + self.bytes.len() + size_of::<Verified<Block>>()
    }
}

#[cfg(test)]
impl Whole {
    /// Identifies content that does not exist.
    pub(crate) fn of_nothing() -> Self {
        use crate::eth::{BlockHash, BlockNumber};
        let home = Home { block: BlockHash(alloy_primitives::B256::ZERO), number: BlockNumber(0) };
        Self { part: Part::Block, home, content: Arc::new(()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn deflated_part_ends_on_a_byte_and_is_not_final(text in "[0-9a-f]{0,300}", times in 0usize..2000) {
            let text = text.repeat(times);
            let deflated = Deflated::new(&Whole::of_nothing(), text.as_bytes()).unwrap();
            prop_assert_eq!(deflated.len(), text.len());
            prop_assert_eq!(deflated.checksum().clone().finalize(), crc32fast::hash(text.as_bytes()));
            // A flush ends with an empty stored block.
            prop_assert!(text.is_empty() || deflated.bytes().ends_with(&[0, 0, 0xff, 0xff]));
            // Append a final stored block. If the text itself ended in a final block, the decoder would not read the
            // appended block.
            let stream = [deflated.bytes().as_ref(), &[1, 1, 0, 0xfe, 0xff, b'!']].concat();
            let mut decoder = flate2::bufread::DeflateDecoder::new(&stream[..]);
            let mut inflated = String::new();
            std::io::Read::read_to_string(&mut decoder, &mut inflated).unwrap();
            prop_assert!(inflated == text + "!" && decoder.into_inner().is_empty());
        }
    }

    #[test]
    fn new_content_at_a_reused_address_does_not_match() {
        let whole = Whole::of_nothing();
        let deflated = Deflated::new(&whole, b"text").unwrap();
        assert!(deflated.is_of(&whole));
        drop(whole);
        // Without the weak reference, the allocator would reuse the address.
        for _ in 0..1000 {
            assert!(!deflated.is_of(&Whole::of_nothing()));
        }
    }
}
