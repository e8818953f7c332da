//! Bloom filter of the transactions of a segment. It detects most absent transactions without a read from the disk.

/// A blocked Bloom filter: all bits of a key are in one line of 64 bytes, so a lookup touches one line of the CPU
/// cache.
#[derive(Debug)]
pub(super) struct Filter(Vec<Line>);

type Line = [u64; 8];

/// Length of a line in the file, in bytes.
pub(super) const LINE: usize = size_of::<Line>();

/// Number of bits of the filter per key. Each key sets six bits, so about one in a hundred absent keys passes.
const BITS_PER_KEY: u64 = 10;

// === impl Filter ===

impl Filter {
    /// Number of lines of a filter for this many keys.
    pub(super) fn lines(keys: u64) -> u64 {
        (keys * BITS_PER_KEY).div_ceil(LINE as u64 * 8).max(1)
    }

    pub(super) fn new(keys: impl ExactSizeIterator<Item = u64>) -> Self {
        let mut filter = Self(vec![Line::default(); Self::lines(keys.len() as u64) as usize]);
        for key in keys {
            let (line, bits) = filter.bits(key);
            if let Some(line) = filter.0.get_mut(line) {
                bits.for_each(|bit| line[bit / 64] |= 1 << (bit % 64));
            }
        }
        filter
    }

    /// Returns whether the filter may contain `key`. If this is `false`, the filter does not contain it.
    pub(super) fn may_have(&self, key: u64) -> bool {
        let (line, mut bits) = self.bits(key);
        self.0.get(line).is_some_and(|line| bits.all(|bit| line[bit / 64] & (1 << (bit % 64)) != 0))
    }

    pub(super) fn to_bytes(&self) -> impl Iterator<Item = u8> {
        self.0.iter().flatten().flat_map(|word| word.to_le_bytes())
    }

    /// Decodes the bytes that [`to_bytes`](Self::to_bytes) returned.
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let words = |line: &[u8; LINE]| {
            let words = line.as_chunks().0;
            std::array::from_fn(|nth| u64::from_le_bytes(words[nth]))
        };
        Self(bytes.as_chunks().0.iter().map(words).collect())
    }

    fn bits(&self, key: u64) -> (usize, impl Iterator<Item = usize> + use<>) {
        let line = (u128::from(mix(key)) * self.0.len() as u128) >> 64;
        let bits = mix(!key);
        (line as usize, (0..6).map(move |nth| (bits >> (nth * 9)) as usize % (LINE * 8)))
    }
}

/// Maps similar keys to very different numbers (the finalizer of SplitMix64).
fn mix(key: u64) -> u64 {
    let key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_passes_its_keys_and_few_others() {
        let keys: Vec<u64> = (0..10_000).map(|key| key * 7).collect();
        let made = Filter::new(keys.iter().copied());
        let bytes: Vec<u8> = made.to_bytes().collect();
        assert_eq!(bytes.len() as u64, Filter::lines(10_000) * LINE as u64);
        let filter = Filter::from_bytes(&bytes);
        assert!(keys.iter().all(|key| filter.may_have(*key)));
        let strangers = (0..10_000).filter(|key| filter.may_have(key * 7 + 1)).count();
        assert!(strangers < 300, "{strangers} of 10,000 absent keys passed");
    }

    #[test]
    fn empty_filter_passes_nothing() {
        assert!(!Filter::new([].into_iter()).may_have(0));
        assert!(!Filter::from_bytes(&[]).may_have(0));
    }
}
