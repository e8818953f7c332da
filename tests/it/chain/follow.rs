//! Following the chain in the background: in memory with paused time, and over sockets with `newHeads`.

use std::time::Duration;

use holdfast::{
    config::Config,
    devchain::{self, DevChain, Fault, RecordedCall},
    proxy::Follow,
    secret::Secret,
};
use serde_json::{Value, json};
use tokio::time;

use crate::support::{
    anvil::Anvil,
    client::{self, Client},
    eventually,
    in_memory::{self, InMemory},
    proxy, tools, upstream,
};

const INTERVAL: Duration = Duration::from_millis(500);

fn chain() -> DevChain {
    upstream::devchain().blocks(3, 2).chain()
}

/// Returns a proxy that has been following the chain for a while.
async fn following(chain: &DevChain, follow: Follow) -> InMemory {
    let mut config = Config::default();
    config.chain.follow = follow;
    config.chain.follow_interval = INTERVAL;
    let program = in_memory::program(chain, &config);
    time::sleep(4 * INTERVAL + INTERVAL / 2).await;
    chain.clear_calls();
    program
}

/// Returns the number of calls for the head.
fn refreshes(chain: &DevChain) -> usize {
    chain.calls().iter().filter(|call| call.params.contains("latest")).count()
}

fn hash(block: devchain::BlockRef) -> String {
    format!("{:#x}", block.hash)
}

#[tokio::test(start_paused = true)]
async fn followed_head_is_served_at_once_and_polled_per_interval() {
    let chain = chain();
    let program = following(&chain, Follow::Heads).await;
    let slow = Duration::from_millis(50);
    chain.fail(Fault::Queue(slow)).any().always();
    // Waits until a slow refresh is in flight.
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
    // `Follow::Heads` does not fetch content.
    assert_eq!(chain.count("eth_getBlockByHash"), 0);
}

#[tokio::test(start_paused = true)]
async fn follower_does_not_repeat_refreshes_of_clients() {
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
async fn first_read_of_a_new_block_is_a_hit() {
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
async fn first_read_of_new_receipts_is_a_hit() {
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
async fn skipped_blocks_are_fetched_up_to_64() {
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
async fn reorg_is_followed_block_by_block() {
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
    assert_eq!(whole_blocks(&chain), 3);
}

/// Returns the number of calls for the full head.
fn full_heads(chain: &DevChain) -> usize {
    chain.calls().iter().filter(|call| call.params == r#"["latest",true]"#).count()
}

/// Returns the number of calls for a full block by hash. Calls for a block with transaction hashes do not count.
fn whole_blocks(chain: &DevChain) -> usize {
    let blocks = chain.calls();
    let is_block =
        |call: &&RecordedCall| call.method == "eth_getBlockByHash" && call.params.ends_with("true]");
    blocks.iter().filter(is_block).count()
}

#[tokio::test(start_paused = true)]
async fn follower_backs_off_and_resumes_after_recovery() {
    let chain = chain();
    let program = following(&chain, Follow::Blocks).await;
    chain.fail(Fault::Status(503)).any().always();
    time::sleep(Duration::from_secs(60)).await;
    // The proxy retries after 0.5, 1, 2, 4, 8 and then 10 seconds.
    assert!((7..=12).contains(&refreshes(&chain)), "{} refreshes in a minute", refreshes(&chain));
    chain.clear_faults();
    chain.mine_many(2, 1);
    time::sleep(Duration::from_secs(11)).await;
    let (status, block) = program.cached("eth_getBlockByNumber", json!(["latest", true])).await;
    assert_eq!(status, "holdfast; hit; detail=block");
    assert_eq!(block["hash"], json!(hash(chain.head())));

    // After a lost connection, the proxy first checks the identity of the node.
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
async fn follower_retries_missing_blocks_but_not_false_ones() {
    let chain = chain();
    let program = following(&chain, Follow::Blocks).await;
    // The node answers like a replica that does not have the block yet.
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
async fn wrong_chain_is_not_followed() {
    let chain = chain();
    let mut config = Config { chain_id: Some(1), ..Config::default() };
    config.chain.follow = Follow::Full;
    let _program = in_memory::program(&chain, &config);
    time::sleep(Duration::from_secs(60)).await;
    assert_eq!(refreshes(&chain), 0);
}

// ## Over sockets

/// A short interval, so that the test notices polling.
const SOON: Duration = Duration::from_millis(20);

async fn told_by(url: &str, ws: &str, follow: Follow) -> proxy::Proxy {
    let proxy = proxy::new().upstream_url(url).config(|config| {
        config.chain.follow = follow;
        config.chain.follow_interval = SOON;
        config.upstream.endpoints[0].ws = Some(Secret::Plain(ws.to_owned()));
    });
    proxy.run().await
}

/// Waits until the proxy sends no more calls, because it has a subscription.
async fn quiet(node: &DevChain) {
    eventually("the follower to be quiet", || async {
        let before = node.calls_total();
        for _ in 0..10 {
            // Several short sleeps: after a stall of the machine, one long sleep would end at once.
            time::sleep(SOON).await;
        }
        node.calls_total() == before
    })
    .await;
}

async fn status(client: &Client, method: &str, params: Value) -> (String, Value) {
    let response = client.call(method, params).await;
    (response.header("cache-status").unwrap().to_owned(), response.json()["result"].clone())
}

#[tokio::test]
async fn announced_head_is_fetched_once_without_polling() {
    let node = upstream::devchain().blocks(3, 2).run().await;
    let proxy = told_by(&node.url(), &node.ws_url(), Follow::Full).await;
    let client = client::http(&proxy);
    quiet(&node).await;
    node.clear_calls();
    let begun = time::Instant::now();

    for heads in 1..=10 {
        let head = node.mine(2);
        eventually("the receipts", || async { node.count("eth_getBlockReceipts") == heads }).await;
        eventually("the receipts are cached", || async {
            let receipts = status(&client, "eth_getBlockReceipts", json!([hash(head)])).await;
            receipts.0.starts_with("holdfast; hit")
        })
        .await;
        let (status, _) = status(&client, "eth_getBlockByHash", json!([hash(head), true])).await;
        assert_eq!(status, "holdfast; hit; detail=block");
    }
    quiet(&node).await;
    // The refresh that a notification causes brings the full head.
    assert_eq!((node.count("eth_getBlockByHash"), node.count("eth_subscribe")), (0, 0));
    // The proxy refreshes once per head, and when the client calls after `max_staleness`.
    let most = 14 + begun.elapsed().as_secs() as usize;
    assert!((10..=most).contains(&refreshes(&node)), "{} refreshes", refreshes(&node));

    // A reorg: the proxy fetches the new head, and the two blocks below it by their hashes.
    let head = node.reorg(2, 3);
    eventually("the new branch", || async { whole_blocks(&node) == 2 }).await;
    let (_, block) = status(&client, "eth_getBlockByNumber", json!(["latest", true])).await;
    assert_eq!(block["hash"], json!(hash(head)));
    assert_eq!(whole_blocks(&node), 2);
}

#[tokio::test]
async fn head_is_polled_while_there_is_no_subscription() {
    let node = upstream::devchain().blocks(3, 2).run().await;
    let _proxy = told_by(&node.url(), &node.ws_url(), Follow::Blocks).await;
    quiet(&node).await;

    node.fail(Fault::Error { code: -32000, message: "too many subscriptions".to_owned() })
        .on("eth_subscribe")
        .times(2);
    node.clear_calls();
    node.cut_sockets();
    eventually("polling", || async { refreshes(&node) > 10 }).await;
    node.mine(1);
    eventually("the block", || async { whole_blocks(&node) >= 1 }).await;
    eventually("a subscription", || async { node.count("eth_subscribe") >= 3 }).await;
    quiet(&node).await;

    let before = refreshes(&node);
    let full = full_heads(&node);
    for heads in full + 1..=full + 4 {
        node.mine(1);
        eventually("the block", || async { full_heads(&node) >= heads }).await;
    }
    quiet(&node).await;
    assert!(refreshes(&node) - before <= 6, "{} refreshes of 4 heads", refreshes(&node) - before);
    assert_eq!(node.count("eth_subscribe"), 3);
}

#[tokio::test]
async fn no_subscription_without_following() {
    let node = upstream::devchain().blocks(3, 2).run().await;
    let _proxy = told_by(&node.url(), &node.ws_url(), Follow::Off).await;
    node.mine(1);
    time::sleep(10 * SOON).await;
    assert_eq!((refreshes(&node), node.count("eth_subscribe")), (0, 0));
}

#[tokio::test]
async fn real_node_is_followed_by_subscription() {
    let Some(binary) = tools::anvil("real_node_is_followed_by_subscription") else { return };
    let node = Anvil::start(binary, &["--chain-id", "4242"]).await;
    let proxy = told_by(node.url(), &node.url().replace("http", "ws"), Follow::Full).await;
    let (direct, through) = (client::at(node.url()), client::http(&proxy));
    let follow_calls = || async { proxy.metric("holdfast_follow_calls_total").await };
    let upkeep_calls = || async { proxy.metric("holdfast_upkeep_calls_total").await };
    eventually("a subscription", || async {
        let before = upkeep_calls().await;
        time::sleep(20 * SOON).await;
        upkeep_calls().await == before
    })
    .await;
    let before = follow_calls().await;
    for blocks in 1..=3 {
        direct.ask("anvil_mine", json!(["0x1"])).await.unwrap();
        // The refresh that a notification causes brings the block, so the follower fetches the receipts alone.
        eventually("the receipts", || async { follow_calls().await == before + blocks }).await;
    }
    let head: Value =
        direct.call("eth_getBlockByNumber", json!(["latest", true])).await.json()["result"].clone();
    let (status, block) = status(&through, "eth_getBlockByHash", json!([head["hash"], true])).await;
    assert_eq!((status.as_str(), block), ("holdfast; hit; detail=block", head));
}
