//! Calls that waited for an upstream call are no hits, although their answer comes from memory.

use std::time::Duration;

use holdfast::{
    config::Config,
    devchain::{DevChain, Fault},
};
use serde_json::{Value, json};
use tokio::time;

use crate::support::{
    in_memory::{self, InMemory},
    method::{BLOCK_BY_NUMBER, LOGS, RECEIPTS, TRANSACTION},
    nodes::{heads, hex},
    one_node::{SOON, block, tx_hash},
    upstream,
};

const STALE: &str = "holdfast; fwd=stale";
const COLLAPSED: &str = "holdfast; fwd=stale; collapsed";

/// Time after which a view is stale.
const LATER: Duration = Duration::from_secs(2);

fn chain(chain_id: u64) -> (DevChain, InMemory) {
    let chain = upstream::devchain().config(|config| config.chain_id = chain_id).blocks(9, 3).chain();
    let program = in_memory::program(&chain, &Config::default());
    (chain, program)
}

async fn head_status(program: &InMemory) -> String {
    program.cache_status("eth_blockNumber", json!([])).await
}

/// Returns the number of calls of a method by outcome.
fn counted(program: &InMemory, method: &str, outcome: &str) -> u64 {
    program.metric(&format!(r#"calls_total{{method="{method}",outcome="{outcome}"}}"#))
}

#[tokio::test(start_paused = true)]
async fn development_chain_has_no_hits_at_the_head() {
    let (chain, program) = chain(31337);
    for _ in 0..10 {
        assert_eq!(head_status(&program).await, STALE);
    }
    assert_eq!(heads(&chain), 10);
    // The calls of a batch share one refresh.
    let call = |id| json!({ "jsonrpc": "2.0", "id": id, "method": "eth_blockNumber", "params": [] });
    let (status, _) = program.send_for_status(json!([call(1), call(2)]).to_string()).await;
    assert_eq!(status, r#"holdfast; detail="joined=1,stale=1""#);
    assert_eq!(heads(&chain), 11);
    let count = |outcome| counted(&program, "eth_blockNumber", outcome);
    assert_eq!(["hit", "stale", "joined"].map(count), [0, 11, 1]);
    assert_eq!(program.metric("upstream_calls_saved_total"), 1, "the second call of the batch");
    assert_eq!(program.metric(r#"call_seconds_count{from="memory"}"#), 0);
}

#[tokio::test(start_paused = true)]
async fn second_call_on_a_fresh_view_is_a_hit() {
    let (chain, program) = chain(7777);
    for _ in 0..3 {
        assert_eq!(head_status(&program).await, STALE);
        let asked = heads(&chain);
        assert_eq!(head_status(&program).await, "holdfast; hit; detail=view");
        assert_eq!(heads(&chain), asked);
        time::sleep(LATER).await;
    }
    assert_eq!(["hit", "stale"].map(|outcome| counted(&program, "eth_blockNumber", outcome)), [3, 3]);
}

#[tokio::test(start_paused = true)]
async fn cached_block_after_a_refresh_is_no_hit() {
    let (chain, program) = chain(7777);
    for (tag, is_full) in [("latest", true), ("latest", false), ("0x8", true)] {
        let params = json!([tag, is_full]);
        program.ask(BLOCK_BY_NUMBER, params.clone()).await;
        time::sleep(LATER).await;
        chain.clear_calls();
        assert_eq!(program.cache_status(BLOCK_BY_NUMBER, params.clone()).await, STALE, "{params}");
        assert_eq!(heads(&chain), chain.calls().len(), "{params}");
        let again = program.cache_status(BLOCK_BY_NUMBER, params).await;
        assert!(again.starts_with("holdfast; hit; detail=block"), "{again}");
    }
}

#[tokio::test(start_paused = true)]
async fn joined_refresh_is_collapsed() {
    let (chain, program) = chain(7777);
    program.ask("eth_blockNumber", json!([])).await;
    time::sleep(LATER).await;
    chain.clear_calls();
    chain.fail(Fault::Delay(SOON)).on(BLOCK_BY_NUMBER).once();
    let statuses = tokio::join!(head_status(&program), head_status(&program), head_status(&program));
    assert_eq!(<[String; 3]>::from(statuses), [STALE, COLLAPSED, COLLAPSED]);
    assert_eq!(heads(&chain), 1);
    assert_eq!(counted(&program, "eth_blockNumber", "joined"), 2);
}

#[tokio::test(start_paused = true)]
async fn logs_after_a_refresh_keep_their_proof() {
    let (chain, program) = chain(7777);
    let filter = json!([{ "fromBlock": "0x9", "toBlock": "0x9" }]);
    program.ask(BLOCK_BY_NUMBER, json!(["0x9", true])).await;
    program.ask(RECEIPTS, json!(["0x9"])).await;
    let fresh = program.cache_status(LOGS, filter.clone()).await;
    assert_eq!(fresh, "holdfast; hit; detail=receipts; proof=proved");
    time::sleep(LATER).await;
    chain.fail(Fault::Delay(SOON)).on(BLOCK_BY_NUMBER).once();
    let find = || program.cache_status(LOGS, filter.clone());
    let statuses = tokio::join!(find(), find());
    assert_eq!(
        <[String; 2]>::from(statuses),
        ["holdfast; fwd=stale; proof=proved", "holdfast; fwd=stale; collapsed; proof=proved"]
    );
    assert_eq!(["derived", "stale", "joined"].map(|outcome| counted(&program, LOGS, outcome)), [1, 1, 1]);
    assert_eq!(program.metric(r#"log_calls_total{source="receipts",proof="proved"}"#), 3);
}

/// Each label agrees with the upstream calls: no hit waits for one.
#[tokio::test(start_paused = true)]
async fn no_hit_makes_an_upstream_call() {
    for chain_id in [31337, 7777] {
        let (chain, program) = chain(chain_id);
        program.ask("eth_blockNumber", json!([])).await;
        let transactions: Vec<_> = block(&chain, 9).iter().map(tx_hash).collect();
        let hash = hex(chain.hash_at(9).unwrap());
        let mut calls: Vec<(&str, Value)> = vec![
            ("eth_blockNumber", json!([])),
            (BLOCK_BY_NUMBER, json!(["latest", true])),
            (BLOCK_BY_NUMBER, json!(["0x9", false])),
            (BLOCK_BY_NUMBER, json!(["0xff", false])),
            (RECEIPTS, json!(["latest"])),
            (RECEIPTS, json!([hash])),
            (LOGS, json!([{ "fromBlock": "0x7", "toBlock": "latest" }])),
            ("eth_getRawTransactionByBlockNumberAndIndex", json!(["latest", "0x1"])),
            ("eth_getTransactionByBlockNumberAndIndex", json!(["0x9", "0x7"])),
        ];
        let singles = [TRANSACTION, "eth_getTransactionReceipt"];
        calls.extend(transactions.iter().flat_map(|hash| singles.map(|method| (method, json!([hash])))));
        for round in 0..40 {
            // Each round begins with another call.
            calls.rotate_left(1);
            for (method, params) in &calls {
                time::sleep(Duration::from_millis(150)).await;
                chain.clear_calls();
                let status = program.cache_status(method, params.clone()).await;
                let asked = chain.calls().len();
                assert!(!status.contains("; hit") || asked == 0, "{method} {params}: {status}, {asked}");
                assert!(status.contains("; hit") || asked > 0, "{method} {params}: {status}");
            }
            if round % 5 == 0 {
                chain.mine(1);
            }
        }
    }
}
