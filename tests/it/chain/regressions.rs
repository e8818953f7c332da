//! What other proxies get wrong, one test for each: in memory, under a clock that the test moves.

use std::time::Duration;

use alloy_consensus::TxEnvelope;
use alloy_eips::Encodable2718;
use alloy_primitives::{B256, hex};
use holdfast::{
    config::Config,
    devchain::{self, DevChain, Fault, Lie, Pruned, TagTarget},
};
use serde_json::{Value, json};
use tokio::time;

use crate::support::{
    in_memory::{self, InMemory},
    method::{
        BLOCK_BY_HASH, BLOCK_BY_NUMBER, RECEIPT, RECEIPTS, SEND, TRANSACTION, TRANSACTION_AT_HASH,
        TRANSACTION_AT_NUMBER,
    },
    nodes::{hex, truth},
    upstream,
};

/// Longer than anything is believed without being asked again.
const STALE: Duration = Duration::from_millis(1100);

/// Shorter than that.
const SOON: Duration = Duration::from_millis(100);

fn raw(transaction: &TxEnvelope) -> String {
    format!("0x{}", hex::encode(transaction.encoded_2718()))
}

fn tx_hash(transaction: &TxEnvelope) -> String {
    hex(transaction.tx_hash())
}

/// A chain with ten blocks of three transactions, and the program in front of it.
fn setting() -> (DevChain, InMemory) {
    let chain = upstream::devchain().blocks(10, 3).chain();
    let program = in_memory::program(&chain, &Config::default());
    (chain, program)
}

/// Lets the chain grow before the program's eyes, so that the window holds more than the head.
async fn grow(chain: &DevChain, program: &InMemory, blocks: usize) {
    for _ in 0..blocks {
        chain.mine(3);
        time::sleep(STALE).await;
        assert_eq!(program.ask("eth_blockNumber", json!([])).await, hex(chain.head().number));
    }
}

fn block(chain: &DevChain, number: u64) -> Vec<TxEnvelope> {
    let hashes = chain.transactions_of(chain.hash_at(number).unwrap());
    hashes.into_iter().map(|hash| chain.transaction(hash).unwrap()).collect()
}

/// Asks, and holds the answer against the node's own of this moment.
async fn agrees(program: &InMemory, chain: &DevChain, method: &str, params: Value) -> Value {
    let answer = program.ask(method, params.clone()).await;
    assert_eq!(answer, truth(chain, method, &params), "{method} {params}");
    answer
}

/// All there is to ask about a number and what stands there.
async fn all_agree(program: &InMemory, chain: &DevChain, number: u64) {
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

// ## Absence

#[tokio::test(start_paused = true)]
async fn a_null_receipt_does_not_outlive_the_mining_of_its_transaction() {
    for config in [Config::default(), in_memory::consistent()] {
        let chain = upstream::devchain().blocks(10, 3).chain();
        let program = in_memory::program(&chain, &config);
        program.ask("eth_blockNumber", json!([])).await;
        let hash = chain.submit(chain.generate(1).remove(0)).map(hex).unwrap();
        for _ in 0..20 {
            assert_eq!(agrees(&program, &chain, RECEIPT, json!([hash])).await, Value::Null);
            time::sleep(SOON).await;
        }
        chain.mine(0);
        time::sleep(STALE).await;
        assert!(agrees(&program, &chain, RECEIPT, json!([hash])).await.is_object());
    }
}

#[tokio::test(start_paused = true)]
async fn a_null_receipt_ends_with_the_head_it_was_seen_at() {
    let (chain, program) = setting();
    program.ask("eth_blockNumber", json!([])).await;
    let hash = chain.submit(chain.generate(1).remove(0)).map(hex).unwrap();
    time::sleep(STALE - SOON).await;
    assert_eq!(program.ask(RECEIPT, json!([hash])).await, Value::Null);
    chain.mine(0);
    time::sleep(SOON * 2).await;
    // The null is younger than it may be, but the head that is seen now is another.
    assert!(agrees(&program, &chain, RECEIPT, json!([hash])).await.is_object());
}

#[tokio::test(start_paused = true)]
async fn a_pending_transaction_is_never_remembered() {
    let (chain, program) = setting();
    program.ask("eth_blockNumber", json!([])).await;
    let hash = chain.submit(chain.generate(1).remove(0)).map(hex).unwrap();
    assert_eq!(agrees(&program, &chain, TRANSACTION, json!([hash])).await["blockHash"], Value::Null);
    chain.mine(0);
    // No time has passed at all.
    assert!(agrees(&program, &chain, TRANSACTION, json!([hash])).await["blockHash"].is_string());
    assert!(agrees(&program, &chain, RECEIPT, json!([hash])).await.is_object());
}

#[tokio::test(start_paused = true)]
async fn a_number_above_the_head_is_null_until_it_is_mined() {
    let (chain, program) = setting();
    let next = hex(chain.head().number + 1);
    for params in [json!([next, true]), json!([next, false])] {
        assert_eq!(agrees(&program, &chain, BLOCK_BY_NUMBER, params).await, Value::Null);
    }
    assert_eq!(agrees(&program, &chain, TRANSACTION_AT_NUMBER, json!([next, "0x0"])).await, Value::Null);
    chain.mine(3);
    time::sleep(STALE).await;
    all_agree(&program, &chain, chain.head().number).await;
}

#[tokio::test(start_paused = true)]
async fn an_index_past_the_end_is_null_and_not_for_longer_than_the_block() {
    let (chain, program) = setting();
    let (head, hash) = (chain.head().number, hex(chain.head().hash));
    // Before the block is held, and after.
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
    // At a number that is not there yet, and at one whose block is replaced by a longer one.
    let future = json!([hex(head + 1), "0x4"]);
    assert_eq!(agrees(&program, &chain, TRANSACTION_AT_NUMBER, future.clone()).await, Value::Null);
    chain.reorg_with(1, vec![chain.generate(6), Vec::new()]);
    let more = chain.generate(6);
    chain.reorg_with(1, vec![more]);
    time::sleep(STALE).await;
    assert!(agrees(&program, &chain, TRANSACTION_AT_NUMBER, json!([hex(head), "0x4"])).await.is_object());
    assert!(agrees(&program, &chain, TRANSACTION_AT_NUMBER, future).await.is_object());
}

// ## Reorganisations

#[tokio::test(start_paused = true)]
async fn a_transaction_that_moves_is_found_where_it_is() {
    let (chain, program) = setting();
    let head = chain.head().number;
    let (below, top) = (block(&chain, head - 1), block(&chain, head));
    let branches = [
        // All to the lower of the two, and back; to a higher one than before; into another order.
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
async fn a_transaction_that_left_the_chain_is_gone() {
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
async fn a_reorganisation_is_seen_through_the_head_alone() {
    let (chain, program) = setting();
    let head = chain.head().number;
    for number in [head, head - 1, head - 2] {
        all_agree(&program, &chain, number).await;
    }
    let left = chain.head();
    chain.reorg(2, 3);
    time::sleep(STALE).await;
    // Nothing but the new head is asked for; from here on the view is fresh.
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
    for number in head - 2..=head + 1 {
        all_agree(&program, &chain, number).await;
    }
    // What was left is still content, and nobody needs to be asked for it.
    chain.clear_calls();
    let orphan = program.ask(BLOCK_BY_HASH, json!([hex(left.hash), true])).await;
    assert_eq!(orphan["number"], hex(left.number));
    assert_eq!(chain.calls_total(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lower_head_of_another_branch_is_taken_at_once() {
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
async fn a_side_block_asked_by_hash_moves_nothing() {
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
async fn a_fetch_in_flight_across_a_reorganisation_is_not_believed() {
    // Answered with what was true before, or with what is true after.
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
            // Somebody else learns of it while the fetch is under way, in one of two ways.
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
async fn a_fetch_in_flight_while_the_view_moves_on_is_not_believed() {
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
            // No write: the view grows stale by itself, and is refreshed to the new branch.
            agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
            fetch.await.unwrap();
            agrees(&program, &chain, TRANSACTION, json!([hash])).await;
            agrees(&program, &chain, RECEIPT, json!([hash])).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_slept_until_finality_passed_a_reorganisation_wakes_up_right() {
    // The window can be linked to what is there on waking, or it cannot.
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
            // In one order and in the other.
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

// ## One entity, one fetch

#[tokio::test(start_paused = true)]
async fn upper_case_digits_name_the_same_entity() {
    let (chain, program) = setting();
    program.ask("eth_blockNumber", json!([])).await;
    let number = chain.head().number;
    let transaction = tx_hash(&block(&chain, number)[1]);
    let upper = |hash: &str| format!("0x{}", hash[2..].to_uppercase());
    for (method, hash, rest) in [
        (BLOCK_BY_HASH, hex(chain.hash_at(number - 5).unwrap()), vec![json!(true)]),
        (RECEIPT, transaction, vec![]),
    ] {
        chain.clear_calls();
        chain.fail(Fault::Delay(SOON)).on(method).once();
        let params = |hash: String| Value::from([vec![json!(hash)], rest.clone()].concat());
        let (lower, upper) = (params(hash.clone()), params(upper(&hash)));
        // At once, and then again.
        let (first, second) =
            tokio::join!(program.ask(method, lower.clone()), program.ask(method, upper.clone()));
        assert_eq!(first, second);
        assert_eq!(agrees(&program, &chain, method, lower).await, program.ask(method, upper.clone()).await);
        assert_eq!(chain.count(method), 1, "{method}");
        assert!(program.cache_status(method, upper).await.starts_with("holdfast; hit"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_who_hangs_up_leaves_his_followers_their_answer() {
    for (method, param) in [(RECEIPT, "transaction"), (BLOCK_BY_HASH, "block")] {
        let (chain, program) = setting();
        program.ask("eth_blockNumber", json!([])).await;
        let number = chain.head().number;
        let params = match param {
            "block" => json!([hex(chain.hash_at(number - 4).unwrap()), true]),
            _ => json!([tx_hash(&block(&chain, number)[0])]),
        };
        chain.clear_calls();
        chain.fail(Fault::Delay(Duration::from_millis(500))).on(method).once();
        let ask = || {
            let (program, params) = (program.clone(), params.clone());
            tokio::spawn(async move { program.ask(method, params).await })
        };
        let leader = ask();
        time::sleep(SOON).await;
        let followers: Vec<_> = (0..5).map(|_| ask()).collect();
        time::sleep(SOON).await;
        leader.abort();
        assert!(leader.await.unwrap_err().is_cancelled());
        for follower in followers {
            assert_eq!(follower.await.unwrap(), truth(&chain, method, &params));
        }
        assert_eq!(chain.count(method), 1);
        // And if all hang up: what was asked for is there for the next one.
        let alone = ask();
        time::sleep(SOON).await;
        alone.abort();
        assert_eq!(program.ask(method, params.clone()).await, truth(&chain, method, &params));
        assert_eq!(chain.count(method), 1);
    }
}

// ## Orphans

/// The block that left the chain, known to the program before and after.
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
        // It is above the head then.
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

// ## Replicas that lag

#[tokio::test(start_paused = true)]
async fn the_head_does_not_follow_a_lagging_replica_back() {
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
            // The replica has none of what is above its head, and the program knows that it exists.
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
async fn a_lower_head_is_a_rollback_when_it_was_seen_often_and_long_enough() {
    let (chain, program) = setting();
    program.ask("eth_blockNumber", json!([])).await;
    grow(&chain, &program, 5).await;
    let head = chain.head().number;
    chain.rollback(2);
    let number = async || program.ask("eth_blockNumber", json!([])).await;
    // Often enough, but not for long enough.
    for _ in 0..10 {
        time::sleep(STALE).await;
        assert_eq!(number().await, hex(head));
    }
    time::sleep(Duration::from_secs(6)).await;
    assert_eq!(number().await, hex(head - 2));
    all_agree(&program, &chain, head - 2).await;
    assert_eq!(agrees(&program, &chain, BLOCK_BY_NUMBER, json!([hex(head), true])).await, Value::Null);

    // Long enough, but not often enough.
    chain.rollback(2);
    for _ in 0..2 {
        time::sleep(Duration::from_secs(40)).await;
        assert_eq!(number().await, hex(head - 2));
    }
    time::sleep(STALE).await;
    assert_eq!(number().await, hex(head - 4));
    all_agree(&program, &chain, head - 4).await;
}

// ## Writes

#[tokio::test(start_paused = true)]
async fn a_batch_reads_what_it_wrote() {
    let (chain, program) = setting();
    program.ask("eth_blockNumber", json!([])).await;
    let transaction = chain.generate(1).remove(0);
    let hash = tx_hash(&transaction);
    // A node that mines before it answers.
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
async fn absence_is_not_kept_after_a_write() {
    for config in [Config::default(), in_memory::consistent()] {
        let chain = upstream::devchain().blocks(10, 3).chain();
        let program = in_memory::program(&chain, &config);
        program.ask("eth_blockNumber", json!([])).await;
        let transaction = chain.generate(1).remove(0);
        let hash = tx_hash(&transaction);
        assert_eq!(program.ask(RECEIPT, json!([hash])).await, Value::Null);
        program.ask(SEND, json!([raw(&transaction)])).await;
        // Asked every now and then after the send, and mined at any of these moments.
        for _ in 0..5 {
            assert_eq!(agrees(&program, &chain, RECEIPT, json!([hash])).await, Value::Null);
            time::sleep(SOON).await;
        }
        chain.mine(0);
        assert!(agrees(&program, &chain, RECEIPT, json!([hash])).await.is_object());
    }
}

#[tokio::test(start_paused = true)]
async fn a_fetch_sent_before_a_write_is_not_joined_after_it() {
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

// ## Untruths

#[tokio::test(start_paused = true)]
async fn what_cannot_be_right_is_passed_on_and_not_kept() {
    for (lie, method) in [
        (Lie::WrongHash, BLOCK_BY_HASH),
        (Lie::WrongHash, TRANSACTION),
        (Lie::WrongHash, TRANSACTION_AT_HASH),
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
            TRANSACTION_AT_HASH => json!([hash, "0x1"]),
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

#[tokio::test(start_paused = true)]
async fn a_head_that_cannot_be_right_moves_nothing() {
    let (chain, program) = setting();
    program.ask("eth_blockNumber", json!([])).await;
    time::sleep(STALE).await;
    chain.fail(Lie::EmptiedTransactions).on(BLOCK_BY_NUMBER).once();
    program.ask("eth_blockNumber", json!([])).await;
    all_agree(&program, &chain, chain.head().number).await;
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", true])).await;
}

#[tokio::test(start_paused = true)]
async fn pruned_history_is_still_served_and_its_absence_not_kept() {
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

// ## Strangers

/// The node behind the program is another one from now on.
fn replace(chain: &DevChain, change: impl Fn(&mut devchain::Config)) {
    let mut config = chain.config();
    config.seed += 17;
    change(&mut config);
    chain.restart(config);
    chain.mine_many(12, 2);
}

#[tokio::test(start_paused = true)]
async fn another_chain_under_a_running_proxy_is_refused() {
    let changes: [fn(&mut devchain::Config); 2] = [|_| {}, |config| config.chain_id += 1];
    for change in changes {
        let (chain, program) = setting();
        program.ask("eth_blockNumber", json!([])).await;
        let held = chain.hash_at(5).map(hex).unwrap();
        let block = program.ask(BLOCK_BY_HASH, json!([held, true])).await;
        replace(&chain, change);
        time::sleep(STALE).await;
        for (method, params) in [
            (BLOCK_BY_NUMBER, json!(["latest", false])),
            (BLOCK_BY_NUMBER, json!([hex(12), true])),
            ("eth_blockNumber", json!([])),
            (RECEIPT, json!([hex(B256::repeat_byte(7))])),
            ("eth_gasPrice", json!([])),
        ] {
            let (status, reply) = program.call(method, params).await;
            assert_eq!((status, &reply["error"]["code"]), (502, &json!(-32010)), "{method}: {reply}");
        }
        // What is known of the chain that was there is still told.
        assert_eq!(program.ask(BLOCK_BY_HASH, json!([held, true])).await, block);
        assert_eq!(program.metric("finality_alarms_total"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_development_chain_may_start_anew_and_everything_is_forgotten() {
    let node = devchain::Config { chain_id: 31337, keep_orphans: false, ..devchain::Config::default() };
    let chain = DevChain::new(node);
    chain.mine_many(10, 3);
    let program = in_memory::program(&chain, &Config::default());
    for number in 0..=10 {
        all_agree(&program, &chain, number).await;
    }
    let (held, transaction) = (hex(chain.head().hash), tx_hash(&block(&chain, 10)[0]));
    agrees(&program, &chain, BLOCK_BY_HASH, json!([held, true])).await;
    replace(&chain, |_| {});
    // The first call that looks at the chain finds out.
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", true])).await;
    assert_eq!(agrees(&program, &chain, BLOCK_BY_HASH, json!([held, true])).await, Value::Null);
    assert_eq!(agrees(&program, &chain, TRANSACTION, json!([transaction])).await, Value::Null);
    for number in 0..=12 {
        all_agree(&program, &chain, number).await;
    }
}

// ## Finality

#[tokio::test(start_paused = true)]
async fn a_finalized_block_that_changes_is_an_alarm_and_costs_canonicity_not_content() {
    // The same number with another hash; a higher one on another branch.
    for advance in [0, 4] {
        let chain = upstream::devchain().blocks(40, 3).chain();
        let program = in_memory::program(&chain, &Config::default());
        chain.set_finalized(30);
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        all_agree(&program, &chain, 30).await;
        all_agree(&program, &chain, 25).await;
        let old = hex(chain.hash_at(30).unwrap());
        let content = program.ask(BLOCK_BY_HASH, json!([old, true])).await;
        // What no chain should do.
        chain.reorg(15, 20);
        chain.set_finalized(30 + advance);
        time::sleep(STALE).await;
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        assert_eq!(program.metric("finality_alarms_total"), 1);
        for number in [24, 25, 26, 30, 31, 44] {
            all_agree(&program, &chain, number).await;
        }
        chain.clear_calls();
        assert_eq!(program.ask(BLOCK_BY_HASH, json!([old, true])).await, content);
        assert_eq!(chain.calls_total(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_higher_is_final_before_it_is_known_whether_what_was_final_stands() {
    let unsure = [
        Fault::Error { code: -32603, message: "internal error".to_owned() },
        Fault::Status(500),
        Fault::Hang,
    ];
    for fault in unsure {
        let chain = upstream::devchain().blocks(40, 3).chain();
        let program = in_memory::program(&chain, &Config::default());
        chain.set_finalized(30);
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        all_agree(&program, &chain, 30).await;
        all_agree(&program, &chain, 25).await;
        // What no chain should do; and what is new is too far away to link to what is known.
        chain.reorg(15, 600);
        chain.set_finalized(600);
        chain.fail(fault.clone()).on(r#"eth_getBlockByNumber["0x1e"*"#).always();
        for _ in 0..3 {
            time::sleep(STALE).await;
            // A head that does not link is not accepted before the finalized block was shown.
            let (_, reply) = program.call(BLOCK_BY_NUMBER, json!(["latest", false])).await;
            assert!(reply["error"].is_object(), "{reply}");
            agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        }
        chain.clear_faults();
        // Until the one that hangs is given up.
        time::sleep(Duration::from_secs(30)).await;
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        for number in [25, 30, 599, 600] {
            all_agree(&program, &chain, number).await;
        }
        assert_eq!(program.metric("finality_alarms_total"), 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_held_back_is_asked_for_again_before_long() {
    let chain = upstream::devchain().blocks(40, 1).chain();
    let program = in_memory::program(&chain, &Config::default());
    chain.set_finalized(30);
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    chain.mine_many(60, 0);
    chain.set_finalized(80);
    chain.fail(Fault::Status(500)).on(r#"eth_getBlockByNumber["0x1e"*"#).always();
    time::sleep(Duration::from_secs(61)).await;
    let head = async || agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
    for _ in 0..4 {
        head().await;
        time::sleep(STALE).await;
    }
    let asked = chain.calls().iter().filter(|call| call.params.contains("0x1e")).count();
    assert_eq!(asked, 1, "not with every head");
    chain.clear_faults();
    for _ in 0..12 {
        head().await;
        time::sleep(STALE).await;
    }
    all_agree(&program, &chain, 70).await;
    time::sleep(STALE).await;
    chain.clear_calls();
    all_agree(&program, &chain, 70).await;
    assert_eq!(chain.calls_total(), 0, "it is final");
}

// ## Batches

#[tokio::test(start_paused = true)]
async fn the_tags_of_a_batch_mean_one_view() {
    let chain = upstream::devchain().blocks(10, 3).chain();
    let mut config = Config::default();
    // One after the other, so that the chain can move on in between.
    config.http.batch_concurrency = 1;
    let program = in_memory::program(&chain, &config);
    let head = chain.head();
    program.ask("eth_blockNumber", json!([])).await;
    chain.fail(Fault::Delay(STALE * 2)).on(BLOCK_BY_HASH).once();
    let moving = tokio::spawn({
        let (chain, program) = (chain.clone(), program.clone());
        async move {
            time::sleep(SOON).await;
            chain.mine(5);
            time::sleep(STALE).await;
            // Another client sees the new head meanwhile.
            program.ask("eth_blockNumber", json!([])).await
        }
    });
    let answers = program
        .batch(&[
            (BLOCK_BY_NUMBER, json!(["latest", true])),
            (BLOCK_BY_NUMBER, json!(["latest", false])),
            ("eth_blockNumber", json!([])),
            (TRANSACTION_AT_NUMBER, json!(["latest", 1])),
            ("eth_getBlockTransactionCountByNumber", json!(["latest"])),
            (RECEIPTS, json!(["latest"])),
        ])
        .await;
    assert_eq!(moving.await.unwrap(), hex(head.number + 1));
    assert_eq!(answers[0]["hash"], hex(head.hash));
    assert_eq!(answers[1]["hash"], hex(head.hash));
    assert_eq!(answers[2], hex(head.number));
    assert_eq!(answers[3]["blockHash"], hex(head.hash));
    assert_eq!(answers[4], "0x3");
    assert_eq!(answers[5][0]["blockHash"], hex(head.hash));
}

/// A node that is busy while it is asked who it is does not change the chain by it.
#[tokio::test(start_paused = true)]
async fn an_identity_that_is_told_by_halves_empties_nothing_and_unpins_nothing() {
    let chain = upstream::devchain().blocks(20, 2).chain();
    let program = in_memory::program(&chain, &Config::default());
    let hash = format!("{:#x}", chain.hash_at(3).unwrap());
    let ask = json!([hash, true]);
    assert_eq!(program.call("eth_getBlockByHash", ask.clone()).await.0, 200);

    // Contact is lost, and the next time block 0 cannot be had: for good, which must do, or just now, which must not.
    for (code, message, then) in [(4444, "pruned history unavailable", 200), (-32005, "busy", 502)] {
        chain.fail(Fault::Reset).on("eth_gasPrice").once();
        assert_eq!(program.call("eth_gasPrice", json!([])).await.0, 502);
        chain.fail(Fault::Error { code, message: message.to_owned() }).on("eth_getBlockByNumber").once();
        assert_eq!(program.call("eth_gasPrice", json!([])).await.0, then, "{message}");
        assert_eq!(program.call("eth_gasPrice", json!([])).await.0, 200, "{message}");
    }
    chain.clear_calls();
    assert_eq!(program.call("eth_getBlockByHash", ask).await.0, 200);
    assert_eq!(chain.count("eth_getBlockByHash"), 0, "the cache was emptied");

    // And a stranger with the same chain id is still found out.
    let mut other = chain.config();
    other.seed += 1;
    chain.restart(other);
    chain.fail(Fault::Reset).on("eth_gasPrice").once();
    assert_eq!(program.call("eth_gasPrice", json!([])).await.0, 502);
    let (status, reply) = program.call("eth_gasPrice", json!([])).await;
    assert_eq!(status, 502, "{reply}");
    assert!(reply["error"]["message"].as_str().unwrap().contains("genesis"), "{reply}");
}

/// Content may be joined whenever it was asked for; that there is none may not.
#[tokio::test(start_paused = true)]
async fn a_null_by_hash_that_is_under_way_is_not_handed_to_those_who_come_later() {
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

/// A node without finality is asked for it, and not with every call thrice.
#[tokio::test(start_paused = true)]
async fn tags_that_a_node_does_not_have_cost_little_more_than_without_a_proxy() {
    let chain = upstream::devchain().blocks(3, 1).chain();
    chain.set_finalized(TagTarget::Error);
    chain.set_safe(TagTarget::Null);
    let program = in_memory::program(&chain, &Config::default());
    assert_eq!(program.call("eth_blockNumber", json!([])).await.0, 200);
    chain.clear_calls();
    for _ in 0..10 {
        let (_, reply) = program.call("eth_getBlockByNumber", json!(["finalized", false])).await;
        assert!(reply["error"].is_object(), "{reply}");
        let (_, reply) = program.call("eth_getBlockByNumber", json!(["safe", false])).await;
        assert_eq!(reply["result"], Value::Null, "{reply}");
    }
    // Each call is forwarded, and each tag was refreshed once.
    assert!(chain.count("eth_getBlockByNumber") <= 22, "{}", chain.count("eth_getBlockByNumber"));
}

/// What is not kept is not called kept, and an empty block's receipts are no lie.
#[tokio::test(start_paused = true)]
async fn the_cache_status_tells_what_was_kept() {
    let chain = upstream::devchain().blocks(3, 1).chain();
    chain.mine(0);
    let (registered, program) = (chain.generate(1).remove(0), in_memory::program(&chain, &Config::default()));
    chain.submit(registered.clone()).unwrap();
    let pending = json!([format!("{:#x}", registered.tx_hash())]);
    assert_eq!(program.cache_status(TRANSACTION, pending).await, "holdfast; fwd=miss");

    let empty = json!([hex(chain.head().number)]);
    let (status, receipts) = program.cached(RECEIPTS, empty).await;
    assert_eq!((status.as_str(), receipts), ("holdfast; fwd=miss", json!([])));
    assert_eq!(program.metric("mismatches_total{reason=\"emptied\"}"), 0, "an empty block was called a lie");
}

/// A block is fetched whole. If it may not be cut, whoever wants hashes does not get the whole.
#[tokio::test(start_paused = true)]
async fn a_lie_about_a_block_is_handed_on_in_the_form_that_was_asked_for() {
    let chain = upstream::devchain().blocks(3, 2).chain();
    let program = in_memory::program(&chain, &Config::default());
    chain.fail(Lie::Field("number".to_owned(), json!("0x7"))).on(BLOCK_BY_HASH).times(2);
    let asked = json!([hex(chain.head().hash), false]);
    let block = program.ask(BLOCK_BY_HASH, asked.clone()).await;
    assert_eq!(block["number"], "0x7");
    assert!(block["transactions"][0].is_string(), "{block}");
    assert_eq!(program.ask(BLOCK_BY_HASH, asked).await["number"], "0x3");
}

/// The view never saw the branch that was left, so no reorganisation is noticed; but it has shown a head, and
/// what was sent before that head was seen may be about another branch.
#[tokio::test(start_paused = true)]
async fn an_answer_that_was_asked_for_before_the_head_was_shown_is_not_joined() {
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
