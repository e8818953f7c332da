//! Finalized blocks that changed, which must not happen.

use std::time::Duration;

use alloy_consensus::Header;
use holdfast::{
    cache::tier::{ChainKey, Part, Record, Sealed, Tier},
    config::Config,
    devchain::{Fault, Pruned, TagTarget},
    eth::{BlockHash, BlockNumber, Home},
};
use serde_json::json;

use crate::support::{
    client, eventually,
    method::{BLOCK_BY_HASH, BLOCK_BY_NUMBER},
    proxy,
    redis::redis,
    tiers::{ask_all, directory, fetches, fill, final_known, kept, number, start, start_with},
    upstream,
};

/// The directory has a finalized history that the chain has replaced meanwhile.
#[tokio::test]
async fn replaced_history_is_not_served_by_number() {
    for more in [50, 80] {
        let node = upstream::devchain().blocks(60, 2).run().await;
        let data = directory();
        fill(&node, &data, [10, 40]).await;
        let old = format!("{:#x}", node.hash_at(40).unwrap());
        let content = client::at(&node.url()).ask(BLOCK_BY_HASH, json!([old, true])).await;
        node.reorg(50, more);
        for _ in 0..2 {
            let proxy = start(&node, &data, true).await;
            let client = client::http(&proxy);
            ask_all(&client, &node, [10, 40, 44]).await;
            assert_eq!(client.ask(BLOCK_BY_HASH, json!([old, true])).await, content);
            proxy.app.stop().await;
        }
    }
}

#[tokio::test]
async fn run_that_the_node_contradicts_loses_its_numbers() {
    let node = upstream::devchain().config(|config| config.slot_seconds = 600).blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, 10..=20).await;
    node.reorg(55, 55);
    let proxy = start(&node, &data, true).await;
    let client = client::http(&proxy);
    ask_all(&client, &node, 10..=20).await;
    kept(&proxy, "disk", 22).await;
    proxy.app.stop().await;
    // No data of the old branch is left, so the proxy asks the node for none of its numbers.
    let proxy = start(&node, &data, true).await;
    final_known(&proxy).await;
    node.clear_calls();
    for at in 10..=20 {
        client::http(&proxy).ask(BLOCK_BY_NUMBER, json!([number(at), true])).await.unwrap();
    }
    assert_eq!(fetches(&node), 0, "the new branch is on disk");
}

/// Of the history that the node has pruned, the directory has another branch than the node, as its top shows.
#[tokio::test]
async fn pruned_run_with_another_top_is_not_served() {
    let node = upstream::devchain().config(|config| config.slot_seconds = 600).blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, (3..=35).chain([44])).await;
    let old = client::at(&node.url()).ask(BLOCK_BY_NUMBER, json!([number(7), true])).await;
    node.reorg(15, 15);
    node.prune_below(30, Pruned::Null);
    let proxy = start(&node, &data, true).await;
    let client = client::http(&proxy);
    assert_eq!(client.ask(BLOCK_BY_NUMBER, json!([number(7), true])).await, old, "the top confirms it");
    proxy.app.stop().await;
    node.reorg(26, 26);
    let proxy = start(&node, &data, true).await;
    let client = client::http(&proxy);
    assert_ne!(client.ask(BLOCK_BY_NUMBER, json!([number(7), true])).await, old);
}

/// Anybody can make a header that names a given parent.
#[tokio::test]
async fn forged_child_in_redis_does_not_affect_the_disk() {
    let Some(server) = redis("forged_child_in_redis_does_not_affect_the_disk") else { return };
    let server = server.run().await;
    let node = upstream::devchain().config(|config| config.slot_seconds = 600).blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, 10..=20).await;
    let forged = Header { number: 21, parent_hash: node.hash_at(20).unwrap(), ..Header::default() };
    let home = Home { number: BlockNumber(21), block: BlockHash(forged.hash_slow()) };
    let value = Sealed::new(&alloy_rlp::encode(&forged)).unwrap();
    let record = Record { home, part: Part::Header, transactions: Vec::new(), value };
    let chain = ChainKey { id: node.config().chain_id, genesis: node.hash_at(0).unwrap() };
    server.tier().put(chain, record).await.unwrap();
    let shared = |config: &mut Config| config.cache.redis = Some(server.config());
    let both = start_with(&node, &data, true, shared).await;
    final_known(&both).await;
    node.clear_calls();
    for at in 10..=20 {
        client::http(&both).ask(BLOCK_BY_NUMBER, json!([number(at), true])).await.unwrap();
    }
    assert_eq!(fetches(&node), 0, "the content is on disk");
    ask_all(&client::http(&both), &node, 19..=22).await;
}

#[tokio::test]
async fn late_finality_is_that_of_the_new_history() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, [10, 40]).await;

    node.set_finalized(TagTarget::Error);
    let second = start(&node, &data, true).await;
    let client = client::http(&second);
    ask_all(&client, &node, [10]).await;
    node.reorg(50, 80);
    node.set_finalized(TagTarget::Trailing);
    eventually("something is final", async || {
        client.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await.unwrap();
        let _ = client.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        second.metric(r#"holdfast_view_refreshes_total{tag="finalized",outcome="answered"}"#).await >= 1
    })
    .await;
    ask_all(&client, &node, [10, 40, 44]).await;
}

#[tokio::test]
async fn lower_finalized_block_says_nothing_of_the_blocks_above() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, [10, 40]).await;

    // The node's finalized block is lower after the restart, and then the node replaces blocks above it. To the
    // second process this is an ordinary reorg.
    node.set_finalized(TagTarget::At(20));
    let second = start(&node, &data, true).await;
    final_known(&second).await;
    let client = client::http(&second);
    node.reorg(25, 30);
    eventually("the new head is followed", async || {
        client.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await.unwrap();
        second.metric("holdfast_head_number").await == 65
    })
    .await;
    node.set_finalized(TagTarget::Trailing);
    eventually("the new branch is final", async || {
        client.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await.unwrap();
        second.metric("holdfast_finalized_number").await == 49
    })
    .await;
    ask_all(&client, &node, [10, 40, 44]).await;
}

#[tokio::test]
async fn answer_during_set_head_does_not_count() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    let allowed = |config: &mut Config| config.methods.allow.push("debug_setHead".to_owned());
    fill(&node, &data, [10, 40]).await;

    node.set_finalized(TagTarget::Error);
    let second = start_with(&node, &data, true, allowed).await;
    let client = client::http(&second);
    client.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await.unwrap();
    // The block is outdated when the node's answer arrives.
    node.fail(Fault::Delay(Duration::from_millis(400))).on(BLOCK_BY_NUMBER).once();
    let (_, _) = tokio::join!(client.ask(BLOCK_BY_NUMBER, json!([number(10), true])), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        node.reorg(50, 80);
        node.set_finalized(TagTarget::Trailing);
        let _ = client.ask("debug_setHead", json!(["0x1"])).await;
    });
    ask_all(&client, &node, [10, 40, 44]).await;
}

#[tokio::test]
async fn one_tier_says_nothing_of_another() {
    let Some(server) = redis("one_tier_says_nothing_of_another") else { return };
    let server = server.run().await;
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, [10, 40]).await;
    node.reorg(50, 80);
    // Another instance, which has only Redis, stores a block of the new history.
    let shared = |config: &mut Config| config.cache.redis = Some(server.config());
    let other = proxy::new().upstream(&node).config(shared).run().await;
    final_known(&other).await;
    ask_all(&client::http(&other), &node, [20]).await;
    kept(&other, "redis", 2).await;
    other.app.stop().await;

    let both = start_with(&node, &data, true, shared).await;
    final_known(&both).await;
    ask_all(&client::http(&both), &node, [10, 20, 40, 44]).await;
    let hits = r#"holdfast_tier_reads_total{tier="redis",outcome="hit"}"#;
    assert!(both.metric(hits).await >= 1, "correct entries were forgotten with the wrong ones");
}

#[tokio::test]
async fn unaware_instance_does_not_spoil_the_shared_tier() {
    let Some(server) = redis("unaware_instance_does_not_spoil_the_shared_tier") else { return };
    let server = server.run().await;
    let node = upstream::devchain().blocks(60, 2).run().await;
    let shared = |config: &mut Config| {
        config.cache.redis = Some(server.config());
        // The cache is too small for any block, so a repeated request fetches the block and writes it to the tier
        // again.
        config.cache.size = bytesize::ByteSize::kib(1);
    };
    let fleet = [
        proxy::new().upstream(&node).config(shared).run().await,
        proxy::new().upstream(&node).config(shared).run().await,
    ];
    let [unaware, aware] = fleet.each_ref().map(client::http);
    ask_all(&unaware, &node, [10, 20, 40]).await;
    ask_all(&aware, &node, [10]).await;
    node.reorg(50, 80);
    // One instance notices the change.
    eventually("the alarm", async || {
        let _ = aware.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
        let _ = aware.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        fleet[1].metric("holdfast_finality_alarms_total").await >= 1
    })
    .await;
    // The other instance continues with the old history.
    for _ in 0..3 {
        for at in [20, 40] {
            let _ = unaware.ask(BLOCK_BY_NUMBER, json!([number(at), true])).await;
        }
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    ask_all(&aware, &node, [20, 40]).await;
}
