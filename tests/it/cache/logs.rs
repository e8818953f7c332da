//! `eth_getLogs`: from receipts and blooms, or by a checked call to the upstream.

use holdfast::{
    config::Config,
    devchain::{Config as ChainConfig, DevChain, Fault, Lie, Pruned},
    verify::{Demand, OnMismatch},
};
use serde_json::{Value, json};
use tokio::time;

use crate::support::{
    in_memory::{self, InMemory},
    method::{BLOCK_BY_HASH, BLOCK_BY_NUMBER, LOGS, RECEIPTS},
    one_node::{SOON, STALE},
    upstream,
};

/// Returns a chain that is listed as Ethereum's, so that blooms exclude blocks.
pub(super) fn ethereum(blocks: usize, transactions: usize) -> DevChain {
    let mainnet = |config: &mut ChainConfig| config.chain_id = 1;
    upstream::devchain().config(mainnet).blocks(blocks, transactions).chain()
}

pub(super) fn full() -> Config {
    let mut config = Config::default();
    (config.verify.level, config.verify.on_mismatch) = (Demand::Full, OnMismatch::Reject);
    config
}

pub(super) fn range(first: u64, last: u64) -> Value {
    json!([{ "fromBlock": format!("{first:#x}"), "toBlock": format!("{last:#x}") }])
}

pub(super) fn with(mut params: Value, name: &str, value: Value) -> Value {
    params[0][name] = value;
    params
}

pub(super) fn own(chain: &DevChain, params: &Value) -> Value {
    serde_json::from_slice(&chain.answer(LOGS, params.clone()).unwrap()).unwrap()
}

/// Reads blocks and their receipts, so that they are cached.
pub(super) async fn warm(program: &InMemory, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        let number = format!("{number:#x}");
        program.ask(BLOCK_BY_NUMBER, json!([number, true])).await;
        program.ask(RECEIPTS, json!([number])).await;
    }
}

#[tokio::test(start_paused = true)]
async fn cached_receipts_answer_without_a_call() {
    let chain = ethereum(6, 4);
    let program = in_memory::program(&chain, &Config::default());
    warm(&program, 1..=6).await;
    chain.clear_calls();
    let all = own(&chain, &range(1, 6));
    let address = all[0]["address"].clone();
    let topic = all.as_array().unwrap().iter().find_map(|log| log["topics"].get(0)).unwrap().clone();
    for params in [
        range(1, 6),
        range(3, 3),
        with(range(1, 6), "address", address.clone()),
        with(range(1, 6), "address", json!([address, format!("0x{}", "00".repeat(20))])),
        with(range(1, 6), "topics", json!([topic])),
        with(range(2, 5), "topics", json!([[topic, format!("0x{}", "11".repeat(32))]])),
        json!([{ "blockHash": format!("{:#x}", chain.hash_at(4).unwrap()) }]),
    ] {
        let expected = own(&chain, &params);
        chain.clear_calls();
        let (status, answer) = program.cached(LOGS, params.clone()).await;
        assert_eq!(answer, expected, "{params}");
        assert_eq!(status, "holdfast; hit; detail=receipts; proof=proved", "{params}");
        assert_eq!(chain.count(LOGS), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn bloom_of_a_proved_header_excludes_a_block() {
    let chain = ethereum(5, 3);
    let absent = json!(format!("0x{}", "77".repeat(20)));
    let program = in_memory::program(&chain, &Config::default());
    for number in 1..=5 {
        program.ask(BLOCK_BY_NUMBER, json!([format!("{number:#x}"), true])).await;
    }
    chain.clear_calls();
    let (status, answer) = program.cached(LOGS, with(range(1, 5), "address", absent)).await;
    assert_eq!((&*status, answer), ("holdfast; hit; detail=bloom; proof=proved", json!([])));
    assert_eq!(chain.count(LOGS) + chain.count(RECEIPTS), 0);
}

/// On such chains, some logs are in no bloom.
#[tokio::test(start_paused = true)]
async fn bloom_excludes_nothing_on_other_chains() {
    let chain = upstream::devchain().blocks(5, 3).chain();
    let absent = json!(format!("0x{}", "77".repeat(20)));
    let program = in_memory::program(&chain, &Config::default());
    program.ask(BLOCK_BY_NUMBER, json!(["0x4", true])).await;
    chain.clear_calls();
    let (status, answer) = program.cached(LOGS, with(range(4, 4), "address", absent)).await;
    assert_eq!((&*status, answer), ("holdfast; fwd=miss; stored; detail=receipts; proof=proved", json!([])));
    assert_eq!(chain.count(RECEIPTS), 1);
}

#[tokio::test(start_paused = true)]
async fn short_cold_run_is_fetched_and_cached() {
    let chain = ethereum(8, 3);
    let program = in_memory::program(&chain, &Config::default());
    warm(&program, [2, 3, 6, 7]).await;
    chain.clear_calls();
    let (status, answer) = program.cached(LOGS, range(2, 7)).await;
    assert_eq!(status, "holdfast; fwd=miss; stored; detail=receipts; proof=proved");
    assert_eq!(answer, own(&chain, &range(2, 7)));
    assert_eq!((chain.count(LOGS), chain.count(BLOCK_BY_NUMBER), chain.count(RECEIPTS)), (0, 2, 2));
    chain.clear_calls();
    let (status, _) = program.cached(LOGS, range(2, 7)).await;
    assert_eq!(status, "holdfast; hit; detail=receipts; proof=proved");
    program.ask(RECEIPTS, json!(["0x4"])).await;
    assert_eq!(chain.count(RECEIPTS), 0, "logs and receipts share one fetch");
}

#[tokio::test(start_paused = true)]
async fn tags_name_the_bounds_of_a_range() {
    let chain = ethereum(4, 3);
    let program = in_memory::program(&chain, &Config::default());
    warm(&program, 1..=4).await;
    let params = json!([{ "fromBlock": "0x2", "toBlock": "latest" }]);
    let (status, answer) = program.cached(LOGS, params.clone()).await;
    assert_eq!(answer, own(&chain, &params));
    assert_eq!(status, "holdfast; hit; detail=receipts; proof=proved");
    chain.mine(2);
    time::advance(std::time::Duration::from_secs(2)).await;
    assert_eq!(program.ask(LOGS, params.clone()).await, own(&chain, &params));
}

#[tokio::test(start_paused = true)]
async fn logs_of_an_orphaned_block_are_not_served_by_number() {
    let chain = ethereum(6, 3);
    let program = in_memory::program(&chain, &Config::default());
    warm(&program, 1..=6).await;
    let orphan = json!([{ "blockHash": format!("{:#x}", chain.hash_at(6).unwrap()) }]);
    let old = program.ask(LOGS, range(4, 6)).await;
    chain.reorg(2, 3);
    time::advance(std::time::Duration::from_secs(2)).await;
    let new = program.ask(LOGS, range(4, 6)).await;
    assert_ne!(new, old);
    assert_eq!(new, own(&chain, &range(4, 6)));
    let by_hash = program.ask(LOGS, orphan).await;
    assert!(by_hash.as_array().unwrap().iter().all(|log| log["blockNumber"] == "0x6"), "{by_hash}");
}

#[tokio::test(start_paused = true)]
async fn other_forms_are_left_to_the_node() {
    let chain = ethereum(4, 2);
    let program = in_memory::program(&chain, &Config::default());
    warm(&program, 1..=4).await;
    for params in [
        json!([{}]),
        json!([{ "fromBlock": "0x1" }]),
        range(3, 2),
        range(2, 9),
        json!([{ "fromBlock": 1, "toBlock": 2 }]),
    ] {
        let (status, _) = program.cached(LOGS, params.clone()).await;
        let expected = match &params {
            // The logs are checked, because the range has numbers.
            params if *params == range(2, 9) => "holdfast; fwd=miss; detail=logs; proof=none",
            _ => "holdfast; fwd=bypass",
        };
        assert_eq!(status, expected, "{params}");
        assert!(chain.count(LOGS) > 0, "{params}");
        chain.clear_calls();
    }
    let unknown = json!([{ "blockHash": format!("0x{}", "ab".repeat(32)) }]);
    let (_, answer) = program.call(LOGS, unknown.clone()).await;
    assert_eq!(answer["error"]["message"], "unknown block", "{answer}");
}

#[tokio::test(start_paused = true)]
async fn limits_are_errors_with_a_range_that_works() {
    let chain = ethereum(30, 4);
    let mut config = Config::default();
    (config.logs.max_blocks, config.logs.max_results) = (20, 15);
    let program = in_memory::program(&chain, &config);
    warm(&program, 1..=30).await;
    let (http, answer) = program.call(LOGS, range(3, 30)).await;
    assert_eq!((http, &answer["error"]["code"]), (200, &json!(-32005)), "{answer}");
    assert_eq!(
        answer["error"]["message"],
        "query exceeds max block range 20. Try with this block range [0x3, 0x16]."
    );
    assert_eq!(answer["error"]["data"], json!({ "from": "0x3", "to": "0x16", "limit": 20 }));
    // No suggestion reaches above the head.
    let (_, answer) = program.call(LOGS, range(20, 300)).await;
    assert_eq!(answer["error"]["data"], json!({ "from": "0x14", "to": "0x1e", "limit": 20 }));
    let (http, answer) = program.call(LOGS, range(3, 20)).await;
    assert_eq!((http, &answer["error"]["code"]), (200, &json!(-32005)), "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    let suggested =
        message.strip_prefix("query returned more than 15 results. Try with this block range [0x3, 0x");
    let last = u64::from_str_radix(suggested.unwrap().strip_suffix("].").unwrap(), 16).unwrap();
    let logs = program.ask(LOGS, range(3, last)).await.as_array().unwrap().len();
    assert!(last == 3 || logs <= 15, "{message}");
    let (_, more) = program.call(LOGS, range(3, last + 1)).await;
    assert!(more["error"].is_object(), "the suggestion is the largest range: {more}");
    let response = program
        .response(json!({ "jsonrpc": "2.0", "id": 1, "method": LOGS, "params": range(3, 30) }).to_string())
        .await;
    assert!(!response.1.contains_key("retry-after"));
    // The node judges a range that begins above its head, however long that is.
    chain.mine(0);
    assert_eq!(program.call(LOGS, range(31, 400)).await.1["error"]["data"]["to"], "0x1f");
    let above = json!([{ "fromBlock": "0x20", "toBlock": "0x200" }]);
    assert_eq!(program.ask(LOGS, above.clone()).await, own(&chain, &above));
}

#[tokio::test(start_paused = true)]
async fn full_verification_proves_cold_ranges() {
    let chain = ethereum(30, 2);
    let program = in_memory::program(&chain, &full());
    let expected = own(&chain, &range(2, 25));
    chain.clear_calls();
    let (status, answer) = program.cached(LOGS, range(2, 25)).await;
    assert_eq!(status, "holdfast; fwd=miss; stored; detail=receipts; proof=proved");
    assert_eq!(answer, expected);
    assert_eq!(chain.count(LOGS), 0);
    let (_, unread) = program.call(LOGS, json!([{ "fromBlock": "0x1" }])).await;
    assert_eq!(unread["error"]["code"], -32602, "{unread}");
}

#[tokio::test(start_paused = true)]
async fn full_verification_refuses_long_cold_ranges() {
    let chain = ethereum(210, 0);
    let program = in_memory::program(&chain, &full());
    let (_, answer) = program.call(LOGS, range(1, 205)).await;
    assert_eq!(answer["error"]["code"], -32012, "{answer}");
    assert_eq!(program.ask(LOGS, range(1, 200)).await, json!([]));
}

/// A node may lack the method, or receipts of its newest blocks, as after a restart, and still find their logs.
#[tokio::test(start_paused = true)]
async fn node_without_block_receipts_searches() {
    let error = |code, message: &str| Fault::Error { code, message: message.to_owned() };
    let lacks_method = error(-32601, "the method eth_getBlockReceipts does not exist/is not available");
    for (chain, fault, asked, also_by_hash) in [
        (ethereum(4, 2), lacks_method, range(2, 3), true),
        (ethereum(40, 3), Fault::Status(403), range(30, 39), false),
        (ethereum(40, 3), error(-32000, "no receipts"), range(30, 39), false),
        (ethereum(30, 4), Fault::Lie(Lie::Shortened), range(5, 5), true),
    ] {
        let program = in_memory::program(&chain, &Config::default());
        chain.fail(fault.clone()).on(RECEIPTS).always();
        let by_hash = json!([{ "blockHash": format!("{:#x}", chain.hash_at(3).unwrap()) }]);
        for params in [asked].into_iter().chain(also_by_hash.then_some(by_hash)) {
            let (status, answer) = program.cached(LOGS, params.clone()).await;
            assert_eq!(status, "holdfast; fwd=miss; detail=logs; proof=none", "{fault:?} {params}");
            assert_eq!(answer, own(&chain, &params), "{fault:?} {params}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn batch_answers_for_one_head() {
    let chain = ethereum(5, 3);
    let program = in_memory::program(&chain, &Config::default());
    let logs = json!([{ "fromBlock": "latest", "toBlock": "latest" }]);
    let answers = program.batch(&[(BLOCK_BY_NUMBER, json!(["latest", false])), (LOGS, logs)]).await;
    let hash = &answers[0]["hash"];
    let of_head = answers[1].as_array().unwrap();
    assert!(!of_head.is_empty());
    assert!(of_head.iter().all(|log| log["blockHash"] == *hash), "{answers:?}");
    assert_eq!(program.ask(BLOCK_BY_HASH, json!([hash, false])).await["hash"], *hash);
}

/// Logs in another order show that the node's answer is wrong.
#[tokio::test(start_paused = true)]
async fn other_endpoint_is_asked_after_false_logs() {
    let (liar, honest) = (ethereum(20, 3), ethereum(20, 3));
    liar.fail(Lie::ShuffledLogs(1)).on(LOGS).always();
    // Each program chooses the first endpoint by chance.
    let mut mismatches = 0;
    for _ in 0..16 {
        let program = in_memory::program_over(&[&liar, &honest], &Config::default());
        assert_eq!(program.ask(LOGS, range(2, 18)).await, own(&honest, &range(2, 18)));
        mismatches += program.metric(r#"mismatches_total{reason="names"}"#);
    }
    assert!(mismatches > 0);
    assert_eq!(liar.count(LOGS), mismatches);
}

/// A block that only one endpoint has is searched there, although the filter needs no certain endpoint.
#[tokio::test(start_paused = true)]
async fn lagging_endpoint_is_not_asked_for_the_logs_of_the_head() {
    for _ in 0..16 {
        let (first, second) = (ethereum(20, 3), ethereum(20, 3));
        for chain in [&first, &second] {
            chain
                .fail(Fault::Error { code: -32601, message: "no such method".to_owned() })
                .on(RECEIPTS)
                .always();
        }
        // Each program chooses the primary by chance.
        let program = in_memory::program_over(&[&first, &second], &Config::default());
        program.ask("eth_gasPrice", json!([])).await;
        let (primary, other) =
            if first.count("eth_gasPrice") > 0 { (&first, &second) } else { (&second, &first) };
        other.lag(1);
        let head = program.ask("eth_getBlockByNumber", json!(["latest", true])).await;
        let params = json!([{ "blockHash": head["hash"] }]);
        assert_eq!(program.ask(LOGS, params.clone()).await, own(primary, &params));
        assert_eq!(program.ask(LOGS, range(20, 20)).await, own(primary, &params));
        assert_eq!(other.count(LOGS), 0);
    }
}

/// The cache has the receipts of some of the blocks.
#[tokio::test(start_paused = true)]
async fn forwarded_logs_are_compared_with_cached_receipts() {
    let chain = ethereum(30, 3);
    let mut config = Config::default();
    config.verify.on_mismatch = OnMismatch::Reject;
    let program = in_memory::program(&chain, &config);
    warm(&program, 2..=10).await;
    chain.fail(Lie::MissingLog(0)).on(LOGS).always();
    let (_, answer) = program.call(LOGS, range(2, 28)).await;
    assert_eq!(answer["error"]["code"], -32012, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn false_logs_are_refused_or_passed_as_configured() {
    for (on_mismatch, code) in [(OnMismatch::Reject, json!(-32012)), (OnMismatch::Pass, Value::Null)] {
        let chain = ethereum(24, 3);
        for lie in [
            Lie::ShuffledLogs(1),
            Lie::Everywhere("removed".to_owned(), json!(true)),
            Lie::Everywhere("blockNumber".to_owned(), json!("0x17")),
            Lie::Everywhere("address".to_owned(), json!(format!("0x{}", "77".repeat(20)))),
        ] {
            let mut config = Config::default();
            config.verify.on_mismatch = on_mismatch;
            let program = in_memory::program(&chain, &config);
            let address = own(&chain, &range(2, 22))[0]["address"].clone();
            let several = own(&chain, &range(2, 22))
                .as_array()
                .unwrap()
                .iter()
                .filter(|log| log["address"] == address)
                .count();
            let params = if several > 1 { with(range(2, 22), "address", address) } else { range(2, 22) };
            chain.clear_faults();
            chain.fail(lie.clone()).on(LOGS).always();
            let (_, answer) = program.call(LOGS, params).await;
            assert_eq!(answer["error"]["code"], code, "{lie:?}: {answer}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn node_answers_for_blocks_that_it_has_pruned() {
    for pruned in [Pruned::Null, Pruned::Error4444] {
        let chain = ethereum(20, 3);
        chain.prune_below(10, pruned);
        let program = in_memory::program(&chain, &Config::default());
        let direct = chain.answer(LOGS, range(4, 5)).map_err(|error| error.code);
        let (_, answer) = program.call(LOGS, range(4, 5)).await;
        match direct {
            Ok(result) => assert_eq!(answer["result"], serde_json::from_slice::<Value>(&result).unwrap()),
            Err(code) => assert_eq!(answer["error"]["code"], code),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn strict_refuses_logs() {
    let chain = ethereum(3, 2);
    let config = Config { strict: true, ..Config::default() };
    let (_, answer) = in_memory::program(&chain, &config).call(LOGS, range(1, 2)).await;
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn index_is_built_at_the_first_search_and_counts() {
    let chain = ethereum(4, 3);
    let program = in_memory::program(&chain, &Config::default());
    warm(&program, 1..=4).await;
    let bytes = |kind: &str| program.metric(&format!(r#"cache_bytes{{kind="{kind}"}}"#));
    assert_eq!(bytes("log_index"), 0);
    program.ask(LOGS, range(1, 4)).await;
    assert!(bytes("log_index") > 0);
}

/// The head arrives without its transactions, which alone prove the receipts.
#[tokio::test(start_paused = true)]
async fn logs_of_the_head_are_proved() {
    let chain = ethereum(5, 3);
    let program = in_memory::program(&chain, &Config::default());
    let params = json!([{ "fromBlock": "latest", "toBlock": "latest" }]);
    let (status, answer) = program.cached(LOGS, params.clone()).await;
    assert_eq!(status, "holdfast; fwd=miss; stored; detail=receipts; proof=proved");
    assert_eq!(answer, own(&chain, &params));
}

/// While the node searches the cold blocks of a range, a reorg replaces some of the cached blocks, and from then on the
/// node fails to show its head.
#[tokio::test(start_paused = true)]
async fn logs_are_of_one_branch_if_the_head_fails() {
    let chain = ethereum(24, 3);
    chain.set_finalized(5);
    let program = in_memory::program(&chain, &Config::default());
    for _ in 0..12 {
        program.ask("eth_blockNumber", json!([])).await;
        chain.mine(3);
        time::sleep(STALE).await;
    }
    warm(&program, 8..=14).await;
    chain.fail(Fault::Queue(SOON)).on(LOGS).once();
    let searching = tokio::spawn({
        let program = program.clone();
        async move { program.call(LOGS, range(8, 36)).await }
    });
    time::sleep(SOON / 2).await;
    chain.reorg_with(26, vec![Vec::new(); 26]);
    let internal = Fault::Error { code: -32603, message: "internal error".to_owned() };
    chain.fail(internal).on(r#"eth_getBlockByNumber["latest"*"#).always();
    let (_, answer) = searching.await.unwrap();
    // The node may also answer the whole call.
    assert!(answer["result"] == own(&chain, &range(8, 36)) || answer["error"]["code"].is_i64(), "{answer}");
}

/// A range that ends before it begins has no tag whose block could have left the chain.
#[tokio::test(start_paused = true)]
async fn reversed_range_in_a_batch_is_left_to_the_node() {
    let chain = ethereum(5, 2);
    let program = in_memory::program(&chain, &Config::default());
    let reversed = json!([{ "fromBlock": "0x9", "toBlock": "latest" }]);
    let calls = [(BLOCK_BY_NUMBER, json!(["latest", false])), (LOGS, reversed)];
    let answers = program.call_batch(&calls).await;
    let own = chain.answer(LOGS, range(9, 5)).unwrap_err();
    assert_eq!(answers[1]["error"]["code"], own.code, "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn unproved_logs_are_refused_in_a_batch_too() {
    let chain = ethereum(5, 2);
    let program = in_memory::program(&chain, &full());
    for params in [range(3, 9), range(4, 9)] {
        let answers = program.call_batch(&[("eth_chainId", json!([])), (LOGS, params)]).await;
        assert_eq!(answers[1]["error"]["code"], -32012, "{answers:?}");
    }
}

/// Without its block, a list of receipts passes only structural checks. Proved blocks before and after it in the range do
/// not make up for that.
#[tokio::test(start_paused = true)]
async fn weakest_proof_of_a_range_is_stated() {
    let chain = ethereum(6, 3);
    let program = in_memory::program(&chain, &Config::default());
    warm(&program, 1..=5).await;
    // By hash, receipts arrive without the block that proves them.
    program.ask(RECEIPTS, json!([format!("{:#x}", chain.hash_at(6).unwrap())])).await;
    chain.mine(1);
    time::advance(std::time::Duration::from_secs(2)).await;
    warm(&program, [7]).await;
    for (first, last, proof) in [
        (4, 5, "proved"),
        (6, 6, "structural"),
        (4, 6, "structural"),
        (6, 7, "structural"),
        (5, 7, "structural"),
        (7, 7, "proved"),
    ] {
        let (status, answer) = program.cached(LOGS, range(first, last)).await;
        assert_eq!(status, format!("holdfast; hit; detail=receipts; proof={proof}"), "{first} to {last}");
        assert_eq!(answer, own(&chain, &range(first, last)));
    }
}
