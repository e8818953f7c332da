//! Answers that fail verification are passed on and not stored.

use holdfast::{config::Config, devchain::Lie};
use serde_json::json;

use crate::support::{
    in_memory,
    method::{BLOCK_BY_HASH, BLOCK_BY_NUMBER, RECEIPT, RECEIPTS, TRANSACTION},
    nodes::{hex, truth},
    one_node::{agrees, all_agree, block, setting, tx_hash},
    upstream,
};

#[tokio::test(start_paused = true)]
async fn wrong_answer_is_passed_on_and_not_stored() {
    for (lie, method) in [
        (Lie::WrongHash, BLOCK_BY_HASH),
        (Lie::WrongHash, TRANSACTION),
        (Lie::WrongHash, RECEIPTS),
        (Lie::EmptiedTransactions, BLOCK_BY_HASH),
        (Lie::EmptiedTransactions, BLOCK_BY_NUMBER),
        (Lie::EmptiedTransactions, RECEIPTS),
        (Lie::OtherReceipt, RECEIPT),
        (Lie::ForeignBlock, BLOCK_BY_HASH),
    ] {
        let (chain, program) = setting();
        program.ask("eth_blockNumber", json!([])).await;
        let number = chain.head().number - 4;
        let hash = hex(chain.hash_at(number).unwrap());
        let transaction = tx_hash(&block(&chain, number)[1]);
        let params = match method {
            BLOCK_BY_NUMBER => json!([hex(number), true]),
            BLOCK_BY_HASH => json!([hash, true]),
            RECEIPTS => json!([hash]),
            _ => json!([transaction]),
        };
        chain.fail(lie.clone()).on(method).once();
        let lied = program.ask(method, params.clone()).await;
        assert_ne!(lied, truth(&chain, method, &params), "{lie:?} {method}");
        assert!(!lied.is_null());
        agrees(&program, &chain, method, params.clone()).await;
        all_agree(&program, &chain, number).await;
        all_agree(&program, &chain, number + 1).await;
        assert!(program.cache_status(method, params).await.starts_with("holdfast; hit"), "{lie:?} {method}");
    }
}

/// The proxy fetches blocks whole. A client that asks for hashes gets hashes, even if the block is wrong, so that the
/// proxy cannot cut it.
#[tokio::test(start_paused = true)]
async fn wrong_block_is_passed_on_in_the_requested_form() {
    let chain = upstream::devchain().blocks(3, 2).chain();
    let program = in_memory::program(&chain, &Config::default());
    chain.fail(Lie::Field("number".to_owned(), json!("0x7"))).on(BLOCK_BY_HASH).times(2);
    let asked = json!([hex(chain.head().hash), false]);
    let block = program.ask(BLOCK_BY_HASH, asked.clone()).await;
    assert_eq!(block["number"], "0x7");
    assert!(block["transactions"][0].is_string(), "{block}");
    assert_eq!(program.ask(BLOCK_BY_HASH, asked).await["number"], "0x3");
}

/// Only stored answers are reported as stored, and an empty block's receipts are no mismatch.
#[tokio::test(start_paused = true)]
async fn cache_status_reports_stored_answers() {
    let chain = upstream::devchain().blocks(3, 1).chain();
    // Mines the empty block 4, and block 5 as the head, so that the proxy has not seen that block 4 is empty.
    chain.mine(0);
    chain.mine(1);
    let (registered, program) = (chain.generate(1).remove(0), in_memory::program(&chain, &Config::default()));
    chain.submit(registered.clone()).unwrap();
    let pending = json!([format!("{:#x}", registered.tx_hash())]);
    assert_eq!(program.cache_status(TRANSACTION, pending).await, "holdfast; fwd=miss");

    let empty = json!([hex(chain.head().number - 1)]);
    let (status, receipts) = program.cached(RECEIPTS, empty).await;
    assert_eq!((status.as_str(), receipts), ("holdfast; fwd=miss; stored", json!([])));
    assert_eq!(
        program.metric("mismatches_total{reason=\"emptied\"}"),
        0,
        "empty receipts of an empty block counted as a mismatch"
    );
}
