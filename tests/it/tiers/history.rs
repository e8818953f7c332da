//! Finalized blocks that changed, which must not happen.

use std::{fs, time::Duration};

use holdfast::{
    config::Config,
    devchain::{Fault, TagTarget},
};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{
    client, eventually,
    method::{BLOCK_BY_HASH, BLOCK_BY_NUMBER},
    proxy,
    redis::redis,
    tiers::{ask_all, confirmed, directory, files, fill, kept, number, start, start_with},
    upstream,
};

#[tokio::test]
async fn changed_finality_clears_indexes_but_keeps_content() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, [10, 40]).await;
    let old = format!("{:#x}", node.hash_at(40).unwrap());
    let content = client::at(&node.url()).ask(BLOCK_BY_HASH, json!([old, true])).await;
    node.reorg(50, 50);

    let second = start(&node, &data, true).await;
    let client = client::http(&second);
    ask_all(&client, &node, [10, 40, 44]).await;
    eventually("the alarm", async || second.metric("holdfast_finality_alarms_total").await >= 1).await;
    assert_eq!(client.ask(BLOCK_BY_HASH, json!([old, true])).await, content);
    second.app.stop().await;
    // The same holds from the next start on.
    let third = start(&node, &data, true).await;
    ask_all(&client::http(&third), &node, [10, 40, 44]).await;
    assert_eq!(third.metric("holdfast_finality_alarms_total").await, 0);
}

#[tokio::test]
async fn new_finality_does_not_confirm_old_entries() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, [10, 40]).await;
    node.reorg(50, 80);

    let second = start(&node, &data, true).await;
    let client = client::http(&second);
    // The proxy learns the new finalized block before a client asks for a block that was final earlier.
    client.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await.unwrap();
    client.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    ask_all(&client, &node, [10, 40, 44]).await;
    eventually("the alarm", async || second.metric("holdfast_finality_alarms_total").await >= 1).await;
}

#[tokio::test]
async fn tier_is_confirmed_again_once_finality_is_known() {
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
async fn lower_finalized_block_does_not_confirm_the_directory() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, [10, 40]).await;

    // The node's finalized block is lower after the restart, and then the node replaces blocks above it. To the
    // second process this is an ordinary reorg.
    node.set_finalized(TagTarget::At(20));
    let second = start(&node, &data, true).await;
    confirmed(&second).await;
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
async fn confirmation_during_set_head_does_not_count() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    let allowed = |config: &mut Config| config.methods.allow.push("debug_setHead".to_owned());
    fill(&node, &data, [10, 40]).await;

    node.set_finalized(TagTarget::Error);
    let second = start_with(&node, &data, true, allowed).await;
    let client = client::http(&second);
    client.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await.unwrap();
    // The tier is compared with a block that is outdated when the node's answer arrives.
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
async fn finality_from_before_an_alarm_does_not_count() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, [10, 40]).await;
    node.reorg(50, 80);

    let second = start(&node, &data, true).await;
    let client = client::http(&second);
    // The node delays the head and the finalized block, which is outdated when it arrives. Then the proxy finds that
    // the directory is wrong.
    node.fail(Fault::Delay(Duration::from_millis(300))).on(BLOCK_BY_NUMBER).times(2);
    let (_, ()) = tokio::join!(client.ask(BLOCK_BY_NUMBER, json!(["latest", false])), async {
        tokio::time::sleep(Duration::from_millis(450)).await;
        node.reorg(30, 30);
    });
    eventually("the alarm", async || second.metric("holdfast_finality_alarms_total").await >= 1).await;
    ask_all(&client, &node, [40, 74]).await;
}

#[tokio::test]
async fn finality_is_not_noted_before_the_old_block_is_checked() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    let first = start(&node, &data, true).await;
    let client = client::http(&first);
    ask_all(&client, &node, [10, 40]).await;
    node.reorg(50, 80);
    node.clear_calls();
    node.fail(Fault::Hang).on(format!("{BLOCK_BY_NUMBER}[{}*", number(44))).always();
    let killed = directory();
    let asks = async {
        // The head and the finalized block become stale, and the proxy fetches both again.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        let _ = client.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
        let _ = client.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    };
    let is_killed = async {
        let again = json!([number(44), false]).to_string();
        let asks_again = async || node.calls().iter().any(|call| call.params == again);
        eventually("the old finalized block is checked", asks_again).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        // Copies the directory as a kill at this moment would leave it.
        for from in files(&data) {
            let to = killed.join(from.strip_prefix(&data).unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(from, to).unwrap();
        }
    };
    // The calls do not end before the copy is made, because a head that does not link to a known block waits for the
    // check of the finalized block, too.
    tokio::select! {
        () = is_killed => {}
        () = asks => panic!("the old finalized block was not checked"),
    }
    node.clear_faults();
    let second = start(&node, &killed, true).await;
    ask_all(&client::http(&second), &node, [10, 40, 44]).await;
}

#[tokio::test]
async fn one_tier_does_not_confirm_another() {
    let Some(server) = redis("one_tier_does_not_confirm_another") else { return };
    let server = server.run().await;
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, [10, 40]).await;
    node.reorg(50, 80);
    // Another instance, which has only Redis, stores a block of the new history.
    let shared = |config: &mut Config| config.cache.redis = Some(server.config());
    let other = proxy::new().upstream(&node).config(shared).run().await;
    confirmed(&other).await;
    ask_all(&client::http(&other), &node, [20]).await;
    kept(&other, "redis", 2).await;
    other.app.stop().await;

    let both = start_with(&node, &data, true, shared).await;
    confirmed(&both).await;
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

#[tokio::test]
async fn hanging_confirmation_is_awaited_once() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, [1]).await;
    let highest = node.head().number - node.config().finalized_distance;
    node.fail(Fault::Hang).on(format!("{BLOCK_BY_NUMBER}[\"{highest:#x}\"*")).always();
    let second = start(&node, &data, true).await;
    let client = client::http(&second);
    let begun = Instant::now();
    for at in 2..=40 {
        client.ask(BLOCK_BY_NUMBER, json!([number(at), true])).await.unwrap();
    }
    // If each call waited for the confirmation, each would take a second.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
