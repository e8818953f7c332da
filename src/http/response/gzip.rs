//! Builds a gzip stream (RFC 1952) from parts that the cache has already deflated.
//!
//! A deflate stream is a sequence of blocks, and a block may be stored uncompressed. Text that differs in each
//! response, such as ids and brackets, goes into stored blocks. Deflated parts go between these blocks unchanged,
//! because each part begins and ends on a byte boundary and refers to no earlier data. This module compresses nothing,
//! and neither reads nor copies the deflated parts: it combines their known checksums with that of the stored text.

use std::sync::Arc;

use bytes::Buf;
use crc32fast::Hasher;

use crate::{
    cache::Deflated,
    jsonrpc::{Rope, RopeWriter},
};

/// The gzip header: method deflate, no file name, no time, unknown operating system.
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// Largest size of a stored block. Its length field has sixteen bits.
const MOST_STORED: usize = 0xffff;

/// A part of a plain text that also exists in deflated form, and its position in the text.
#[derive(Clone, Debug)]
pub(in crate::http) struct Mark {
    pub(in crate::http) start: usize,
    pub(in crate::http) deflated: Arc<Deflated>,
}

struct Stitcher {
    out: RopeWriter,
    /// Checksum of the plain text so far.
    checksum: Hasher,
    plain: Rope,
    read: usize,
}

/// Returns `plain` as a gzip stream. The marks must be in order and must not overlap.
pub(in crate::http) fn stitch(plain: Rope, marks: &[Mark]) -> Rope {
    let size = plain.len();
    let mut stitcher = Stitcher { out: RopeWriter::default(), checksum: Hasher::new(), plain, read: 0 };
    stitcher.out.copy(&HEAD);
    for Mark { start, deflated } in marks {
        stitcher.store(start - stitcher.read, false);
        stitcher.insert(deflated);
    }
    stitcher.store(size - stitcher.read, true);
    let Stitcher { mut out, checksum, .. } = stitcher;
    out.copy(&checksum.finalize().to_le_bytes());
    // The length modulo 2³², as the RFC defines it.
    out.copy(&(size as u32).to_le_bytes());
    out.finish()
}

// === impl Stitcher ===

impl Stitcher {
    /// Writes the next `count` bytes of the plain text as stored blocks. If `is_last`, the last block ends the
    /// stream.
    fn store(&mut self, mut count: usize, is_last: bool) {
        self.read += count;
        while count > 0 || is_last {
            let len = count.min(MOST_STORED);
            count -= len;
            let is_final = is_last && count == 0;
            let bits = len as u16;
            self.out.copy(&[u8::from(is_final)]);
            self.out.copy(&bits.to_le_bytes());
            self.out.copy(&(!bits).to_le_bytes());
            let mut left = len;
            while left > 0 {
                let piece = self.plain.take_piece(left);
                left -= piece.len();
                self.checksum.update(&piece);
                self.out.push(piece);
            }
            if is_final {
                return;
            }
        }
    }

    /// Writes a deflated part in place of the plain bytes that it represents.
    fn insert(&mut self, deflated: &Deflated) {
        debug_assert_eq!(
            self.plain.clone().copy_to_bytes(deflated.len()).chunk(),
            inflated(deflated),
            "the deflated part differs from the plain text"
        );
        self.plain.advance(deflated.len());
        self.read += deflated.len();
        self.checksum.combine(deflated.checksum());
        self.out.push(deflated.bytes().clone());
    }
}

/// Returns the text of a deflated part. Only debug builds use this function, to compare each part with the plain text
/// that it replaces.
fn inflated(deflated: &Deflated) -> Vec<u8> {
    let mut text = Vec::with_capacity(deflated.len() + 1);
    let mut inflate = flate2::Decompress::new(false);
    let _ = inflate.decompress_vec(deflated.bytes(), &mut text, flate2::FlushDecompress::Sync);
    text
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use bytes::Bytes;
    use flate2::read::{GzDecoder, MultiGzDecoder};
    use proptest::prelude::*;

    use super::*;
    use crate::{
        cache::Whole,
        jsonrpc::{Answer, Entry, Packet, RawId, ReplyWriter},
    };

    fn text(rope: &Rope) -> Vec<u8> {
        rope.clone().copy_to_bytes(rope.len()).to_vec()
    }

    fn deflated(text: &[u8]) -> Arc<Deflated> {
        Arc::new(Deflated::new(&Whole::of_nothing(), text).unwrap())
    }

    fn decoded(stream: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        MultiGzDecoder::new(stream).read_to_end(&mut all).unwrap();
        let mut one = Vec::new();
        let mut decoder = GzDecoder::new(stream);
        decoder.read_to_end(&mut one).unwrap();
        assert!(one == all && decoder.into_inner().is_empty(), "there is more than one gzip member");
        all
    }

    /// Returns random text; a smaller alphabet compresses better.
    fn body(len: usize, seed: u64, alphabet: u8) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..len).map(|_| b'0' + random.u8(0..alphabet)).collect()
    }

    fn id(text: &str) -> RawId {
        let body = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{text},"method":"m"}}"#));
        match Packet::read(&body, 1).unwrap() {
            Packet::Single(Entry::Call(call)) => call.id.unwrap(),
            packet => panic!("{packet:?}"),
        }
    }

    proptest! {
        #[test]
        fn a_stream_decodes_to_the_plain_text(
            answers in proptest::collection::vec(
                (
                    prop_oneof![0usize..3000, Just(65_535), 65_530usize..65_540, 60_000usize..200_000],
                    any::<u64>(),
                    1u8..70,
                    any::<bool>(),
                    prop_oneof!["-?[1-9][0-9]{0,30}", "\\PC{0,40}".prop_map(|text| serde_json::json!(text).to_string())],
                ),
                1..8
            ),
            is_batch: bool,
        ) {
            let mut writer = if is_batch { ReplyWriter::batch() } else { ReplyWriter::single() };
            let mut marks = Vec::new();
            let most = if is_batch { answers.len() } else { 1 };
            for (len, seed, alphabet, is_deflated, text) in &answers[..most] {
                let bytes = body(*len, *seed, *alphabet);
                let deflated = is_deflated.then(|| deflated(&bytes));
                let start = writer.write(&id(text), Answer::Result(bytes.into()));
                marks.extend(deflated.map(|deflated| Mark { start, deflated }));
            }
            let plain = writer.finish().unwrap();
            let stream = stitch(plain.clone(), &marks);
            prop_assert_eq!(stream.len(), text(&stream).len());
            prop_assert!(decoded(&text(&stream)) == text(&plain));
        }
    }

    #[test]
    fn marks_may_be_adjacent_and_cover_both_ends() {
        let parts = [body(5000, 1, 16), body(70_000, 2, 16)];
        let marks = [
            Mark { start: 0, deflated: deflated(&parts[0]) },
            Mark { start: 5000, deflated: deflated(&parts[1]) },
        ];
        let plain = Rope::from(Bytes::from(parts.concat()));
        let stream = stitch(plain.clone(), &marks);
        assert!(decoded(&text(&stream)) == text(&plain));
        assert!(stream.len() < plain.len() * 6 / 10, "{} bytes of {}", stream.len(), plain.len());
        assert!(decoded(&text(&stitch(Rope::default(), &[]))).is_empty());
    }

    #[test]
    #[should_panic(expected = "the deflated part differs from the plain text")]
    fn stitching_other_text_panics_in_debug_builds() {
        let mark = Mark { start: 0, deflated: deflated(b"0123") };
        stitch(Rope::from(Bytes::from_static(b"0124")), &[mark]);
    }
}
