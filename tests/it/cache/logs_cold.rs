//! `eth_getLogs` of blocks that are not cached: fetched if they are few, else searched by the node.

use holdfast::{
    config::Config,
    devchain::{DevChain, Fault, Lie},
    http::KeyConfig,
};
use serde_json::{Value, json};
use tokio::time;

use super::logs::{ethereum, full, own, range, warm, with};
use crate::support::{
    in_memory::{self, InMemory},
    method::{BLOCK_BY_NUMBER, LOGS, RECEIPTS},
    one_node::{SOON, STALE},
    proxy,
};

const KEY: &str = "hf_5d41402abc4b2a76b9719d911017c5925d41402abc4b2a76b9719d911017c592";

const WALKED: &str = "holdfast; fwd=miss; stored; detail=receipts; proof=proved";
const FORWARDED: &str = "holdfast; fwd=miss; detail=logs; proof=none";

/// Returns a program whose window has the newest four blocks.
async fn with_small_window(chain: &DevChain) -> InMemory {
    let mut config = Config::default();
    config.chain.window = 4;
    let program = in_memory::program(chain, &config);
    program.ask("eth_blockNumber", json!([])).await;
    program
}

/// The node refuses to search more blocks than it would like.
fn too_many_blocks() -> Fault {
    Fault::Error { code: -32005, message: "query exceeds max block range 10".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn sixteen_cold_blocks_are_fetched_in_the_window_and_two_below() {
    let chain = ethereum(60, 2);
    let in_window = in_memory::program(&chain, &Config::default());
    for (program, first, last, status) in [
        (&in_window, 40, 55, WALKED),
        (&in_window, 10, 26, FORWARDED),
        (&with_small_window(&chain).await, 40, 41, WALKED),
        (&with_small_window(&chain).await, 40, 42, FORWARDED),
    ] {
        let answered = program.cached(LOGS, range(first, last)).await;
        assert_eq!(answered, (status.to_owned(), own(&chain, &range(first, last))), "{first} to {last}");
    }
}

/// One node answers for the whole range, so that no hole shows where two searches would meet.
#[tokio::test(start_paused = true)]
async fn range_with_many_cold_blocks_is_searched_in_one_call() {
    let chain = ethereum(40, 2);
    let program = in_memory::program(&chain, &Config::default());
    warm(&program, (1..=40).filter(|number| number % 3 == 0)).await;
    chain.clear_calls();
    let answered = program.cached(LOGS, range(2, 38)).await;
    assert_eq!(answered, (FORWARDED.to_owned(), own(&chain, &range(2, 38))));
    let sent: Vec<_> = chain.calls().into_iter().filter(|call| call.method == LOGS).collect();
    let params: Vec<Value> = sent.iter().map(|call| serde_json::from_str(&call.params).unwrap()).collect();
    assert_eq!(
        (params.len(), &params[0][0]["fromBlock"], &params[0][0]["toBlock"]),
        (1, &json!("0x2"), &json!("0x26"))
    );
    assert_eq!(chain.count(RECEIPTS), 0);
}

#[tokio::test(start_paused = true)]
async fn range_that_the_node_refuses_is_fetched_if_it_is_short() {
    let chain = ethereum(60, 2);
    chain.fail(too_many_blocks()).on(LOGS).always();
    let program = with_small_window(&chain).await;
    let answered = program.cached(LOGS, range(10, 25)).await;
    assert_eq!(answered, (WALKED.to_owned(), own(&chain, &range(10, 25))));
    let (_, refused) = program.call(LOGS, range(30, 46)).await;
    assert_eq!(refused["error"]["code"], -32005, "{refused}");
    assert_eq!(refused["error"]["message"], "query exceeds max block range 10");
}

#[tokio::test(start_paused = true)]
async fn other_error_of_the_search_is_handed_on() {
    let chain = ethereum(60, 2);
    chain.fail(Fault::Error { code: -32000, message: "no".to_owned() }).on(LOGS).always();
    let (_, refused) = with_small_window(&chain).await.call(LOGS, range(10, 25)).await;
    assert_eq!(refused["error"]["message"], "no", "{refused}");
    assert_eq!((chain.count(LOGS), chain.count(RECEIPTS)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn equal_searches_share_one_call() {
    let chain = ethereum(40, 2);
    let program = in_memory::program(&chain, &Config::default());
    program.ask("eth_blockNumber", json!([])).await;
    chain.fail(Fault::Queue(SOON)).on(LOGS).always();
    let search = |params: Value| {
        let program = program.clone();
        tokio::spawn(async move { program.ask(LOGS, params).await })
    };
    let expected = own(&chain, &range(2, 38));
    let equal: Vec<_> = (0..10).map(|_| search(range(2, 38))).collect();
    let other = search(with(range(2, 38), "address", expected[0]["address"].clone()));
    for answer in equal {
        assert_eq!(answer.await.unwrap(), expected);
    }
    assert!(!other.await.unwrap().as_array().unwrap().is_empty());
    assert_eq!(chain.count(LOGS), 2, "one for each filter");
    let heads = chain.calls().iter().filter(|call| call.params.contains("latest")).count();
    assert!(heads <= 3, "one at first, and one after each search: {heads}");
    // A later search is a new one.
    time::sleep(STALE).await;
    program.ask(LOGS, range(2, 38)).await;
    assert_eq!(chain.count(LOGS), 3);
}

/// The node shows its head, but searches as if it did not have the newest blocks yet. The blooms of their headers tell.
#[tokio::test(start_paused = true)]
async fn logs_of_the_newest_blocks_that_a_search_leaves_out_are_fetched() {
    for left_out in 1..=3 {
        let chain = ethereum(40, 3);
        let program = in_memory::program(&chain, &Config::default());
        for _ in 0..3 {
            chain.mine(3);
            time::sleep(STALE).await;
            program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
        }
        chain.fail(Lie::LaggingLogs(left_out)).on(LOGS).once();
        let last = chain.head().number;
        chain.clear_calls();
        let answered = program.cached(LOGS, range(last - 20, last)).await;
        assert_eq!(answered, (FORWARDED.to_owned(), own(&chain, &range(last - 20, last))), "{left_out}");
        assert_eq!((chain.count(LOGS), chain.count(RECEIPTS)), (1, left_out));
    }
}

/// A block whose bloom excludes the filter is not fetched.
#[tokio::test(start_paused = true)]
async fn newest_blocks_without_logs_are_not_fetched() {
    let chain = ethereum(40, 3);
    let program = in_memory::program(&chain, &Config::default());
    for _ in 0..3 {
        chain.mine(0);
        time::sleep(STALE).await;
        program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    }
    let last = chain.head().number;
    let answered = program.cached(LOGS, range(last - 23, last)).await;
    assert_eq!(answered, (FORWARDED.to_owned(), own(&chain, &range(last - 23, last))));
    assert_eq!((chain.count(LOGS), chain.count(RECEIPTS)), (1, 0));
}

/// A client pays for each block that is fetched for it, or for none. A search costs one call.
#[tokio::test(start_paused = true)]
async fn client_that_cannot_pay_for_the_blocks_gets_a_search() {
    for (mut config, is_searched) in [(Config::default(), true), (full(), false)] {
        let chain = ethereum(60, 2);
        config.http.keys = vec![KeyConfig { rate: "4/m".parse().ok(), ..proxy::key("one", KEY) }];
        let program = in_memory::program(&chain, &config).with_key(KEY);
        time::advance(time::Duration::from_secs(60)).await;
        // A full bucket would be enough.
        program.call("eth_chainId", json!([])).await;
        let (status, answer) = program.call(LOGS, range(50, 57)).await;
        assert_eq!(status == 200, is_searched, "{answer}");
        match is_searched {
            true => assert_eq!(answer["result"], own(&chain, &range(50, 57))),
            false => assert_eq!(answer["error"]["code"], -32005, "{answer}"),
        }
        assert_eq!((chain.count(LOGS) == 1, chain.count(RECEIPTS)), (is_searched, 0));
        // Only the call itself is paid for.
        let mut further = Vec::new();
        for _ in 0..4 {
            further.push(program.call("eth_chainId", json!([])).await.0);
        }
        assert_eq!(further, [200, 200, 429, 429]);
    }
}
