//! Null answers and pruned history: a cached null is valid only until the head changes.

use std::time::Duration;

use holdfast::{
    config::Config,
    devchain::{Fault, Pruned},
    verify::Demand,
};
use serde_json::{Value, json};
use tokio::time;

use crate::support::{
    in_memory,
    method::{BLOCK_BY_HASH, RECEIPT, TRANSACTION, TRANSACTION_AT_HASH, TRANSACTION_AT_NUMBER},
    nodes::hex,
    one_node::{SOON, STALE, agrees, setting},
    upstream,
};

#[tokio::test(start_paused = true)]
async fn null_receipt_ends_with_the_head_it_was_seen_at() {
    let (chain, program) = setting();
    program.ask("eth_blockNumber", json!([])).await;
    let hash = chain.submit(chain.generate(1).remove(0)).map(hex).unwrap();
    time::sleep(STALE - SOON).await;
    assert_eq!(program.ask(RECEIPT, json!([hash])).await, Value::Null);
    chain.mine(0);
    time::sleep(SOON * 2).await;
    // The cached null is young enough, but the head has changed.
    assert!(agrees(&program, &chain, RECEIPT, json!([hash])).await.is_object());
}

#[tokio::test(start_paused = true)]
async fn pending_transaction_is_never_cached() {
    let (chain, program) = setting();
    program.ask("eth_blockNumber", json!([])).await;
    let hash = chain.submit(chain.generate(1).remove(0)).map(hex).unwrap();
    assert_eq!(agrees(&program, &chain, TRANSACTION, json!([hash])).await["blockHash"], Value::Null);
    chain.mine(0);
    // The clock has not advanced since the pending answer.
    assert!(agrees(&program, &chain, TRANSACTION, json!([hash])).await["blockHash"].is_string());
    assert!(agrees(&program, &chain, RECEIPT, json!([hash])).await.is_object());
}

#[tokio::test(start_paused = true)]
async fn index_past_the_end_is_null_until_the_block_changes() {
    let (chain, program) = setting();
    let (head, hash) = (chain.head().number, hex(chain.head().hash));
    // The calls run before the block is cached, and after.
    for held in [false, true] {
        if held {
            agrees(&program, &chain, BLOCK_BY_HASH, json!([hash, true])).await;
            chain.clear_calls();
        }
        for index in [json!(3), json!("0x3"), json!("0xffffffffffffffff")] {
            for (method, place) in
                [(TRANSACTION_AT_HASH, json!(hash)), (TRANSACTION_AT_NUMBER, json!(hex(head)))]
            {
                assert_eq!(program.ask(method, json!([place, index])).await, Value::Null);
            }
            assert_eq!(program.ask(TRANSACTION_AT_NUMBER, json!(["latest", index])).await, Value::Null);
        }
    }
    assert_eq!(chain.calls_total(), 0);
    // The calls name a number that does not exist yet, and a number at which a reorg brings a block with more
    // transactions.
    let future = json!([hex(head + 1), "0x4"]);
    assert_eq!(agrees(&program, &chain, TRANSACTION_AT_NUMBER, future.clone()).await, Value::Null);
    chain.reorg_with(1, vec![chain.generate(6), Vec::new()]);
    let more = chain.generate(6);
    chain.reorg_with(1, vec![more]);
    time::sleep(STALE).await;
    assert!(agrees(&program, &chain, TRANSACTION_AT_NUMBER, json!([hex(head), "0x4"])).await.is_object());
    assert!(agrees(&program, &chain, TRANSACTION_AT_NUMBER, future).await.is_object());
}

/// Nothing proves that an unproved block has no more transactions.
#[tokio::test(start_paused = true)]
async fn index_past_the_end_of_an_unproved_block_asks_the_node() {
    let chain = upstream::devchain().blocks(3, 2).chain();
    let mut config = Config::default();
    config.verify.level = Demand::Structural;
    let program = in_memory::program(&chain, &config);
    let hash = hex(chain.head().hash);
    agrees(&program, &chain, BLOCK_BY_HASH, json!([hash, true])).await;
    for calls in 0..2 {
        assert_eq!(chain.count(TRANSACTION_AT_HASH), calls);
        agrees(&program, &chain, TRANSACTION_AT_HASH, json!([hash, "0x2"])).await;
    }
}

/// A call may join an earlier fetch of content, but must not get `null` from it.
#[tokio::test(start_paused = true)]
async fn null_by_hash_in_flight_is_not_shared_with_later_calls() {
    let chain = upstream::devchain().blocks(3, 1).chain();
    let program = in_memory::program(&chain, &Config::default());
    assert_eq!(program.call("eth_gasPrice", json!([])).await.0, 200);
    let hidden = format!("{:#x}", chain.head().hash);
    chain.lag(1);
    chain.fail(Fault::Delay(Duration::from_secs(5))).on("eth_getBlockByHash").once();
    let early = {
        let (program, hidden) = (program.clone(), hidden.clone());
        tokio::spawn(async move { program.call("eth_getBlockByHash", json!([hidden, true])).await })
    };
    time::sleep(Duration::from_secs(3)).await;
    chain.lag(0);
    let (_, late) = program.call("eth_getBlockByHash", json!([hidden, true])).await;
    assert_eq!(late["result"]["hash"], hidden);
    assert_eq!(early.await.unwrap().1["result"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn pruned_history_is_still_served_and_its_null_not_cached() {
    for pruned in [Pruned::Null, Pruned::Error4444] {
        let (chain, program) = setting();
        program.ask("eth_blockNumber", json!([])).await;
        let (held, other) = (hex(chain.hash_at(3).unwrap()), hex(chain.hash_at(2).unwrap()));
        let block = agrees(&program, &chain, BLOCK_BY_HASH, json!([held, true])).await;
        chain.prune_below(5, pruned);
        assert_eq!(program.ask(BLOCK_BY_HASH, json!([held, true])).await, block);
        let (_, reply) = program.call(BLOCK_BY_HASH, json!([other, true])).await;
        match pruned {
            Pruned::Null => assert_eq!(reply["result"], Value::Null),
            Pruned::Error4444 => assert_eq!(reply["error"]["code"], 4444),
        }
        chain.prune_below(0, pruned);
        assert!(agrees(&program, &chain, BLOCK_BY_HASH, json!([other, true])).await.is_object());
    }
}
