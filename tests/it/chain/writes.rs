//! Reads after `eth_sendRawTransaction`.

use std::time::Duration;

use holdfast::{config::Config, devchain::Fault};
use serde_json::{Value, json};
use tokio::time;

use crate::support::{
    in_memory,
    method::{BLOCK_BY_NUMBER, RECEIPT, SEND, TRANSACTION},
    nodes::{hex, truth},
    one_node::{SOON, agrees, raw, setting, tx_hash},
    upstream,
};

#[tokio::test(start_paused = true)]
async fn batch_reads_its_own_writes() {
    let (chain, program) = setting();
    program.ask("eth_blockNumber", json!([])).await;
    let transaction = chain.generate(1).remove(0);
    let hash = tx_hash(&transaction);
    // The node mines the transaction before it answers.
    chain.fail(Fault::Delay(SOON)).on(SEND).once();
    let mining = tokio::spawn({
        let chain = chain.clone();
        async move {
            time::sleep(SOON / 2).await;
            chain.mine(0)
        }
    });
    let answers = program
        .batch(&[
            ("eth_blockNumber", json!([])),
            (RECEIPT, json!([hash])),
            (TRANSACTION, json!([hash])),
            (SEND, json!([raw(&transaction)])),
            (RECEIPT, json!([hash])),
            (TRANSACTION, json!([hash])),
            ("eth_blockNumber", json!([])),
            (BLOCK_BY_NUMBER, json!(["latest", false])),
        ])
        .await;
    let mined = mining.await.unwrap();
    assert_eq!(answers[..3], [json!(hex(mined.number - 1)), Value::Null, Value::Null]);
    assert_eq!(answers[4], truth(&chain, RECEIPT, &json!([hash])));
    assert_eq!(answers[5], truth(&chain, TRANSACTION, &json!([hash])));
    assert_eq!(answers[6], hex(mined.number));
    assert_eq!(answers[7]["hash"], hex(mined.hash));
}

#[tokio::test(start_paused = true)]
async fn null_is_not_cached_after_a_write() {
    for config in [Config::default(), in_memory::consistent()] {
        let chain = upstream::devchain().blocks(10, 3).chain();
        let program = in_memory::program(&chain, &config);
        program.ask("eth_blockNumber", json!([])).await;
        let transaction = chain.generate(1).remove(0);
        let hash = tx_hash(&transaction);
        assert_eq!(program.ask(RECEIPT, json!([hash])).await, Value::Null);
        program.ask(SEND, json!([raw(&transaction)])).await;
        // A client polls after the send, and the node may mine at any of these moments.
        for _ in 0..5 {
            assert_eq!(agrees(&program, &chain, RECEIPT, json!([hash])).await, Value::Null);
            time::sleep(SOON).await;
        }
        chain.mine(0);
        assert!(agrees(&program, &chain, RECEIPT, json!([hash])).await.is_object());
    }
}

#[tokio::test(start_paused = true)]
async fn fetch_sent_before_a_write_is_not_joined_after_it() {
    let (chain, program) = setting();
    program.ask("eth_blockNumber", json!([])).await;
    let transaction = chain.generate(1).remove(0);
    let hash = tx_hash(&transaction);
    chain.fail(Fault::Delay(Duration::from_millis(800))).on(RECEIPT).once();
    let before = tokio::spawn({
        let (program, hash) = (program.clone(), hash.clone());
        async move { program.ask(RECEIPT, json!([hash])).await }
    });
    time::sleep(SOON).await;
    program.ask(SEND, json!([raw(&transaction)])).await;
    chain.mine(0);
    assert!(agrees(&program, &chain, RECEIPT, json!([hash])).await.is_object());
    assert_eq!(before.await.unwrap(), Value::Null);
    assert!(agrees(&program, &chain, RECEIPT, json!([hash])).await.is_object());
}
