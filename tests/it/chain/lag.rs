//! A head that goes back: a lagging replica, a rollback, a false head.

use std::time::Duration;

use holdfast::{config::Config, devchain::Lie};
use serde_json::{Value, json};
use tokio::time;

use crate::support::{
    in_memory,
    method::{BLOCK_BY_NUMBER, RECEIPT, TRANSACTION},
    nodes::hex,
    one_node::{STALE, agrees, all_agree, block, grow, setting, tx_hash},
    upstream,
};

#[tokio::test(start_paused = true)]
async fn head_does_not_follow_a_lagging_replica_back() {
    for config in [Config::default(), in_memory::consistent()] {
        let chain = upstream::devchain().blocks(10, 3).chain();
        let program = in_memory::program(&chain, &config);
        program.ask("eth_blockNumber", json!([])).await;
        grow(&chain, &program, 4).await;
        let head = chain.head();
        let known = tx_hash(&block(&chain, head.number - 1)[0]);
        agrees(&program, &chain, RECEIPT, json!([known])).await;
        let newest = tx_hash(&block(&chain, head.number)[0]);
        chain.lag(3);
        for _ in 0..2 {
            time::sleep(STALE).await;
            assert_eq!(program.ask("eth_blockNumber", json!([])).await, hex(head.number));
            assert_eq!(program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await["hash"], hex(head.hash));
            // The replica lacks the blocks above its head, and the proxy knows that they exist.
            for (method, params) in [
                (RECEIPT, json!([known])),
                (RECEIPT, json!([newest])),
                (BLOCK_BY_NUMBER, json!([hex(head.number), false])),
            ] {
                let (_, reply) = program.call(method, params).await;
                assert_eq!(reply["error"]["code"], -32010, "{method}: {reply}");
            }
        }
        chain.lag(0);
        time::sleep(STALE).await;
        assert_eq!(program.ask("eth_blockNumber", json!([])).await, hex(head.number));
        for hash in [&known, &newest] {
            assert!(agrees(&program, &chain, RECEIPT, json!([hash])).await.is_object());
            assert!(agrees(&program, &chain, TRANSACTION, json!([hash])).await.is_object());
        }
        all_agree(&program, &chain, head.number).await;
    }
}

#[tokio::test(start_paused = true)]
async fn lower_head_is_a_rollback_after_enough_time_and_polls() {
    let (chain, program) = setting();
    program.ask("eth_blockNumber", json!([])).await;
    grow(&chain, &program, 5).await;
    let head = chain.head().number;
    chain.rollback(2);
    let number = async || program.ask("eth_blockNumber", json!([])).await;
    // The node shows the lower head often enough for a rollback, but not for long enough.
    for _ in 0..10 {
        time::sleep(STALE).await;
        assert_eq!(number().await, hex(head));
    }
    time::sleep(Duration::from_secs(6)).await;
    assert_eq!(number().await, hex(head - 2));
    all_agree(&program, &chain, head - 2).await;
    assert_eq!(agrees(&program, &chain, BLOCK_BY_NUMBER, json!([hex(head), true])).await, Value::Null);

    // The node shows the lower head for long enough, but not often enough.
    chain.rollback(2);
    for _ in 0..2 {
        time::sleep(Duration::from_secs(40)).await;
        assert_eq!(number().await, hex(head - 2));
    }
    time::sleep(STALE).await;
    assert_eq!(number().await, hex(head - 4));
    all_agree(&program, &chain, head - 4).await;
}

#[tokio::test(start_paused = true)]
async fn invalid_head_changes_nothing() {
    let (chain, program) = setting();
    program.ask("eth_blockNumber", json!([])).await;
    time::sleep(STALE).await;
    chain.fail(Lie::EmptiedTransactions).on(BLOCK_BY_NUMBER).once();
    program.ask("eth_blockNumber", json!([])).await;
    all_agree(&program, &chain, chain.head().number).await;
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", true])).await;
}
