//! Blocks whose content follows from their numbers, so that tests know the expected content.

use alloy_primitives::B256;
use bytes::Bytes;
use holdfast::{
    cache::tier::{Part, Record, Sealed},
    eth::{BlockHash, BlockNumber, Home, TxHash},
};

/// A block with the texts of its parts.
#[derive(Clone, Debug)]
pub struct Content {
    pub home: Home,
    pub transactions: Vec<TxHash>,
    texts: [Bytes; 3],
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
            home: Home { number: BlockNumber(number), block: BlockHash(hash(&mut dice)) },
            transactions: (0..transactions).map(|_| TxHash(hash(&mut dice))).collect(),
            texts: Part::ALL.map(|part| {
                let longest = if part == Part::Header { 600 } else { longest };
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
            home: self.home,
            part,
            transactions: if part == Part::Block { self.transactions.clone() } else { Vec::new() },
            value: Sealed::new(self.text(part)).unwrap(),
        }
    }
}
