//! Deterministic random numbers.

use alloy_primitives::{B256, Bytes, keccak256};

/// A deterministic stream of numbers: `SplitMix64` with a keccak seed.
#[derive(Clone, Debug)]
pub(in crate::devchain) struct Dice(u64);

// === impl Dice ===

impl Dice {
    /// Returns the dice for the `n`th item of one `purpose`; streams of different purposes are unrelated.
    pub(in crate::devchain) fn new(seed: u64, purpose: &str, n: u64) -> Self {
        Self::from_hash(digest(seed, purpose, n))
    }

    /// Returns the dice seeded with a hash.
    pub(in crate::devchain) fn from_hash(hash: B256) -> Self {
        let mut first = [0; 8];
        first.copy_from_slice(&hash[..8]);
        Self(u64::from_be_bytes(first))
    }

    /// Returns the next number.
    pub(in crate::devchain) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number in `0..bound`, or 0 when `bound` is 0.
    pub(in crate::devchain) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// Returns `true` with a probability of one in `n`.
    pub(in crate::devchain) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one of `items`.
    pub(in crate::devchain) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let index = self.below(items.len() as u64) as usize;
        &items[index]
    }

    /// Returns 32 bytes.
    pub(in crate::devchain) fn word(&mut self) -> B256 {
        let mut word = B256::ZERO;
        word.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&self.next().to_be_bytes()));
        word
    }

    /// Returns `len` bytes.
    pub(in crate::devchain) fn bytes(&mut self, len: u64) -> Bytes {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Returns a hash for the `n`th item of one `purpose`: a key, an address, or a root that no content belongs to.
pub(in crate::devchain) fn digest(seed: u64, purpose: &str, n: u64) -> B256 {
    keccak256([b"devchain", purpose.as_bytes(), &seed.to_be_bytes(), &n.to_be_bytes()].concat())
}
