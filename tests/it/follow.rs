//! Following the chain before anybody asks: in memory, under a clock that the test moves.

use std::time::Duration;

use holdfast::{
    config::Config,
    devchain::{self, DevChain, Fault},
    proxy::Follow,
};
use serde_json::json;
use tokio::time;

use crate::support::{
    in_memory::{self, InMemory},
    upstream,
};

const INTERVAL: Duration = Duration::from_millis(500);

fn chain() -> DevChain {
    upstream::devchain().blocks(3, 2).chain()
}

/// A program that has been following the chain for a while.
async fn following(chain: &DevChain, follow: Follow) -> InMemory {
    let mut config = Config::default();
    config.chain.follow = follow;
    config.chain.follow_interval = INTERVAL;
    let program = in_memory::program(chain, &config);
    time::sleep(4 * INTERVAL + INTERVAL / 2).await;
    chain.clear_calls();
    program
}

/// How often the head was asked for.
fn refreshes(chain: &DevChain) -> usize {
    chain.calls().iter().filter(|call| call.params.contains("latest")).count()
}

fn hash(block: devchain::BlockRef) -> String {
    format!("{:#x}", block.hash)
}

#[tokio::test(start_paused = true)]
async fn by_default_nothing_is_followed() {
    let chain = chain();
    let program = in_memory::program(&chain, &Config::default());
    assert_eq!(program.call("eth_chainId", json!([])).await.0, 200);
    assert_eq!(program.call("eth_getBlockByNumber", json!(["latest", false])).await.0, 200);
    // What the first call brought about.
    time::sleep(Duration::from_secs(1)).await;
    chain.clear_calls();
    for _ in 0..60 {
        chain.mine(1);
        time::sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(chain.calls_total(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_followed_head_is_read_without_waiting_and_asked_for_once_an_interval() {
    let chain = chain();
    let program = following(&chain, Follow::Heads).await;
    let slow = Duration::from_millis(50);
    chain.fail(Fault::Queue(slow)).any().always();
    // From here on, so that the refresh under way is slow already.
    time::sleep(INTERVAL).await;
    let (begun, before) = (time::Instant::now(), refreshes(&chain));
    let mut hits = 0;
    for round in 0..200 {
        if round % 24 == 0 {
            chain.mine(1);
        }
        time::sleep(Duration::from_millis(70)).await;
        let asked = time::Instant::now();
        let (status, _) = program.cached("eth_blockNumber", json!([])).await;
        assert_eq!(asked.elapsed(), Duration::ZERO);
        hits += usize::from(status.starts_with("holdfast; hit"));
    }
    assert_eq!(hits, 200);
    let intervals = begun.elapsed().as_millis() / INTERVAL.as_millis();
    let asked = (refreshes(&chain) - before) as u128;
    assert!((intervals - 1..=intervals + 1).contains(&asked), "{asked} refreshes in {intervals} intervals");
    // Nobody wanted their content.
    assert_eq!(chain.count("eth_getBlockByHash"), 0);
}

#[tokio::test(start_paused = true)]
async fn what_others_refresh_is_not_refreshed_again() {
    let chain = chain();
    let mut config = Config::default();
    config.chain.follow = Follow::Heads;
    config.chain.follow_interval = Duration::from_secs(5);
    let program = in_memory::program(&chain, &config);
    time::sleep(Duration::from_secs(1)).await;
    chain.clear_calls();
    for _ in 0..60 {
        time::sleep(Duration::from_millis(1_100)).await;
        program.call("eth_blockNumber", json!([])).await;
    }
    assert_eq!(refreshes(&chain), 60);
}

#[tokio::test(start_paused = true)]
async fn the_first_reader_of_a_new_block_hits() {
    let chain = chain();
    let program = following(&chain, Follow::Blocks).await;
    for _ in 0..20 {
        let head = chain.mine(3);
        time::sleep(2 * INTERVAL).await;
        let (status, block) = program.cached("eth_getBlockByNumber", json!(["latest", true])).await;
        assert_eq!(status, "holdfast; hit; detail=block");
        assert_eq!(block["hash"], json!(hash(head)));
        let transaction = &block["transactions"][1]["hash"];
        let (status, _) = program.cached("eth_getTransactionByHash", json!([transaction])).await;
        assert!(status.starts_with("holdfast; hit"), "{status}");
    }
    assert_eq!(chain.count("eth_getBlockByHash"), 20);
    assert_eq!(chain.count("eth_getBlockReceipts"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_first_reader_of_new_receipts_hits() {
    let chain = chain();
    let program = following(&chain, Follow::Full).await;
    for transactions in [3, 0, 2] {
        let head = chain.mine(transactions);
        time::sleep(2 * INTERVAL).await;
        for transaction in chain.transactions_of(head.hash) {
            let (status, _) =
                program.cached("eth_getTransactionReceipt", json!([format!("{transaction:#x}")])).await;
            assert_eq!(status, "holdfast; hit; detail=receipts");
        }
        let (status, receipts) = program.cached("eth_getBlockReceipts", json!(["latest"])).await;
        assert!(status.starts_with("holdfast; hit"), "{status}");
        assert_eq!(receipts.as_array().map(Vec::len), Some(transactions));
    }
    assert_eq!((chain.count("eth_getBlockByHash"), chain.count("eth_getBlockReceipts")), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn blocks_in_between_are_fetched_too_the_newest_of_them() {
    for (mined, fetched) in [(5, 5), (64, 64), (200, 64)] {
        let chain = chain();
        let program = following(&chain, Follow::Blocks).await;
        let head = chain.mine_many(mined, 1);
        time::sleep(2 * INTERVAL).await;
        assert_eq!(chain.count("eth_getBlockByHash"), fetched);
        for number in [head.number, head.number + 1 - fetched] {
            let (status, _) = program
                .cached("eth_getBlockByHash", json!([hash(chain.block_ref(number).unwrap()), true]))
                .await;
            assert!(status.starts_with("holdfast; hit"), "{status}");
        }
        time::sleep(20 * INTERVAL).await;
        assert_eq!(chain.count("eth_getBlockByHash"), fetched, "each once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reorg_is_followed_block_by_block() {
    let chain = chain();
    let program = following(&chain, Follow::Blocks).await;
    chain.mine_many(3, 1);
    time::sleep(2 * INTERVAL).await;
    chain.clear_calls();
    let head = chain.reorg(2, 3);
    time::sleep(2 * INTERVAL).await;
    for below in 0..3 {
        let number = format!("{:#x}", head.number - below);
        let (status, block) = program.cached("eth_getBlockByNumber", json!([number, true])).await;
        assert_eq!(status, "holdfast; hit; detail=block");
        assert_eq!(block["hash"], json!(hash(chain.block_ref(head.number - below).unwrap())));
    }
    assert_eq!(chain.count("eth_getBlockByHash"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_failing_upstream_is_asked_less_and_less_and_followed_again_when_it_is_back() {
    let chain = chain();
    let program = following(&chain, Follow::Blocks).await;
    chain.fail(Fault::Status(503)).any().always();
    time::sleep(Duration::from_secs(60)).await;
    // After 0.5, 1, 2, 4, 8 and then 10 seconds.
    assert!((7..=12).contains(&refreshes(&chain)), "{} refreshes in a minute", refreshes(&chain));
    chain.clear_faults();
    chain.mine_many(2, 1);
    time::sleep(Duration::from_secs(11)).await;
    let (status, block) = program.cached("eth_getBlockByNumber", json!(["latest", true])).await;
    assert_eq!(status, "holdfast; hit; detail=block");
    assert_eq!(block["hash"], json!(hash(chain.head())));

    // Contact lost: who answers next says first who it is.
    chain.fail(Fault::Reset).any().always();
    time::sleep(Duration::from_secs(60)).await;
    chain.clear_faults();
    chain.clear_calls();
    chain.mine(1);
    time::sleep(Duration::from_secs(20)).await;
    assert!(chain.calls().iter().position(|call| call.method == "eth_chainId").unwrap() < 3);
    let (status, _) = program.cached("eth_getBlockByNumber", json!(["latest", true])).await;
    assert_eq!(status, "holdfast; hit; detail=block");
}

#[tokio::test(start_paused = true)]
async fn a_block_that_cannot_be_had_is_asked_for_again_and_one_that_cannot_be_right_is_not() {
    let chain = chain();
    let program = following(&chain, Follow::Blocks).await;
    // A replica that has not got it yet.
    chain.fail(Fault::Null).on("eth_getBlockByHash").times(2);
    chain.mine(2);
    time::sleep(6 * INTERVAL).await;
    assert_eq!(chain.count("eth_getBlockByHash"), 3);
    let (status, _) = program.cached("eth_getBlockByNumber", json!(["latest", true])).await;
    assert_eq!(status, "holdfast; hit; detail=block");

    chain.clear_calls();
    chain.fail(devchain::Lie::WrongHash).on("eth_getBlockByHash").always();
    chain.mine(2);
    time::sleep(Duration::from_secs(60)).await;
    assert_eq!(chain.count("eth_getBlockByHash"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stranger_is_not_followed() {
    let chain = chain();
    let mut config = Config { chain_id: Some(1), ..Config::default() };
    config.chain.follow = Follow::Full;
    let _program = in_memory::program(&chain, &config);
    time::sleep(Duration::from_secs(60)).await;
    assert_eq!(refreshes(&chain), 0);
}
