//! Instances that share one Redis, which comes and goes, is full, or holds foreign data.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use futures_util::future::join_all;
use holdfast::{config::Config, verify::Demand};
use serde_json::{Value, json};

use crate::support::{
    client, eventually,
    method::{BLOCK_BY_NUMBER, RECEIPTS},
    proxy::{self, Proxy},
    redis::redis,
    tiers::{ask_all, calls, directory, fetches, final_known, finalize, kept, number, start, start_with},
    upstream,
};

#[tokio::test]
async fn redis_outages_do_not_affect_answers() {
    let Some(server) = redis("redis_outages_do_not_affect_answers") else { return };
    let mut server = server.run().await;
    let node = upstream::devchain().blocks(300, 2).run().await;
    let small = |config: &mut Config| {
        config.cache.redis = Some(server.config());
        // The cache is small, so that the proxy reads many blocks from Redis again.
        config.cache.size = bytesize::ByteSize::kib(64);
    };
    let proxy = Arc::new(proxy::new().upstream(&node).config(small).run().await);
    let done = Arc::new(AtomicBool::new(false));
    let load = |seed: u64| {
        let (proxy, done, node_url) = (proxy.clone(), done.clone(), node.url());
        let all: Vec<Vec<(&'static str, Value)>> = (1..=280).map(|at| calls(&node, at)).collect();
        tokio::spawn(async move {
            let (client, direct) = (client::http(&proxy), client::at(&node_url));
            let mut random = fastrand::Rng::with_seed(seed);
            let mut answered = 0;
            while !done.load(Relaxed) {
                let of = &all[random.usize(..all.len())];
                let (method, params) = of[random.usize(..of.len())].clone();
                let truth = direct.ask(method, params.clone()).await;
                assert_eq!(client.ask(method, params.clone()).await, truth, "{method} {params}");
                answered += 1;
            }
            answered
        })
    };
    let loads = [load(1), load(2), load(3)];
    let hits = r#"holdfast_tier_reads_total{tier="redis",outcome="hit"}"#;
    for _ in 0..3 {
        let before = proxy.metric(hits).await;
        eventually("the proxy uses Redis", async || proxy.metric(hits).await > before + 20).await;
        server.kill();
        let failed = r#"holdfast_tier_reads_total{tier="redis",outcome="skipped"}"#;
        let before = proxy.metric(failed).await;
        eventually("reads skip Redis", async || proxy.metric(failed).await > before + 20).await;
        server.start().await;
    }
    let before = proxy.metric(hits).await;
    eventually("the proxy uses Redis again", async || proxy.metric(hits).await > before + 20).await;
    done.store(true, Relaxed);
    let answered: u32 = join_all(loads).await.into_iter().map(|load| load.unwrap()).sum();
    println!("{answered} answers, all of them right");
}

#[tokio::test]
async fn foreign_writes_to_redis_are_never_served() {
    let Some(server) = redis("foreign_writes_to_redis_are_never_served") else { return };
    let server = server.run().await;
    let node = upstream::devchain().blocks(60, 2).run().await;
    let shared = |config: &mut Config| config.cache.redis = Some(server.config());
    let first = proxy::new().upstream(&node).config(shared).run().await;
    final_known(&first).await;
    ask_all(&client::http(&first), &node, 1..30).await;
    kept(&first, "redis", 58).await;
    first.app.stop().await;
    let mut raw = server.raw().await;
    let mut random = fastrand::Rng::with_seed(11);
    let mut keys = raw.keys().await;
    assert!(keys.len() > 100, "{}", keys.len());
    keys.sort();
    for pair in keys.windows(2) {
        let value: Vec<u8> = raw.ask(&[b"GETRANGE", &pair[0], b"0", b"-1"]).await;
        let mut value = value;
        match random.u8(..4) {
            0 if !value.is_empty() => {
                let at = random.usize(..value.len());
                value[at] ^= 1 << random.u8(..8);
            }
            1 => value.truncate(random.usize(..=value.len())),
            // The value of another entry has a right checksum and a wrong content.
            2 => value = raw.ask(&[b"GETRANGE", &pair[1], b"0", b"-1"]).await,
            _ => continue,
        }
        let _: () = raw.ask(&[b"SET", &pair[0], &value]).await;
    }
    let second = proxy::new().upstream(&node).config(shared).run().await;
    ask_all(&client::http(&second), &node, 1..30).await;
    let outcome = async |outcome: &str| {
        let name = format!(r#"holdfast_tier_reads_total{{tier="redis",outcome="{outcome}"}}"#);
        second.metric(&name).await
    };
    for seen in ["hit", "damaged", "rejected"] {
        assert!(outcome(seen).await > 0, "{seen}");
    }
}

#[tokio::test]
async fn unproved_entries_are_refetched_when_final_and_shared() {
    let test = "unproved_entries_are_refetched_when_final_and_shared";
    let Some(server) = redis(test) else { return };
    let server = server.run().await;
    let node = upstream::devchain().blocks(60, 2).run().await;
    let shared = |config: &mut Config| {
        config.cache.redis = Some(server.config());
        config.verify.level = Demand::Structural;
    };
    let ask = async |proxy: &Proxy| {
        let client = client::http(proxy);
        for method in [BLOCK_BY_NUMBER, RECEIPTS] {
            let params =
                if method == BLOCK_BY_NUMBER { json!([number(60), true]) } else { json!([number(60)]) };
            client.ask(method, params).await.unwrap();
        }
    };
    let first = proxy::new().upstream(&node).config(shared).run().await;
    final_known(&first).await;
    client::http(&first).ask(BLOCK_BY_NUMBER, json!(["latest", false])).await.unwrap();
    ask(&first).await;
    finalize(&node, &first, 60).await;
    let asked = fetches(&node);
    ask(&first).await;
    assert_eq!(fetches(&node), asked + 2, "entries from before finality are fetched again");
    ask(&first).await;
    assert_eq!(fetches(&node), asked + 2, "entries from after finality are not fetched again");
    kept(&first, "redis", 2).await;
    first.app.stop().await;
    let second = proxy::new().upstream(&node).config(shared).run().await;
    final_known(&second).await;
    let asked = fetches(&node);
    ask(&second).await;
    assert_eq!(fetches(&node), asked, "the second instance finds them in Redis");
}

#[tokio::test]
async fn read_only_tier_still_answers() {
    let Some(server) = redis("read_only_tier_still_answers") else { return };
    let server = server.with("maxmemory-policy", "noeviction").run().await;
    let node = upstream::devchain().blocks(60, 2).run().await;
    let shared = |config: &mut Config| config.cache.redis = Some(server.config());
    let first = proxy::new().upstream(&node).config(shared).run().await;
    final_known(&first).await;
    ask_all(&client::http(&first), &node, 1..=20).await;
    kept(&first, "redis", 40).await;
    first.app.stop().await;
    let second = proxy::new().upstream(&node).config(shared).run().await;
    final_known(&second).await;
    let client = client::http(&second);
    client.ask(BLOCK_BY_NUMBER, json!([number(1), true])).await.unwrap();
    let _: () = server.raw().await.ask(&[b"CONFIG", b"SET", b"maxmemory", b"1"]).await;
    let (asked, finalized) = (fetches(&node), "holdfast_finalized_number");
    for some in [2..=5, 6..=9, 10..=13, 14..=20] {
        let before = second.metric(finalized).await;
        node.mine_many(40, 1);
        eventually("the proxy knows the new finalized block", async || {
            client.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await.unwrap();
            client.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await.unwrap();
            second.metric(finalized).await > before
        })
        .await;
        for at in some {
            client.ask(BLOCK_BY_NUMBER, json!([number(at), true])).await.unwrap();
        }
    }
    assert_eq!(fetches(&node), asked, "all entries were in Redis");
}

#[tokio::test]
async fn entries_from_redis_are_written_to_disk() {
    let Some(server) = redis("entries_from_redis_are_written_to_disk") else { return };
    let server = server.run().await;
    let node = upstream::devchain().blocks(60, 2).run().await;
    let shared = |config: &mut Config| config.cache.redis = Some(server.config());
    let first = proxy::new().upstream(&node).config(shared).run().await;
    final_known(&first).await;
    ask_all(&client::http(&first), &node, 1..=10).await;
    kept(&first, "redis", 20).await;
    first.app.stop().await;

    let data = directory();
    let both = start_with(&node, &data, true, shared).await;
    final_known(&both).await;
    let client = client::http(&both);
    for at in 1..=10 {
        client.ask(BLOCK_BY_NUMBER, json!([number(at), true])).await.unwrap();
        client.ask(RECEIPTS, json!([number(at)])).await.unwrap();
    }
    let hits = r#"holdfast_tier_reads_total{tier="redis",outcome="hit"}"#;
    assert!(both.metric(hits).await >= 20, "the entries did not come from Redis");
    kept(&both, "disk", 20).await;
    both.app.stop().await;

    let alone = start(&node, &data, true).await;
    let client = client::http(&alone);
    final_known(&alone).await;
    let asked = fetches(&node);
    for at in 1..=10 {
        client.ask(BLOCK_BY_NUMBER, json!([number(at), true])).await.unwrap();
        client.ask(RECEIPTS, json!([number(at)])).await.unwrap();
    }
    assert_eq!(fetches(&node), asked, "all entries are on disk");
}
