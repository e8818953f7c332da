//! Counts upstream calls: the proxy fetches each entity once, and waiting costs almost nothing.
//!
//! Upkeep calls are counted separately. They are for chain identity, heads, finality, and gaps between heads.

use std::time::Duration;

use alloy_eips::Encodable2718;
use alloy_primitives::{B256, hex};
use futures_util::future::join_all;
use holdfast::{
    config::Config,
    devchain::{DevChain, Fault, Lie, RecordedCall},
};
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use crate::support::{
    in_memory::{self, InMemory},
    nodes::hex,
    upstream,
};

/// Time between two calls of a client.
const PACE: Duration = Duration::from_millis(20);

/// Poll interval of a waiting client.
const POLL: Duration = Duration::from_millis(100);

const STALENESS: Duration = Duration::from_secs(1);

fn is_upkeep(call: &RecordedCall) -> bool {
    match call.method.as_str() {
        "eth_chainId" | "net_version" => true,
        // The proxy cuts answers to clients out of whole blocks, so only upkeep calls ask for blocks with hashes.
        "eth_getBlockByNumber" => call.params.ends_with("false]"),
        _ => false,
    }
}

/// Returns the calls on behalf of clients since the record was cleared, and the number of upkeep calls.
fn counted(chain: &DevChain) -> (Vec<RecordedCall>, usize) {
    let (upkeep, content): (Vec<_>, Vec<_>) = chain.calls().into_iter().partition(is_upkeep);
    (content, upkeep.len())
}

fn heads_asked(chain: &DevChain) -> usize {
    chain.calls().iter().filter(|call| call.params == r#"["latest",false]"#).count()
}

fn transactions(chain: &DevChain, number: u64) -> Vec<String> {
    chain.transactions_of(chain.hash_at(number).unwrap()).into_iter().map(hex).collect()
}

/// Asserts that the program's answer equals the node's.
async fn asks(program: &InMemory, chain: &DevChain, method: &str, params: Value) {
    let truth: Value = serde_json::from_slice(&chain.answer(method, &params).unwrap()).unwrap();
    assert_eq!(program.ask(method, params.clone()).await, truth, "{method} {params}");
}

/// A chain of full blocks: 1 to 20 are final, 21 to 40 are not.
fn tall_chain() -> DevChain {
    let chain = upstream::devchain().blocks(40, 60).chain();
    chain.set_finalized(20);
    chain
}

/// Returns two walks over a tall chain: up through the final blocks, and from the head down, where the child of each
/// block is already known.
fn walks() -> [(&'static str, Vec<u64>); 2] {
    [("final", (1..=20).collect()), ("linked", (21..=40).rev().collect())]
}

#[tokio::test(start_paused = true)]
async fn walk_with_single_receipts_costs_two_calls_a_block() {
    let chain = tall_chain();
    let program = in_memory::program(&chain, &Config::default());
    for (name, numbers) in walks() {
        program.ask("eth_blockNumber", json!([])).await;
        chain.clear_calls();
        let begun = Instant::now();
        for number in numbers {
            asks(&program, &chain, "eth_getBlockByNumber", json!([hex(number), true])).await;
            for transaction in transactions(&chain, number) {
                time::sleep(PACE).await;
                asks(&program, &chain, "eth_getTransactionReceipt", json!([transaction])).await;
            }
        }
        let (content, upkeep) = counted(&chain);
        println!("walk over 20 {name} blocks, receipts one by one: {} calls, {upkeep} upkeep", content.len());
        assert_eq!(content.len(), 40);
        assert!(heads_asked(&chain) as u64 <= begun.elapsed().as_secs() + 1, "{}", heads_asked(&chain));
    }
}

#[tokio::test(start_paused = true)]
async fn walk_with_batched_receipts_costs_two_calls_a_block() {
    let chain = tall_chain();
    let program = in_memory::program(&chain, &Config::default());
    for (name, numbers) in walks() {
        program.ask("eth_blockNumber", json!([])).await;
        chain.clear_calls();
        for number in numbers {
            time::sleep(PACE).await;
            asks(&program, &chain, "eth_getBlockByNumber", json!([hex(number), true])).await;
            let batch: Vec<_> = transactions(&chain, number)
                .into_iter()
                .map(|transaction| ("eth_getTransactionReceipt", json!([transaction])))
                .collect();
            let receipts = program.batch(&batch).await;
            let truth: Value =
                serde_json::from_slice(&chain.receipts_json(chain.hash_at(number).unwrap()).unwrap())
                    .unwrap();
            assert_eq!(json!(receipts), truth);
        }
        let (content, upkeep) = counted(&chain);
        println!("walk over 20 {name} blocks in batches: {} calls, {upkeep} upkeep", content.len());
        assert_eq!(content.len(), 40);
    }
}

/// The view remembers which block was at the number, but the cache has only the hashes of that block.
#[tokio::test(start_paused = true)]
async fn full_block_of_which_the_hashes_are_cached_costs_one_call() {
    let chain = tall_chain();
    let program = in_memory::program(&chain, &Config::default());
    program.ask("eth_blockNumber", json!([])).await;
    let transaction = json!([transactions(&chain, 30)[0]]);
    // The second call asks for the hashes, to see whether the transaction is still there.
    for _ in 0..2 {
        asks(&program, &chain, "eth_getTransactionByHash", transaction.clone()).await;
        time::sleep(STALENESS * 2).await;
    }
    chain.clear_calls();
    asks(&program, &chain, "eth_getBlockByNumber", json!([hex(30), true])).await;
    assert_eq!(chain.calls_total(), 1);
}

/// Asks for every part of a block, in several orders.
#[tokio::test(start_paused = true)]
async fn one_call_answers_every_query_about_a_block() {
    let chain = upstream::devchain().blocks(40, 50).chain();
    let last = chain.head().number;
    for number in [5, last - 1, last] {
        for first in 0..4 {
            let program = in_memory::program(&chain, &Config::default());
            program.ask("eth_blockNumber", json!([])).await;
            // The proxy now knows the head, to which it can link a block that is not final.
            chain.clear_calls();
            let hash = hex(chain.hash_at(number).unwrap());
            let mut forms = vec![
                ("eth_getBlockByNumber", json!([hex(number), true])),
                ("eth_getBlockByNumber", json!([hex(number), false])),
                ("eth_getBlockByHash", json!([hash, true])),
                ("eth_getBlockByHash", json!([hash, false])),
            ];
            forms.rotate_left(first);
            // Skips orders that begin with a query by hash. That answer does not show that block 5 is canonical, so the
            // query by number would cost another call.
            if number == 5 && first >= 2 {
                continue;
            }
            for (method, params) in forms {
                time::sleep(PACE).await;
                asks(&program, &chain, method, params).await;
            }
            for (index, transaction) in transactions(&chain, number).into_iter().enumerate() {
                time::sleep(PACE).await;
                let by_hash = "eth_getTransactionByBlockHashAndIndex";
                let by_number = "eth_getTransactionByBlockNumberAndIndex";
                asks(&program, &chain, "eth_getTransactionByHash", json!([transaction])).await;
                asks(&program, &chain, by_hash, json!([hash, hex(index)])).await;
                asks(&program, &chain, by_number, json!([hex(number), hex(index)])).await;
            }
            let (content, upkeep) = counted(&chain);
            println!("block {number}, form {first} first: {} call, {upkeep} upkeep", content.len());
            assert_eq!(content.len(), 1, "{content:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn transactions_of_an_unknown_block_by_hash_cost_three_calls() {
    let chain = upstream::devchain().blocks(40, 200).chain();
    let (by_hash, receipt) = ("eth_getTransactionByHash", "eth_getTransactionReceipt");
    for (number, methods) in [(7, &[by_hash, receipt][..]), (39, &[by_hash]), (40, &[by_hash, receipt])] {
        for method in methods {
            let program = in_memory::program(&chain, &Config::default());
            program.ask("eth_getBlockByNumber", json!(["latest", false])).await;
            chain.clear_calls();
            for transaction in transactions(&chain, number) {
                time::sleep(PACE).await;
                asks(&program, &chain, method, json!([transaction])).await;
            }
            let (content, upkeep) = counted(&chain);
            println!("200 × {method} of block {number}: {} calls, {upkeep} upkeep", content.len());
            assert!(content.len() <= 3, "{content:?}");
        }
    }
}

/// Wallets read a transaction, and a little later its receipt.
#[tokio::test(start_paused = true)]
async fn receipt_of_a_transaction_read_before_costs_one_call() {
    let chain = upstream::devchain().blocks(40, 5).chain();
    let program = in_memory::program(&chain, &Config::default());
    program.ask("eth_blockNumber", json!([])).await;
    let transaction = json!([transactions(&chain, 39)[0]]);
    asks(&program, &chain, "eth_getTransactionByHash", transaction.clone()).await;
    time::sleep(2 * STALENESS).await;
    chain.clear_calls();
    asks(&program, &chain, "eth_getTransactionReceipt", transaction).await;
    let methods: Vec<_> = chain.calls().into_iter().map(|call| call.method).collect();
    assert_eq!(methods, ["eth_getTransactionReceipt"]);
}

/// The proxy has not seen a call by number before these calls by hash.
#[tokio::test(start_paused = true)]
async fn client_that_only_knows_hashes_costs_no_more() {
    let chain = upstream::devchain().blocks(40, 200).chain();
    for method in ["eth_getTransactionByHash", "eth_getTransactionReceipt"] {
        let program = in_memory::program(&chain, &Config::default());
        for transaction in transactions(&chain, 7) {
            time::sleep(PACE).await;
            asks(&program, &chain, method, json!([transaction])).await;
        }
        let (content, upkeep) = counted(&chain);
        println!("200 × {method}, nothing else asked: {} calls, {upkeep} upkeep", content.len());
        chain.clear_calls();
        assert!(content.len() <= 3, "{content:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_equal_misses_share_one_call() {
    let chain = upstream::devchain().blocks(40, 9).chain();
    let hash = |number| hex(chain.hash_at(number).unwrap());
    let transaction = |number| transactions(&chain, number)[3].clone();
    for (method, params) in [
        ("eth_getBlockByHash", json!([hash(3), true])),
        ("eth_getBlockByNumber", json!([hex(4), false])),
        ("eth_getBlockByNumber", json!(["latest", true])),
        ("eth_getTransactionByHash", json!([transaction(6)])),
        ("eth_getTransactionReceipt", json!([transaction(7)])),
        ("eth_getTransactionReceipt", json!([hex(B256::repeat_byte(0xee))])),
        ("eth_getTransactionByBlockHashAndIndex", json!([hash(8), "0x2"])),
        ("eth_getTransactionByBlockNumberAndIndex", json!([hex(9), "0x2"])),
        ("eth_getBlockReceipts", json!([hash(10)])),
    ] {
        let program = in_memory::program(&chain, &Config::default());
        program.ask("eth_chainId", json!([])).await;
        chain.clear_calls();
        chain.fail(Fault::Delay(Duration::from_millis(50))).always();
        let truth: Value = serde_json::from_slice(&chain.answer(method, &params).unwrap()).unwrap();
        let calls = (0..1000).map(|_| program.ask(method, params.clone()));
        assert!(join_all(calls).await.into_iter().all(|answer| answer == truth), "{method} {params}");
        chain.clear_faults();
        let (content, upkeep) = counted(&chain);
        println!("1000 × {method} {params}: {} call, {upkeep} upkeep", content.len());
        assert_eq!(content.len(), 1, "{content:?}");
        assert!(upkeep <= 2, "{upkeep}");
    }
}

/// Sends a transaction through the proxy and polls for its receipt, with a block every 12 s, until the fifth block
/// includes it. Returns the numbers of calls for the client and of upkeep calls, counted from `max_staleness` after the
/// send until just before the fifth block.
async fn wait_for_a_receipt(config: &Config) -> (usize, usize) {
    let chain = upstream::devchain().blocks(40, 2).chain();
    let program = in_memory::program(&chain, config);
    program.ask("eth_getBlockByNumber", json!(["latest", false])).await;
    let transaction = chain.generate(1).remove(0);
    let raw = format!("0x{}", hex::encode(transaction.encoded_2718()));
    let hash = program.ask("eth_sendRawTransaction", json!([raw])).await;
    let pool = vec![transaction];
    chain.set_mempool(Vec::new());
    time::sleep(STALENESS).await;
    chain.clear_calls();
    for block in 0..5 {
        if block == 4 {
            chain.set_mempool(pool.clone());
        }
        for _ in 0..120 {
            time::sleep(POLL).await;
            asks(&program, &chain, "eth_getTransactionReceipt", json!([hash])).await;
        }
        if block < 4 {
            chain.mine(0);
        }
    }
    let waiting = counted(&chain);
    chain.mine(0);
    time::sleep(STALENESS + POLL).await;
    asks(&program, &chain, "eth_getTransactionReceipt", json!([hash])).await;
    (waiting.0.len(), waiting.1)
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_receipt_costs_one_call_a_second_and_one_a_head() {
    // The client polls for 60 s, with four new heads after the first.
    let (receipts, upkeep) = wait_for_a_receipt(&Config::default()).await;
    println!("60 s of polling an unmined receipt, five heads: {receipts} calls, {upkeep} upkeep");
    assert!(receipts <= 60 + 5, "{receipts}");
    assert!(upkeep <= 61, "{upkeep}");
    let (receipts, upkeep) = wait_for_a_receipt(&in_memory::consistent()).await;
    println!("the same with a consistent upstream: {receipts} calls, {upkeep} upkeep");
    assert!(receipts <= 5, "{receipts}");
    assert!(upkeep <= 61, "{upkeep}");
}

/// A wallet that has only just connected and makes no other calls.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_receipt_and_nothing_else_costs_no_more() {
    for (config, most) in [(Config::default(), 11), (in_memory::consistent(), 2)] {
        let chain = upstream::devchain().blocks(4, 2).chain();
        let program = in_memory::program(&chain, &config);
        let unknown = json!([hex(B256::repeat_byte(0xee))]);
        for _ in 0..100 {
            time::sleep(POLL).await;
            asks(&program, &chain, "eth_getTransactionReceipt", unknown.clone()).await;
        }
        let (content, upkeep) = counted(&chain);
        println!("10 s of polling a receipt and nothing else: {} calls, {upkeep} upkeep", content.len());
        assert!(content.len() <= most, "{}", content.len());
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_next_block_costs_nothing_until_it_exists() {
    for full in [true, false] {
        let chain = upstream::devchain().blocks(40, 20).chain();
        let program = in_memory::program(&chain, &Config::default());
        program.ask("eth_getBlockByNumber", json!(["latest", false])).await;
        let begun = Instant::now();
        for _ in 0..5 {
            chain.clear_calls();
            let next = json!([hex(chain.head().number + 1), full]);
            for _ in 0..119 {
                time::sleep(POLL).await;
                asks(&program, &chain, "eth_getBlockByNumber", next.clone()).await;
            }
            assert_eq!(counted(&chain).0, []);
            chain.mine(20);
            // The answer stays `null` until the known head is older than `max_staleness`.
            while program.ask("eth_getBlockByNumber", next.clone()).await.is_null() {
                time::sleep(POLL).await;
            }
            for _ in 0..10 {
                asks(&program, &chain, "eth_getBlockByNumber", next.clone()).await;
            }
            let (content, upkeep) = counted(&chain);
            println!("polling for the next block, full = {full}: {} calls, {upkeep} upkeep", content.len());
            assert_eq!(content.len(), usize::from(full), "{content:?}");
            assert!(upkeep <= 15, "{upkeep}");
        }
        assert!(begun.elapsed() < Duration::from_secs(70));
    }
}

#[tokio::test(start_paused = true)]
async fn idle_proxy_makes_no_upstream_calls() {
    let chain = upstream::devchain().blocks(40, 5).chain();
    let program = in_memory::program(&chain, &Config::default());
    for tag in ["latest", "safe", "finalized"] {
        program.ask("eth_getBlockByNumber", json!([tag, true])).await;
    }
    time::sleep(PACE).await;
    chain.clear_calls();
    time::sleep(Duration::from_secs(60)).await;
    chain.mine_many(3, 3);
    time::sleep(Duration::from_secs(60)).await;
    println!("idle for two minutes: {} calls", chain.calls_total());
    assert_eq!(chain.calls_total(), 0);
}

#[tokio::test(start_paused = true)]
async fn head_is_fetched_once_a_second_under_load() {
    let chain = upstream::devchain().blocks(40, 5).chain();
    let program = in_memory::program(&chain, &Config::default());
    program.ask("eth_getBlockByNumber", json!(["latest", false])).await;
    chain.clear_calls();
    let forms = [
        ("eth_blockNumber", json!([])),
        ("eth_getBlockByNumber", json!(["latest", false])),
        ("eth_getBlockByNumber", json!([hex(41), true])),
        ("eth_getBlockTransactionCountByNumber", json!(["latest"])),
    ];
    for round in 0..6000 {
        time::sleep(Duration::from_millis(10)).await;
        let (method, params) = &forms[round % forms.len()];
        program.ask(method, params.clone()).await;
    }
    let (content, upkeep) = counted(&chain);
    println!("a minute of 100 calls a second about the head: {} calls, {upkeep} upkeep", content.len());
    // Transaction counts need a proved block. The head that upkeep fetches is not proved, so the proxy fetches its
    // block once. Because of that, two refreshes try to bring the next head in full.
    let content: Vec<_> = content.iter().map(|call| (call.method.as_str(), call.params.as_str())).collect();
    let full = ("eth_getBlockByNumber", r#"["latest",true]"#);
    let ("eth_getBlockByHash", _) = content[0] else { panic!("{content:?}") };
    assert_eq!(content[1..], [full, full]);
    assert!(heads_asked(&chain) <= 60, "{}", heads_asked(&chain));
    assert!(upkeep <= 62, "{upkeep}");
}

/// A call with an index past the end costs one upstream call, as without a proxy.
#[tokio::test(start_paused = true)]
async fn an_index_past_the_end_costs_one_call() {
    let chain = upstream::devchain().blocks(40, 3).chain();
    let (by_number, by_hash) =
        ("eth_getTransactionByBlockNumberAndIndex", "eth_getTransactionByBlockHashAndIndex");
    let hash = hex(chain.hash_at(39).unwrap());
    for (method, place) in [
        (by_number, json!("latest")),
        (by_number, json!("finalized")),
        (by_number, json!(hex(40))),
        (by_number, json!(hex(39))),
        (by_number, json!(hex(3))),
        (by_hash, json!(hash)),
    ] {
        let program = in_memory::program(&chain, &Config::default());
        program.ask("eth_getBlockByNumber", json!(["latest", false])).await;
        chain.clear_calls();
        asks(&program, &chain, method, json!([place, "0x3"])).await;
        let (content, upkeep) = counted(&chain);
        println!("{method} {place} past the end: {} call, {upkeep} upkeep", content.len());
        assert_eq!(content.len(), 1, "{content:?}");
    }
}

/// A client that polls the whole head each second costs no more calls than without a proxy.
#[tokio::test(start_paused = true)]
async fn poll_of_the_full_head_is_one_call() {
    let chain = upstream::devchain().blocks(30, 5).chain();
    let program = in_memory::program(&chain, &Config::default());
    program.ask("eth_blockNumber", json!([])).await;
    time::sleep(Duration::from_millis(1_001)).await;
    chain.clear_calls();
    for second in 0..24 {
        if second % 2 == 0 {
            chain.mine(5);
        }
        let params = json!(["latest", true]);
        asks(&program, &chain, "eth_getBlockByNumber", params).await;
        time::sleep(Duration::from_millis(1_001)).await;
    }
    let calls: Vec<_> = chain.calls().into_iter().map(|call| (call.method, call.params)).collect();
    assert!(calls.len() <= 25, "{} calls: {calls:#?}", calls.len());
}

/// Clients that read the full block after each new head cost two calls only for the first of them: then the refresh
/// that finds a new head brings the full block. It does so only when a block is due, and only while blocks are read.
#[tokio::test(start_paused = true)]
async fn head_arrives_in_full_while_clients_read_full_heads() {
    const POLLS: u32 = 12;
    let chain = upstream::devchain().blocks(30, 5).chain();
    let program = in_memory::program(&chain, &Config::default());
    program.ask("eth_blockNumber", json!([])).await;
    let heads =
        |full| chain.calls().iter().filter(|call| call.params == format!(r#"["latest",{full}]"#)).count();
    for reads in [true, false] {
        chain.clear_calls();
        for round in 0..50 {
            match round % 10 {
                9 => chain.reorg(2, 3),
                _ => chain.mine(5),
            };
            for _ in 0..POLLS {
                time::sleep(Duration::from_millis(1_001)).await;
                let own =
                    serde_json::from_slice::<Value>(&chain.block_json(chain.head().hash, false).unwrap());
                let head = program.ask("eth_getBlockByNumber", json!(["latest", false])).await;
                assert_eq!(head, own.unwrap());
                if reads {
                    asks(&program, &chain, "eth_getBlockByHash", json!([head["hash"], true])).await;
                }
            }
        }
        let calls = chain.calls();
        let is_full =
            |call: &&RecordedCall| call.method == "eth_getBlockByHash" && call.params.ends_with("true]");
        let by_hash = calls.iter().filter(is_full).count();
        assert!(heads(true) + heads(false) <= 50 * POLLS as usize, "one refresh for each poll");
        match reads {
            true => {
                // The first of each 16 heads, and the first after the start.
                assert!(by_hash <= 5, "{by_hash} full blocks by hash");
                assert!(heads(true) <= 50 + 10, "{} full heads", heads(true));
            }
            false => assert!(heads(true) <= 16 + 4, "{} full heads that no client reads", heads(true)),
        }
    }
}

/// A client that polls only the number does not wait long for a full block that others may read.
#[tokio::test(start_paused = true)]
async fn slow_full_head_hardly_delays_a_poll_of_the_number() {
    let limit = Fault::RateLimited { retry_after: None };
    for fault in [Fault::Hang, Fault::Status(502), Fault::Null, limit] {
        let chain = upstream::devchain().blocks(30, 5).chain();
        let program = in_memory::program(&chain, &Config::default());
        for _ in 0..3 {
            chain.mine(5);
            time::sleep(Duration::from_secs(12)).await;
            let head = program.ask("eth_getBlockByNumber", json!(["latest", false])).await;
            program.ask("eth_getBlockByHash", json!([head["hash"], true])).await;
        }
        chain.clear_calls();
        chain.fail(fault.clone()).on(r#"eth_getBlockByNumber["latest",true]*"#).always();
        for second in 0..40 {
            if second % 12 == 0 {
                chain.mine(5);
            }
            time::sleep(Duration::from_millis(1_001)).await;
            let begun = Instant::now();
            let number = program.ask("eth_blockNumber", json!([])).await;
            // After a rate limit, the endpoint gets no call for a second.
            let most = if let Fault::RateLimited { .. } = fault { 1_500 } else { 510 };
            assert!(begun.elapsed() <= Duration::from_millis(most), "{fault:?}: {:?}", begun.elapsed());
            assert_eq!(number, json!(hex(chain.head().number)), "{fault:?}");
        }
        let full = chain.calls().iter().filter(|call| call.params == r#"["latest",true]"#).count();
        assert_eq!(full, 1, "{fault:?}: asked again only after a minute");
    }
}

/// A primary that answers every client call stays the primary, although it does not show a full head that no client asked
/// for. The other endpoint is on another branch.
#[tokio::test(start_paused = true)]
async fn failed_full_head_does_not_change_the_primary() {
    let refusal = Fault::Refused { status: 403, code: -32000, message: "not in your plan".to_owned() };
    for fault in [Fault::Status(502), Fault::Null, Fault::Garbage, refusal] {
        let chain = upstream::devchain().blocks(30, 5).chain();
        let fork = upstream::devchain().blocks(30, 5).chain();
        fork.reorg(2, 2);
        let program = in_memory::program_over(&[&chain, &fork], &Config::default());
        program.ask("eth_gasPrice", json!([])).await;
        let (primary, other) =
            if chain.count("eth_gasPrice") > 0 { (&chain, &fork) } else { (&fork, &chain) };
        primary.fail(fault.clone()).on(r#"eth_getBlockByNumber["latest",true]*"#).always();
        for round in 0..4 {
            primary.mine(5);
            other.mine(5);
            for _ in 0..12 {
                time::sleep(Duration::from_millis(1_001)).await;
                let head = program.ask("eth_getBlockByNumber", json!(["latest", false])).await;
                assert_eq!(head["hash"], json!(primary.head().hash), "{fault:?}, block {round}");
                program.ask("eth_getBlockByHash", json!([head["hash"], true])).await;
            }
        }
        let full = primary.calls().iter().filter(|call| call.params == r#"["latest",true]"#).count();
        assert_eq!(full, 1, "{fault:?}");
    }
}

/// If the node refuses full blocks, shows wrong ones or takes too long, the proxy follows the chain by blocks with
/// hashes, and does not ask for a full head again for a minute.
#[tokio::test(start_paused = true)]
async fn head_is_followed_though_its_full_form_fails() {
    let lie = || Fault::Lie(Lie::Field("gasUsed".to_owned(), json!("0x1")));
    let refusal = || Fault::Error { code: -32008, message: "too big".to_owned() };
    for fault in [lie(), refusal(), Fault::Status(502), Fault::Hang, Fault::Garbage] {
        let chain = upstream::devchain().blocks(30, 5).chain();
        let program = in_memory::program(&chain, &Config::default());
        // The proof of a block shows that others can be proved, too.
        program.ask("eth_getBlockByNumber", json!(["latest", true])).await;
        time::sleep(Duration::from_millis(1_001)).await;
        chain.clear_calls();
        chain.fail(fault.clone()).on(r#"eth_getBlockByNumber["latest",true]*"#).always();
        for _ in 0..4 {
            chain.mine(5);
            let own = chain.block_json(chain.head().hash, true).unwrap();
            let own: Value = serde_json::from_slice(&own).unwrap();
            assert_eq!(program.ask("eth_getBlockByNumber", json!(["latest", true])).await, own, "{fault:?}");
            time::sleep(Duration::from_millis(1_001)).await;
        }
        let full = chain.calls().iter().filter(|call| call.params == r#"["latest",true]"#).count();
        assert!(full <= 2, "{fault:?}: {full} calls for a full head");
    }
}

#[tokio::test(start_paused = true)]
async fn receipts_by_number_of_an_old_block_are_fetched_once() {
    // The block is so far below the finalized block that one answer makes it final.
    let chain = upstream::devchain().blocks(900, 2).chain();
    chain.set_finalized(890);
    let program = in_memory::program(&chain, &Config::default());
    program.ask("eth_getBlockByNumber", json!(["finalized", false])).await;
    chain.clear_calls();
    for _ in 0..3 {
        asks(&program, &chain, "eth_getBlockReceipts", json!(["0x5"])).await;
        time::sleep(10 * STALENESS).await;
        let calls = chain.calls();
        let methods: Vec<_> = calls.iter().map(|call| call.method.as_str()).collect();
        // The block shows where the receipts are, and proves them.
        assert_eq!(methods, ["eth_getBlockByNumber", "eth_getBlockReceipts"], "{calls:?}");
    }
}
