//! A body made of pieces: small pieces are copied together, and large pieces are referenced.

use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Size from which a piece is cheaper to reference than to copy.
const REFERENCE_FROM: usize = 4096;

/// Smallest capacity of a buffer for copied pieces, except the first buffer. A full buffer is followed by a new buffer,
/// because growing it would move its bytes.
const TOGETHER: usize = 16 * 1024;

/// A sequence of byte pieces, written to a socket with one vectored write.
#[derive(Clone, Debug, Default)]
pub struct Rope {
    /// The first piece. Most answers have only this piece, and so need no list.
    front: Bytes,
    /// The other pieces, in reverse order.
    rest: Vec<Bytes>,
    remaining: usize,
}

/// Collects a [`Rope`].
#[derive(Debug, Default)]
pub struct RopeWriter {
    whole: Vec<Bytes>,
    tail: BytesMut,
    len: usize,
}

// === impl Rope ===

impl Rope {
    /// Returns the number of bytes left to read.
    pub fn len(&self) -> usize {
        self.remaining
    }

    /// Returns whether no bytes are left to read.
    pub fn is_empty(&self) -> bool {
        self.remaining == 0
    }

    /// Takes up to `max` bytes of the first piece, without copying.
    pub fn take_piece(&mut self, max: usize) -> Bytes {
        let piece = self.front.split_to(self.front.len().min(max));
        self.remaining -= piece.len();
        self.next_if_empty();
        piece
    }

    fn next_if_empty(&mut self) {
        while self.front.is_empty() {
            match self.rest.pop() {
                Some(next) => self.front = next,
                None => return,
            }
        }
    }
}

impl From<Bytes> for Rope {
    fn from(front: Bytes) -> Self {
        Self { remaining: front.len(), front, rest: Vec::new() }
    }
}

impl Buf for Rope {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        &self.front
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let pieces =
            std::iter::once(&self.front).chain(self.rest.iter().rev()).filter(|piece| !piece.is_empty());
        let mut filled = 0;
        for (slice, piece) in slices.iter_mut().zip(pieces) {
            *slice = IoSlice::new(piece);
            filled += 1;
        }
        filled
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.remaining, "advanced past the end");
        self.remaining -= count;
        while count > 0 {
            let step = count.min(self.front.len());
            self.front.advance(step);
            count -= step;
            self.next_if_empty();
        }
    }
}

// === impl RopeWriter ===

impl RopeWriter {
    /// Returns the number of bytes written so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reserves space for `copied` bytes, and for a piece of `piece` bytes if that piece is small enough to be copied.
    pub(super) fn reserve(&mut self, copied: usize, piece: usize) {
        let more = copied + if piece < REFERENCE_FROM { piece } else { 0 };
        if more <= self.tail.capacity() - self.tail.len() {
            return;
        }
        // The first buffer gets no spare room, because the first reply is often the only reply.
        let room = if self.len == 0 { more } else { more.max(TOGETHER) };
        self.flush();
        self.tail = BytesMut::with_capacity(room);
    }

    /// Appends a copy of `bytes`, of any size.
    pub fn copy(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        self.tail.extend_from_slice(bytes);
    }

    /// Appends `bytes`: copies a small piece, and references a large piece.
    pub fn push(&mut self, bytes: Bytes) {
        if bytes.len() < REFERENCE_FROM {
            return self.copy(&bytes);
        }
        self.len += bytes.len();
        self.flush();
        self.whole.push(bytes);
    }

    /// Returns all pieces in the order in which they were written.
    pub fn finish(mut self) -> Rope {
        if self.whole.is_empty() {
            return self.tail.freeze().into();
        }
        self.flush();
        self.whole.reverse();
        let front = self.whole.pop().unwrap_or_default();
        Rope { front, rest: self.whole, remaining: self.len }
    }

    fn flush(&mut self) {
        if !self.tail.is_empty() {
            self.whole.push(std::mem::take(&mut self.tail).freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rope_yields_the_written_bytes(
            pieces in proptest::collection::vec((0usize..3 * REFERENCE_FROM, any::<u8>()), 0..8),
            steps in proptest::collection::vec(1usize..2 * REFERENCE_FROM, 1..8),
        ) {
            let mut writer = RopeWriter::default();
            let mut flat = Vec::new();
            for (len, byte) in pieces {
                let piece = vec![byte; len];
                flat.extend_from_slice(&piece);
                writer.push(piece.into());
            }
            prop_assert_eq!(writer.len(), flat.len());
            let rope = writer.finish();

            let mut slices = [IoSlice::new(&[]); 32];
            let filled = rope.chunks_vectored(&mut slices);
            let gathered: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect();
            prop_assert_eq!(&gathered, &flat);

            let mut by_advance = rope.clone();
            let mut by_piece = rope;
            let mut read = Vec::new();
            let mut taken = Vec::new();
            for step in steps.into_iter().cycle() {
                if by_advance.is_empty() && by_piece.is_empty() {
                    break;
                }
                let step_now = step.min(by_advance.remaining());
                read.extend_from_slice(&by_advance.copy_to_bytes(step_now));
                taken.extend_from_slice(&by_piece.take_piece(step));
            }
            prop_assert_eq!(&read, &flat);
            prop_assert_eq!(&taken, &flat);
        }
    }
}
