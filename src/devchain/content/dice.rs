//! Chance that always falls the same way.

use alloy_primitives::{B256, Bytes, keccak256};

/// A stream of numbers decided by what it was made from: `SplitMix64` behind a keccak seed.
#[derive(Clone, Debug)]
pub(in crate::devchain) struct Dice(u64);

// === impl Dice ===

impl Dice {
    /// The dice for the `n`th thing of one `purpose`; streams of different purposes are unrelated.
    pub(in crate::devchain) fn new(seed: u64, purpose: &str, n: u64) -> Self {
        Self::from_hash(digest(seed, purpose, n))
    }

    /// The dice that belong to a hash.
    pub(in crate::devchain) fn from_hash(hash: B256) -> Self {
        let mut first = [0; 8];
        first.copy_from_slice(&hash[..8]);
        Self(u64::from_be_bytes(first))
    }

    /// The next number.
    pub(in crate::devchain) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`, or 0 when `bound` is 0.
    pub(in crate::devchain) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// True once in `n` throws.
    pub(in crate::devchain) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of `items`.
    pub(in crate::devchain) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let index = self.below(items.len() as u64) as usize;
        &items[index]
    }

    /// Thirty-two bytes.
    pub(in crate::devchain) fn word(&mut self) -> B256 {
        let mut word = B256::ZERO;
        word.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&self.next().to_be_bytes()));
        word
    }

    /// `len` bytes.
    pub(in crate::devchain) fn bytes(&mut self, len: u64) -> Bytes {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// A hash for the `n`th thing of one `purpose`: a key, an address, a root nobody can recompute.
pub(in crate::devchain) fn digest(seed: u64, purpose: &str, n: u64) -> B256 {
    keccak256([b"devchain", purpose.as_bytes(), &seed.to_be_bytes(), &n.to_be_bytes()].concat())
}
