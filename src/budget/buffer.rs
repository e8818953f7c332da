//! A buffer that takes memory from the byte budget before it allocates.

use bytes::Bytes;

use super::{bytes::ByteLease, clients::Exhausted};

/// Read buffer whose memory a [`ByteLease`] counts. The lease counts the allocated capacity rather than the bytes read,
/// because a small compressed response can expand to any size. While the buffer reallocates, the lease counts both the
/// old and the new allocation.
#[derive(Debug)]
pub struct LeasedBuffer {
    buffer: Vec<u8>,
    max: usize,
}

// === impl LeasedBuffer ===

impl LeasedBuffer {
    /// Creates an empty buffer. A full buffer doubles its capacity up to `max` bytes; beyond that, it grows only by the
    /// bytes it needs.
    pub fn new(max: usize) -> Self {
        Self { buffer: Vec::new(), max }
    }

    /// Number of bytes read so far.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Returns whether the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Grows the capacity to at least `bytes`.
    ///
    /// # Errors
    /// If the budget does not allow the lease to grow by `bytes`. The lease must cover the old and the new allocation
    /// while the content moves from one to the other.
    pub fn reserve(&mut self, bytes: usize, lease: &mut ByteLease) -> Result<(), Exhausted> {
        let before = self.buffer.capacity();
        if bytes <= before {
            return Ok(());
        }
        lease.grow(bytes)?;
        self.buffer.reserve_exact(bytes - self.buffer.len());
        lease.hold(lease.held() - before);
        Ok(())
    }

    /// Appends a chunk.
    ///
    /// # Errors
    /// If the budget does not allow the lease to cover the chunk.
    pub fn append(&mut self, chunk: &[u8], lease: &mut ByteLease) -> Result<(), Exhausted> {
        let needed = self.buffer.len() + chunk.len();
        // Doubling the capacity avoids a copy of the buffer for each chunk. If the budget does not allow that, allocate
        // only the bytes needed.
        let ample = needed.max(self.max.min(self.buffer.capacity() * 2));
        self.reserve(ample, lease).or_else(|_| self.reserve(needed, lease))?;
        self.buffer.extend_from_slice(chunk);
        Ok(())
    }

    /// Releases the spare capacity, shrinks the lease by it, and returns the bytes.
    pub fn finish(mut self, lease: &mut ByteLease) -> Bytes {
        let before = self.buffer.capacity();
        self.buffer.shrink_to_fit();
        lease.hold(lease.held() - (before - self.buffer.capacity()));
        Bytes::from(self.buffer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::budget::{ByteBudget, SMALL};

    proptest! {
        #[test]
        fn all_allocated_bytes_are_counted(chunks in vec(1..200_000_usize, 0..40), max in 0..8_000_000_u64) {
            let bytes = ByteBudget::new(max, None);
            let mut lease = bytes.lease(None);
            let mut buffer = LeasedBuffer::new(4 << 20);
            let mut whole = Vec::new();
            for chunk in chunks {
                let chunk = vec![chunk as u8; chunk];
                let before = buffer.buffer.capacity();
                let appended = buffer.append(&chunk, &mut lease);
                let after = buffer.buffer.capacity();
                prop_assert_eq!(lease.held(), after);
                if appended.is_err() {
                    prop_assert_eq!(before, after);
                    prop_assert!((before + whole.len() + chunk.len()) as u64 > max, "the budget had room");
                    break;
                }
                // During a reallocation, the old and the new buffer exist at the same time.
                let most = if after > before { before + after } else { after };
                prop_assert!(most as u64 <= max.max(SMALL as u64));
                whole.extend_from_slice(&chunk);
            }
            let length = buffer.len();
            let read = buffer.finish(&mut lease);
            prop_assert_eq!((read.len(), lease.held()), (length, length));
            prop_assert_eq!(read, whole);
        }
    }
}
