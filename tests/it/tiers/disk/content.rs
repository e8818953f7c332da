//! Blocks whose content follows from their numbers, so that tests know the expected content.

use alloy_primitives::B256;
use bytes::Bytes;
use holdfast::{
    cache::tier::{Part, Record, Sealed},
    eth::{BlockHash, BlockNumber, TxHash},
};

/// A block with the texts of its parts.
#[derive(Clone, Debug)]
pub struct Content {
    pub number: BlockNumber,
    pub hash: BlockHash,
    pub transactions: Vec<TxHash>,
    texts: [Bytes; 2],
}

impl Content {
    /// The block of this number, with up to 20 transactions and texts of up to 2 KB.
    pub fn new(number: u64) -> Self {
        Self::sized(number, 0, 1 + number as usize % 20, 2_000)
    }

    /// One of several blocks with this number.
    pub fn variant(number: u64, variant: u64) -> Self {
        Self::sized(number, variant, 1 + number as usize % 5, 2_000)
    }

    pub fn sized(number: u64, variant: u64, transactions: usize, longest: usize) -> Self {
        let mut dice = fastrand::Rng::with_seed(number * 1_000 + variant);
        let hash = |dice: &mut fastrand::Rng| {
            let mut hash = B256::ZERO;
            dice.fill(hash.as_mut_slice());
            hash
        };
        Self {
            number: BlockNumber(number),
            hash: BlockHash(hash(&mut dice)),
            transactions: (0..transactions).map(|_| TxHash(hash(&mut dice))).collect(),
            texts: std::array::from_fn(|_| {
                let mut text = vec![0; dice.usize(0..=longest)];
                dice.fill(&mut text);
                text.into()
            }),
        }
    }

    pub fn text(&self, part: Part) -> &Bytes {
        &self.texts[part as usize]
    }

    pub fn record(&self, part: Part) -> Record {
        Record {
            number: self.number,
            hash: self.hash,
            part,
            transactions: self.transactions.clone(),
            value: Sealed::new(self.text(part)).unwrap(),
        }
    }
}
