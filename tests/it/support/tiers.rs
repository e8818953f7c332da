//! Proxies with a disk tier, and the content of their tiers.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use holdfast::{
    app::{App, StartError},
    cache::DiskConfig,
    config::Config,
    upstream::EndpointConfig,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    client::{self, Client},
    eventually,
    method::{BLOCK_BY_HASH, BLOCK_BY_NUMBER, RECEIPT, RECEIPTS, TRANSACTION},
    program::file,
    proxy::Proxy,
    upstream::Node,
};

/// Returns a temporary data directory that no other test uses.
pub fn directory() -> PathBuf {
    file("here", "").with_file_name("data")
}

/// Starts a proxy as soon as the previous one has released the directory.
pub async fn start(node: &Node, directory: &Path, ready: bool) -> Proxy {
    start_with(node, directory, ready, |_| {}).await
}

/// Same as [`start`], but with further configuration.
pub async fn start_with(
    node: &Node,
    directory: &Path,
    ready: bool,
    configure: impl Fn(&mut Config),
) -> Proxy {
    let begun = Instant::now();
    loop {
        let mut config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            admin: "127.0.0.1:0".parse().unwrap(),
            ..Config::default()
        };
        config.upstream.endpoints = vec![EndpointConfig::at(node.url())];
        config.cache.disk = Some(DiskConfig::new(directory));
        configure(&mut config);
        match App::builder().config(config).start().await {
            Ok(app) => {
                if ready {
                    app.ready().await;
                }
                return Proxy { app };
            }
            Err(StartError::Disk(_)) if begun.elapsed() < Duration::from_secs(20) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

pub fn number(at: u64) -> Value {
    json!(format!("{at:#x}"))
}

/// Returns all calls that return the block at `at` or a part of it.
pub fn calls(node: &Node, at: u64) -> Vec<(&'static str, Value)> {
    let hash = format!("{:#x}", node.hash_at(at).unwrap());
    let block: Value =
        serde_json::from_slice(&node.block_json(node.hash_at(at).unwrap(), true).unwrap()).unwrap();
    let mut calls = vec![
        (BLOCK_BY_NUMBER, json!([number(at), true])),
        (BLOCK_BY_NUMBER, json!([number(at), false])),
        (BLOCK_BY_HASH, json!([hash, true])),
        (RECEIPTS, json!([number(at)])),
        ("eth_getTransactionByBlockHashAndIndex", json!([hash, "0x0"])),
        ("eth_getTransactionByBlockNumberAndIndex", json!([number(at), "0x1"])),
        ("eth_getBlockTransactionCountByNumber", json!([number(at)])),
    ];
    for transaction in block["transactions"].as_array().unwrap() {
        calls.push((TRANSACTION, json!([transaction["hash"]])));
        calls.push((RECEIPT, json!([transaction["hash"]])));
    }
    calls
}

/// Returns every call about these blocks, with the node's own answer.
pub async fn truths(
    node: &Node,
    blocks: impl IntoIterator<Item = u64>,
) -> Vec<(&'static str, Value, Result<String, String>)> {
    let direct = client::at(&node.url());
    let mut truths = Vec::new();
    for (method, params) in blocks.into_iter().flat_map(|at| calls(node, at)) {
        let truth = direct.ask(method, params.clone()).await;
        truths.push((method, params, truth));
    }
    truths
}

/// Makes every call about these blocks and compares the answers with the node's.
pub async fn ask_all(client: &Client, node: &Node, blocks: impl IntoIterator<Item = u64>) {
    let direct = client::at(&node.url());
    for at in blocks {
        for (method, params) in calls(node, at) {
            let truth = direct.ask(method, params.clone()).await;
            assert_eq!(client.ask(method, params.clone()).await, truth, "{method} {params}");
        }
    }
}

/// Waits until the proxy knows the finalized block, so that it writes to tiers.
pub async fn final_known(proxy: &Proxy) {
    let client = client::http(proxy);
    eventually("the finalized block is known", async || {
        client.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await.unwrap();
        client.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await.unwrap();
        proxy.metric("holdfast_finalized_number").await > 0
    })
    .await;
}

/// Waits until the tier has stored this many parts of blocks, because a stopping proxy has little time to write them.
pub async fn kept(proxy: &Proxy, tier: &str, parts: u64) {
    let written = format!(r#"holdfast_tier_writes_total{{tier="{tier}",outcome="written"}}"#);
    eventually("the tier has written the parts", async || proxy.metric(&written).await >= parts).await;
}

/// Fills the directory with the finalized blocks among these: starts a proxy, makes all calls about these blocks, and
/// stops the proxy.
pub async fn fill(node: &Node, directory: &Path, blocks: impl IntoIterator<Item = u64>) {
    let blocks: Vec<u64> = blocks.into_iter().collect();
    let first = start(node, directory, true).await;
    final_known(&first).await;
    ask_all(&client::http(&first), node, blocks.iter().copied()).await;
    let highest = node.head().number - node.config().finalized_distance;
    let are_final = blocks.iter().filter(|at| **at <= highest).count() as u64;
    kept(&first, "disk", 2 * are_final).await;
    first.app.stop().await;
}

/// Returns the number of calls for content that the node has received.
pub fn fetches(node: &Node) -> u64 {
    [BLOCK_BY_HASH, RECEIPTS, TRANSACTION, RECEIPT].iter().map(|method| node.count(method)).sum::<u64>()
        + node
            .calls()
            .iter()
            .filter(|call| call.method == BLOCK_BY_NUMBER && call.params.contains("true"))
            .count() as u64
}

pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.retain(|path| path.file_name().is_none_or(|name| name != "lock"));
    found
}

/// Mines until this block is final and the proxy knows it.
pub async fn finalize(node: &Node, proxy: &Proxy, at: u64) {
    let client = client::http(proxy);
    for _ in 0..3 {
        // Mines few blocks at a time, so that the proxy can link each new head to the last one.
        let head = node.mine_many(8, 1).number;
        eventually("the proxy has the head", async || {
            client.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await.unwrap();
            proxy.metric("holdfast_head_number").await == head
        })
        .await;
    }
    eventually("the block is final", async || {
        client.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await.unwrap();
        client.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await.unwrap();
        proxy.metric("holdfast_finalized_number").await >= at
    })
    .await;
}
