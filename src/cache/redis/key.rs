//! Redis keys of one chain.

use crate::{
    cache::tier::{ChainKey, Part},
    eth::{BlockHash, BlockNumber, TxHash},
};

/// Builds the keys of one chain.
#[derive(Clone, Debug)]
pub(super) struct Keys(Vec<u8>);

// === impl Keys ===

impl Keys {
    pub(super) fn new(prefix: &str, chain: ChainKey) -> Self {
        Self([prefix.as_bytes(), &chain.to_bytes()].concat())
    }

    pub(super) fn value(&self, part: Part, hash: BlockHash) -> Vec<u8> {
        self.key(&[letter(part)], hash.0.as_slice())
    }

    pub(super) fn number(&self, number: BlockNumber) -> Vec<u8> {
        self.key(b"n", &number.0.to_be_bytes())
    }

    pub(super) fn transaction(&self, transaction: TxHash) -> Vec<u8> {
        self.key(b"t", transaction.0.as_slice())
    }

    fn key(&self, kind: &[u8], by: &[u8]) -> Vec<u8> {
        [&self.0, kind, by].concat()
    }
}

fn letter(part: Part) -> u8 {
    match part {
        Part::Header => b'h',
        Part::Block => b'b',
        Part::Receipts => b'r',
    }
}
