//! One development node behind an in-memory proxy, and comparisons of their answers.

use std::time::Duration;

use alloy_consensus::TxEnvelope;
use alloy_eips::Encodable2718;
use alloy_primitives::hex;
use holdfast::{config::Config, devchain::DevChain};
use serde_json::{Value, json};
use tokio::time;

use super::{
    in_memory::{self, InMemory},
    method::{BLOCK_BY_NUMBER, RECEIPT, RECEIPTS, TRANSACTION, TRANSACTION_AT_NUMBER},
    nodes::{hex, truth},
    upstream,
};

/// A time longer than `max_staleness`, after which the next call refreshes the head.
pub const STALE: Duration = Duration::from_millis(1100);

/// A time shorter than `max_staleness`.
pub const SOON: Duration = Duration::from_millis(100);

/// Returns the transaction as a parameter of `eth_sendRawTransaction`.
pub fn raw(transaction: &TxEnvelope) -> String {
    format!("0x{}", hex::encode(transaction.encoded_2718()))
}

pub fn tx_hash(transaction: &TxEnvelope) -> String {
    hex(transaction.tx_hash())
}

/// Returns a chain of ten blocks with three transactions each, and a proxy in front of it.
pub fn setting() -> (DevChain, InMemory) {
    let chain = upstream::devchain().blocks(10, 3).chain();
    let program = in_memory::program(&chain, &Config::default());
    (chain, program)
}

/// Mines blocks one by one and lets the proxy see each, so that its window contains more than the head.
pub async fn grow(chain: &DevChain, program: &InMemory, blocks: usize) {
    for _ in 0..blocks {
        chain.mine(3);
        time::sleep(STALE).await;
        assert_eq!(program.ask("eth_blockNumber", json!([])).await, hex(chain.head().number));
    }
}

/// Returns the transactions of the canonical block at `number`.
pub fn block(chain: &DevChain, number: u64) -> Vec<TxEnvelope> {
    let hashes = chain.transactions_of(chain.hash_at(number).unwrap());
    hashes.into_iter().map(|hash| chain.transaction(hash).unwrap()).collect()
}

/// Calls the proxy and compares the answer with the node's own current answer.
pub async fn agrees(program: &InMemory, chain: &DevChain, method: &str, params: Value) -> Value {
    let answer = program.ask(method, params.clone()).await;
    assert_eq!(answer, truth(chain, method, &params), "{method} {params}");
    answer
}

/// Makes every call about the block at `number` and compares the answers with the node's.
pub async fn all_agree(program: &InMemory, chain: &DevChain, number: u64) {
    for full in [true, false] {
        agrees(program, chain, BLOCK_BY_NUMBER, json!([hex(number), full])).await;
    }
    agrees(program, chain, RECEIPTS, json!([hex(number)])).await;
    for (index, transaction) in block(chain, number).iter().enumerate() {
        agrees(program, chain, TRANSACTION_AT_NUMBER, json!([hex(number), hex(index)])).await;
        agrees(program, chain, TRANSACTION, json!([tx_hash(transaction)])).await;
        agrees(program, chain, RECEIPT, json!([tx_hash(transaction)])).await;
    }
}
