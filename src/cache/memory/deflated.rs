//! Content as it goes into a gzip stream: deflated once, for all who take it so.
//!
//! A deflated form is an entry like any other: it has its weight, and is evicted by the same rules. It
//! is tied to the very content that it was made of: whoever looks for it names the content that is being served,
//! and gets nothing if it was made of another, whatever was removed or replaced in between and in whatever order.

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

/// Of mainnet's blocks a third or less remains, of their receipts a tenth. Level 4 leaves up to 8 % more, level 9 takes
/// two to four times as long and leaves more, too.
const LEVEL: u32 = 6;

/// Room for what a flush adds at the end, with some to spare: a flush that fills its room is not known to be complete.
const FLUSH: usize = 64;

/// A whole text that is being served, named by the content that it is of. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Whole {
    /// The block, with transactions or their hashes, or its receipts.
    pub(super) part: Part,
    pub(super) home: Home,
    pub(super) content: Arc<dyn Any + Send + Sync>,
}

/// A text, deflated: a run of blocks of RFC 1951 that ends on a byte and is not final, so that other blocks can
/// stand before and after it.
#[derive(Debug)]
pub struct Deflated {
    bytes: Bytes,
    checksum: Hasher,
    len: usize,
    /// Does not keep the content, but its address: nothing else can come to be there.
    of: Weak<dyn Any + Send + Sync>,
}

// === impl Whole ===

impl Whole {
    /// The whole block.
    pub fn full(block: &Arc<Verified<Block>>) -> Self {
        Self::of_block(Part::Block, block)
    }

    /// The block with the hashes of its transactions, as it is cut out of the whole.
    pub fn hashes(block: &Arc<Verified<Block>>) -> Self {
        Self::of_block(Part::BlockWithHashes, block)
    }

    /// The block with the hashes of its transactions, as it came.
    pub fn block_with_hashes(with_hashes: &Arc<Verified<BlockWithHashes>>) -> Self {
        Self { part: Part::BlockWithHashes, home: with_hashes.header().home(), content: with_hashes.clone() }
    }

    /// All receipts of a block; `None` if there are none.
    pub fn receipts(receipts: &Arc<Verified<Receipts>>) -> Option<Self> {
        Some(Self { part: Part::Receipts, home: receipts.named_home()?, content: receipts.clone() })
    }

    fn of_block(part: Part, block: &Arc<Verified<Block>>) -> Self {
        Self { part, home: block.header().home(), content: block.clone() }
    }

    /// A number that is unlikely to be another's.
    pub fn fingerprint(&self) -> u64 {
        let bytes = self.home.block.0;
        // A block's hash is as good as random: any eight bytes of it will do.
        let [a, b, c, d, e, f, g, h, ..] = bytes.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h]).rotate_left(self.part as u32)
    }
}

// === impl Deflated ===

impl Deflated {
    /// Deflates `text`, which is that of `whole`. Takes milliseconds. `None` if that fails.
    pub fn new(whole: &Whole, text: &[u8]) -> Option<Self> {
        let mut deflate = Compress::new(Compression::new(LEVEL), false);
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
        Some(Self { bytes: bytes.into(), checksum, len: text.len(), of: Arc::downgrade(&whole.content) })
    }

    /// The deflated text.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The checksum of the text itself.
    pub fn checksum(&self) -> &Hasher {
        &self.checksum
    }

    /// How long the text itself is.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Is the text empty?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Was it made of this very content?
    pub(super) fn is_of(&self, whole: &Whole) -> bool {
        ptr::addr_eq(self.of.as_ptr(), Arc::as_ptr(&whole.content))
    }

    /// The memory that it takes, with what stays of its content once that is gone.
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>() + self.bytes.len() + size_of::<Verified<Block>>()
    }
}

#[cfg(test)]
impl Whole {
    /// Names no content that there is.
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
        fn what_is_deflated_ends_on_a_byte_and_is_not_final(text in "[0-9a-f]{0,300}", times in 0usize..2000) {
            let text = text.repeat(times);
            let deflated = Deflated::new(&Whole::of_nothing(), text.as_bytes()).unwrap();
            prop_assert_eq!(deflated.len(), text.len());
            prop_assert_eq!(deflated.checksum().clone().finalize(), crc32fast::hash(text.as_bytes()));
            // An empty stored block: what a flush ends with.
            prop_assert!(text.is_empty() || deflated.bytes().ends_with(&[0, 0, 0xff, 0xff]));
            // A final stored block after it ends the stream: were it final, that would be left over.
            let stream = [deflated.bytes().as_ref(), &[1, 1, 0, 0xfe, 0xff, b'!']].concat();
            let mut decoder = flate2::bufread::DeflateDecoder::new(&stream[..]);
            let mut inflated = String::new();
            std::io::Read::read_to_string(&mut decoder, &mut inflated).unwrap();
            prop_assert!(inflated == text + "!" && decoder.into_inner().is_empty());
        }
    }

    #[test]
    fn another_content_in_the_same_place_is_another_content() {
        let whole = Whole::of_nothing();
        let deflated = Deflated::new(&whole, b"text").unwrap();
        assert!(deflated.is_of(&whole));
        drop(whole);
        // The allocator would gladly give the same address again.
        for _ in 0..1000 {
            assert!(!deflated.is_of(&Whole::of_nothing()));
        }
    }
}
