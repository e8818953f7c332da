//! Reorgs: moved and dropped transactions, orphaned blocks, fetches in flight.

use std::time::Duration;

use holdfast::{
    config::Config,
    devchain::{self, DevChain, Fault},
};
use serde_json::{Value, json};
use tokio::time;

use crate::support::{
    in_memory::{self, InMemory},
    method::{
        BLOCK_BY_HASH, BLOCK_BY_NUMBER, RECEIPT, RECEIPTS, SEND, TRANSACTION, TRANSACTION_AT_HASH,
        TRANSACTION_AT_NUMBER,
    },
    nodes::hex,
    one_node::{SOON, STALE, agrees, all_agree, block, raw, setting, tx_hash},
    upstream,
};

#[tokio::test(start_paused = true)]
async fn moved_transaction_is_found_in_its_new_block() {
    let (chain, program) = setting();
    let head = chain.head().number;
    let (below, top) = (block(&chain, head - 1), block(&chain, head));
    let branches = [
        // The transactions move into the lower block, back, into higher blocks, and into another order.
        vec![[below.clone(), top.clone()].concat(), Vec::new(), Vec::new()],
        vec![below.clone(), top.clone(), Vec::new()],
        vec![Vec::new(), below.clone(), top.clone(), Vec::new()],
        vec![top.iter().rev().cloned().collect(), below.clone()],
    ];
    let mut depth = 2;
    for branch in branches {
        for number in head - 1..=chain.head().number {
            all_agree(&program, &chain, number).await;
        }
        let length = branch.len() as u64;
        chain.reorg_with(depth, branch);
        depth = length;
        time::sleep(STALE).await;
        for transaction in below.iter().chain(&top) {
            agrees(&program, &chain, RECEIPT, json!([tx_hash(transaction)])).await;
            agrees(&program, &chain, TRANSACTION, json!([tx_hash(transaction)])).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_transaction_is_null() {
    let (chain, program) = setting();
    let dropped = block(&chain, chain.head().number);
    all_agree(&program, &chain, chain.head().number).await;
    chain.reorg_with(1, vec![Vec::new(), Vec::new()]);
    time::sleep(STALE).await;
    for transaction in &dropped {
        assert_eq!(agrees(&program, &chain, RECEIPT, json!([tx_hash(transaction)])).await, Value::Null);
        assert_eq!(agrees(&program, &chain, TRANSACTION, json!([tx_hash(transaction)])).await, Value::Null);
    }
}

#[tokio::test(start_paused = true)]
async fn reorg_is_detected_from_the_head_alone() {
    let (chain, program) = setting();
    let head = chain.head().number;
    for number in [head, head - 1, head - 2] {
        all_agree(&program, &chain, number).await;
    }
    let left = chain.head();
    chain.reorg(2, 3);
    time::sleep(STALE).await;
    // The client asks only for the new head; from then on the proxy's head is fresh.
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
    for number in head - 2..=head + 1 {
        all_agree(&program, &chain, number).await;
    }
    // The cache still serves the orphan by hash without a call.
    chain.clear_calls();
    let orphan = program.ask(BLOCK_BY_HASH, json!([hex(left.hash), true])).await;
    assert_eq!(orphan["number"], hex(left.number));
    assert_eq!(chain.calls_total(), 0);
}

#[tokio::test(start_paused = true)]
async fn lower_head_of_another_branch_is_accepted_at_once() {
    let (chain, program) = setting();
    let head = chain.head().number;
    all_agree(&program, &chain, head).await;
    all_agree(&program, &chain, head - 1).await;
    chain.reorg(2, 1);
    time::sleep(STALE).await;
    assert_eq!(program.ask("eth_blockNumber", json!([])).await, hex(head - 1));
    all_agree(&program, &chain, head - 1).await;
    assert_eq!(program.ask(BLOCK_BY_NUMBER, json!([hex(head), true])).await, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn orphan_read_by_hash_changes_nothing() {
    for side_first in [true, false] {
        let (chain, program) = setting();
        let head = chain.head().number;
        let number = head - 1;
        let moved = [block(&chain, number), block(&chain, head)].concat();
        let side = hex(chain.build_on(chain.hash_at(number - 1).unwrap(), moved));
        program.ask("eth_blockNumber", json!([])).await;
        if !side_first {
            all_agree(&program, &chain, number).await;
            all_agree(&program, &chain, head).await;
        }
        for full in [true, false] {
            agrees(&program, &chain, BLOCK_BY_HASH, json!([side, full])).await;
        }
        agrees(&program, &chain, TRANSACTION_AT_HASH, json!([side, "0x1"])).await;
        agrees(&program, &chain, RECEIPTS, json!([{ "blockHash": side }])).await;
        all_agree(&program, &chain, number).await;
        all_agree(&program, &chain, head).await;
        time::sleep(STALE).await;
        all_agree(&program, &chain, number).await;
    }
}

#[tokio::test(start_paused = true)]
async fn fetch_in_flight_across_a_reorg_does_not_set_canonicity() {
    // The node answers with the state before the reorg, or after it.
    let waits: [fn(Duration) -> Fault; 2] = [Fault::Delay, Fault::Queue];
    for wait in waits {
        for method in [RECEIPT, TRANSACTION, BLOCK_BY_NUMBER, TRANSACTION_AT_NUMBER] {
            let (chain, program) = setting();
            let number = chain.head().number - 1;
            let moved = block(&chain, number);
            let hash = tx_hash(&moved[0]);
            let params = match method {
                BLOCK_BY_NUMBER => json!([hex(number), true]),
                TRANSACTION_AT_NUMBER => json!([hex(number), "0x0"]),
                _ => json!([hash]),
            };
            program.ask("eth_blockNumber", json!([])).await;
            chain.fail(wait(Duration::from_millis(600))).on(method).once();
            let fetch = tokio::spawn({
                let (program, params) = (program.clone(), params.clone());
                async move { program.ask(method, params).await }
            });
            time::sleep(SOON).await;
            chain.reorg_with(2, vec![Vec::new(), Vec::new(), moved]);
            // During the fetch, a write and another client make the proxy notice the reorg.
            time::sleep(Duration::from_millis(400)).await;
            program.ask(SEND, json!([raw(&chain.generate(1)[0])])).await;
            agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
            fetch.await.unwrap();
            for _ in 0..3 {
                agrees(&program, &chain, method, params.clone()).await;
                agrees(&program, &chain, TRANSACTION, json!([hash])).await;
                agrees(&program, &chain, RECEIPT, json!([hash])).await;
                agrees(&program, &chain, BLOCK_BY_NUMBER, json!([hex(number), false])).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fetch_in_flight_across_a_refresh_does_not_set_canonicity() {
    let waits: [fn(Duration) -> Fault; 2] = [Fault::Delay, Fault::Queue];
    for wait in waits {
        for method in [RECEIPT, TRANSACTION] {
            let (chain, program) = setting();
            let moved = block(&chain, chain.head().number - 1);
            let hash = tx_hash(&moved[0]);
            program.ask("eth_blockNumber", json!([])).await;
            time::sleep(Duration::from_millis(900)).await;
            chain.fail(wait(Duration::from_millis(600))).on(method).once();
            let fetch = tokio::spawn({
                let (program, hash) = (program.clone(), hash.clone());
                async move { program.ask(method, json!([hash])).await }
            });
            time::sleep(SOON).await;
            chain.reorg_with(2, vec![Vec::new(), Vec::new(), moved]);
            time::sleep(SOON * 2).await;
            // There is no write here: the head becomes stale, and the refresh finds the new branch.
            agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
            fetch.await.unwrap();
            agrees(&program, &chain, TRANSACTION, json!([hash])).await;
            agrees(&program, &chain, RECEIPT, json!([hash])).await;
        }
    }
}

/// The proxy has never seen the orphaned branch, so it notices no reorg. But it has returned a head to a client, and
/// fetches that began before may be about another branch.
#[tokio::test(start_paused = true)]
async fn fetch_sent_before_the_shown_head_is_not_joined() {
    let chain = upstream::devchain().chain();
    let mut config = Config::default();
    config.chain.max_staleness = Duration::from_millis(10);
    let program = in_memory::program(&chain, &config);
    program.ask("eth_blockNumber", json!([])).await;
    time::sleep(Duration::from_millis(11)).await;
    let block = chain.mine(2);
    let transaction = hex(chain.transactions_of(block.hash)[0]);
    chain.fail(Fault::Delay(Duration::from_millis(20))).on(TRANSACTION).once();
    let early = {
        let (program, params) = (program.clone(), json!([transaction]));
        tokio::spawn(async move { program.ask(TRANSACTION, params).await })
    };
    time::sleep(Duration::from_millis(1)).await;
    chain.reorg(1, 1);
    assert_eq!(program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await["hash"], hex(chain.head().hash));
    let late = program.ask(TRANSACTION, json!([transaction])).await;
    let truth: Value =
        serde_json::from_slice(&chain.answer(TRANSACTION, json!([transaction])).unwrap()).unwrap();
    assert_eq!(late, truth);
    early.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn proxy_is_right_after_sleeping_through_a_final_reorg() {
    // The parents of the new head lead to a block in the window, or they do not.
    for blocks in [20, 200] {
        for linked in [true, false] {
            let (chain, program) = setting();
            let number = chain.head().number - if linked { 1 } else { 3 };
            let transactions = block(&chain, number);
            program.ask("eth_blockNumber", json!([])).await;
            all_agree(&program, &chain, number).await;
            let depth = chain.head().number - number + 1;
            chain.reorg_with(depth, vec![chain.generate(2), transactions.clone()]);
            chain.mine_many(blocks, 1);
            assert!(chain.finalized().unwrap() > number + 2);
            time::sleep(Duration::from_secs(3600)).await;
            // In half of the cases, a client asks for `finalized` first.
            if blocks == 20 {
                program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
            }
            for transaction in &transactions {
                agrees(&program, &chain, TRANSACTION, json!([tx_hash(transaction)])).await;
                agrees(&program, &chain, RECEIPT, json!([tx_hash(transaction)])).await;
            }
            all_agree(&program, &chain, number).await;
            all_agree(&program, &chain, number + 1).await;
            assert_eq!(program.metric("finality_alarms_total"), 0);
        }
    }
}

/// Returns the hash of a cached block that `leave` then removed from the chain.
async fn orphan(leave: impl Fn(&DevChain)) -> (DevChain, InMemory, String) {
    let node = devchain::Config { keep_orphans: false, ..devchain::Config::default() };
    let chain = DevChain::new(node);
    chain.mine_many(10, 3);
    let program = in_memory::program(&chain, &Config::default());
    let hash = hex(chain.head().hash);
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", true])).await;
    agrees(&program, &chain, BLOCK_BY_HASH, json!([hash, true])).await;
    leave(&chain);
    for _ in 0..4 {
        time::sleep(Duration::from_secs(8)).await;
        program.ask("eth_blockNumber", json!([])).await;
    }
    (chain, program, hash)
}

#[tokio::test(start_paused = true)]
async fn orphans_are_served_by_their_hash() {
    let ways: [fn(&DevChain); 2] = [
        |chain| _ = chain.reorg(1, 2),
        // The orphan is then above the head.
        |chain| _ = chain.rollback(1),
    ];
    for leave in ways {
        let (chain, program, hash) = orphan(leave).await;
        chain.clear_calls();
        for full in [true, false] {
            assert_eq!(program.ask(BLOCK_BY_HASH, json!([hash, full])).await["hash"], hash);
        }
        assert_eq!(program.ask(TRANSACTION_AT_HASH, json!([hash, 2])).await["blockHash"], hash);
        assert_eq!(chain.calls_total(), 0);
    }
}

/// A load balancer shows one branch, another one for some calls, and the first one again.
#[tokio::test(start_paused = true)]
async fn logs_of_a_range_are_of_one_branch() {
    for last in [6, 8, 12] {
        let chain = upstream::devchain().blocks(30, 4).chain();
        chain.set_finalized(4);
        let range = json!([{ "fromBlock": hex(5), "toBlock": hex(last) }]);
        let logs =
            || -> Value { serde_json::from_slice(&chain.answer("eth_getLogs", &range).unwrap()).unwrap() };
        let (first, before) = (chain.head(), logs());
        let program = in_memory::program(&chain, &Config::default());
        program.ask("eth_blockNumber", json!([])).await;
        chain.reorg(26, 26);
        let other = logs();
        for number in [5, last] {
            program.ask(BLOCK_BY_NUMBER, json!([hex(number), true])).await;
            program.ask(RECEIPTS, json!([hex(number)])).await;
        }
        chain.set_head(first.hash);
        for _ in 0..2 {
            let answer = program.ask("eth_getLogs", range.clone()).await;
            assert!(answer == before || answer == other, "up to {last}: {answer}");
        }
    }
}

/// A receipt names another block at the number than an earlier transaction.
#[tokio::test(start_paused = true)]
async fn newer_answer_for_a_number_overrules_an_older_one() {
    let chain = upstream::devchain().blocks(10, 3).chain();
    chain.set_finalized(0);
    let program = in_memory::program(&chain, &Config::default());
    program.ask("eth_blockNumber", json!([])).await;
    let call = (TRANSACTION_AT_NUMBER, json!(["0x5", "0x0"]));
    let before = program.ask(call.0, call.1.clone()).await;
    assert_eq!(before["blockHash"], hex(chain.hash_at(5).unwrap()));
    // The old block does not have these transactions.
    chain.reorg_with(6, [vec![chain.generate(3)], vec![Vec::new(); 7]].concat());
    let receipt = hex(chain.transactions_of(chain.hash_at(5).unwrap())[1]);
    program.ask(RECEIPT, json!([receipt])).await;
    let after = program.ask(call.0, call.1).await;
    assert_eq!(after["blockHash"], hex(chain.hash_at(5).unwrap()));
}

/// `safe` was requested a moment before the reorg, and the head of the view earlier.
#[tokio::test(start_paused = true)]
async fn lower_head_on_another_branch_than_safe_is_a_reorg() {
    for config in [Config::default(), in_memory::consistent()] {
        let chain = upstream::devchain().blocks(10, 3).chain();
        let program = in_memory::program(&chain, &config);
        program.ask("eth_blockNumber", json!([])).await;
        chain.set_safe(10);
        time::sleep(STALE - SOON).await;
        assert_eq!(program.ask(BLOCK_BY_NUMBER, json!(["safe", false])).await["number"], "0xa");
        let head = chain.reorg(3, 2);
        time::sleep(SOON * 2).await;
        let latest = program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
        assert_eq!(latest["hash"], hex(head.hash));
    }
}
