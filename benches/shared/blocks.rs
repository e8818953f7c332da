//! Structurally valid blocks of any number and size.

use std::fmt::Write;

use alloy_primitives::{B256, keccak256};
use holdfast::{
    eth::{At, Block, Tag},
    verify::{self, Verified},
};

/// Returns the hash of the `n`th item of a kind.
pub fn hash(kind: &str, n: u64) -> B256 {
    keccak256([kind.as_bytes(), &n.to_be_bytes()].concat())
}

/// Returns a block with these transactions, each with an input of `input` bytes.
pub fn block(number: u64, transactions: impl Iterator<Item = B256>, input: usize) -> Verified<Block> {
    let (own, parent, root) =
        (hash("block", number), hash("block", number.wrapping_sub(1)), hash("root", number));
    let input = "5a".repeat(input);
    let mut json = format!(
        r#"{{"hash":"{own}","parentHash":"{parent}","number":"{number:#x}","transactionsRoot":"{root}","uncles":[],"timestamp":"0x1","transactions":["#
    );
    for (index, transaction) in transactions.enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(
            json,
            r#"{comma}{{"hash":"{transaction}","blockHash":"{own}","blockNumber":"{number:#x}","transactionIndex":"{index:#x}","input":"0x{input}"}}"#
        )
        .unwrap();
    }
    json.push_str("]}");
    verify::block(json.as_bytes(), At::Tag(Tag::Latest)).unwrap()
}
