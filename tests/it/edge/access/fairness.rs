//! One client does not keep the others waiting.

use std::time::Duration;

use futures_util::future::join_all;
use holdfast::{config::Config, devchain::Fault};
use serde_json::json;
use tokio::time::{self, Instant};

use super::{KEY, OTHER, chain_id, key, status};
use crate::support::{
    client::{self, Raw, post_head},
    eventually, in_memory,
    method::BALANCE,
    proxy, upstream,
};

/// A time longer than any call of the modest client may take.
const SLOW: Duration = Duration::from_secs(20);

#[tokio::test(start_paused = true)]
async fn huge_batches_of_misses_leave_slots_to_other_clients() {
    let chain = upstream::devchain().blocks(9, 2).chain();
    let mut config = Config::default();
    config.http.keys = vec![key("greedy", KEY), key("modest", OTHER)];
    let program = in_memory::program(&chain, &config);
    let (greedy, modest) = (program.clone().with_key(KEY), program.with_key(OTHER));
    modest.ask("eth_blockNumber", json!([])).await;
    chain.fail(Fault::Queue(SLOW)).on(BALANCE).always();
    let batch: Vec<_> = (0..1000)
        .map(|id| json!({ "jsonrpc": "2.0", "id": id, "method": BALANCE, "params": [format!("0x{id:040x}"), "latest"] }))
        .collect();
    let body = json!(batch).to_string();
    let flood: Vec<_> = (0..60)
        .map(|_| {
            let (greedy, body) = (greedy.clone(), body.clone());
            tokio::spawn(async move { greedy.send(body).await })
        })
        .collect();
    time::sleep(Duration::from_millis(100)).await;
    assert_eq!(chain.most_at_once(), 128, "the slots of one client");
    for number in 1..9 {
        let begun = Instant::now();
        let hash = format!("{:#x}", chain.hash_at(number).unwrap());
        assert_eq!(modest.ask("eth_getBlockByHash", json!([hash, true])).await["hash"], hash);
        modest.ask("eth_getBlockByNumber", json!(["latest", false])).await;
        assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
        time::sleep(Duration::from_secs(1)).await;
    }
    flood.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Tests shared fetches (blocks by hash) and forwarded calls.
#[tokio::test(start_paused = true)]
async fn reconnecting_client_gets_no_additional_slots() {
    for method in ["eth_getBlockByHash", BALANCE] {
        let chain = upstream::devchain().blocks(9, 2).chain();
        let mut config = Config::default();
        config.http.keys = vec![key("rude", KEY), key("modest", OTHER)];
        let program = in_memory::program(&chain, &config);
        let (rude, modest) = (program.clone().with_key(KEY), program.with_key(OTHER));
        modest.ask("eth_blockNumber", json!([])).await;
        chain.fail(Fault::Queue(SLOW)).on(method).always();
        for round in 0..60 {
            let calls: Vec<_> = (0..200)
                .map(|id| {
                    let unknown = round * 1000 + id + 1;
                    let params = match method {
                        BALANCE => json!([format!("0x{unknown:040x}"), "latest"]),
                        _ => json!([format!("0x{unknown:064x}"), true]),
                    };
                    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
                })
                .collect();
            let (rude, body) = (rude.clone(), json!(calls).to_string());
            let sent = tokio::spawn(async move { rude.send(body).await });
            time::sleep(Duration::from_millis(50)).await;
            sent.abort();
        }
        time::sleep(Duration::from_millis(50)).await;
        assert!(chain.most_at_once() <= 128, "{method}: {} at once", chain.most_at_once());
        let begun = Instant::now();
        let transaction = chain.transactions_of(chain.hash_at(3).unwrap())[0];
        modest.ask("eth_getTransactionByHash", json!([format!("{transaction:#x}")])).await;
        assert!(begun.elapsed() < Duration::from_millis(100), "{method}: {:?}", begun.elapsed());
    }
}

/// While a client waits for a permit, another client's miss fills the cache.
#[tokio::test(start_paused = true)]
async fn cache_is_looked_up_again_after_a_wait_for_a_permit() {
    const BLOCK: &str = "eth_getBlockByHash";
    let chain = upstream::devchain().blocks(9, 2).chain();
    let mut config = Config::default();
    config.http.keys = vec![key("busy", KEY), key("other", OTHER)];
    let program = in_memory::program(&chain, &config);
    let (busy, other) = (program.clone().with_key(KEY), program.with_key(OTHER));
    other.ask("eth_blockNumber", json!([])).await;
    chain.fail(Fault::Queue(SLOW)).on(BALANCE).always();
    let params = json!([format!("{:#x}", chain.hash_at(3).unwrap()), true]);
    let all_permits = (0..128).map(|id| {
        let (busy, params) = (busy.clone(), json!([format!("0x{id:040x}"), "latest"]));
        tokio::spawn(async move { busy.ask(BALANCE, params).await })
    });
    let all_permits: Vec<_> = all_permits.collect();
    time::sleep(Duration::from_millis(100)).await;
    assert_eq!(chain.most_at_once(), 128);
    let waiting = tokio::spawn({
        let params = params.clone();
        async move { busy.ask(BLOCK, params).await }
    });
    time::sleep(Duration::from_millis(100)).await;
    assert_eq!(chain.count(BLOCK), 0, "the client has no permit left");
    let fetched = other.ask(BLOCK, params).await;
    assert_eq!(waiting.await.unwrap(), fetched);
    assert_eq!(chain.count(BLOCK), 1);
    join_all(all_permits).await;
}

#[tokio::test]
async fn huge_batches_of_hits_yield_to_other_clients() {
    let chain = upstream::devchain().blocks(9, 2).chain();
    let program = in_memory::program(&chain, &Config::default());
    let hash = json!([format!("{:#x}", chain.hash_at(3).unwrap()), true]);
    program.ask("eth_getBlockByHash", hash.clone()).await;
    let batch: Vec<_> = (0..1000)
        .map(|id| json!({ "jsonrpc": "2.0", "id": id, "method": "eth_getBlockByHash", "params": hash }))
        .collect();
    // On a single thread, a batch that does not yield would run to its end first.
    let greedy = tokio::spawn({
        let program = program.clone();
        async move { program.send(json!(batch).to_string()).await }
    });
    let modest = tokio::spawn(async move { program.ask("eth_getBlockByHash", hash).await });
    assert!(modest.await.unwrap()["hash"].is_string());
    assert!(!greedy.is_finished(), "the whole batch was served first");
    assert_eq!(greedy.await.unwrap().0, 200);
}

/// The proxy identifies clients of a reverse proxy on the same machine by their forwarded address, even on a loopback
/// listener.
#[tokio::test]
async fn forwarded_address_gets_at_most_half_of_the_requests() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| {
            config.http.max_in_flight = 8;
            config.http.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
        })
        .run()
        .await;
    let mut holders = Vec::new();
    for _ in 0..8 {
        let mut holder = Raw::connect(proxy.address()).await;
        let head = post_head(1000).replace("\r\n\r\n", "\r\nx-forwarded-for: 1.1.1.1\r\n\r\n");
        holder.write(head).await;
        holders.push(holder);
    }
    let client = client::http(&proxy);
    let from = async |forwarded: &str| {
        status(chain_id(client.post()).header("x-forwarded-for", forwarded)).await.as_u16()
    };
    eventually("requests shed", async || from("1.1.1.1").await == 503).await;
    for _ in 0..10 {
        assert_eq!((from("2.2.2.2").await, from("1.1.1.1").await), (200, 503));
    }
}

#[tokio::test]
async fn one_address_cannot_take_all_request_slots() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| {
            config.http.max_in_flight = 8;
            config.http.max_per_client = Some(4);
        })
        .run()
        .await;
    let mut holders = Vec::new();
    for _ in 0..8 {
        let mut holder = Raw::connect(proxy.address()).await;
        holder.write(post_head(1000)).await;
        holders.push(holder);
    }
    let same = client::http(&proxy);
    eventually("requests shed", async || same.call("eth_chainId", json!([])).await.status == 503).await;
    let other = client::from("127.0.0.9".parse().unwrap(), &proxy.url());
    for _ in 0..10 {
        assert_eq!(other.call("eth_chainId", json!([])).await.status, 200);
        assert_eq!(same.call("eth_chainId", json!([])).await.status, 503);
    }
}
