//! A disk that is full or read-only, under the whole proxy.

use std::{cell::Cell, fs};

use serde_json::json;

use crate::support::{
    client, eventually,
    method::{BLOCK_BY_NUMBER, RECEIPTS},
    mounted::Mounted,
    program::{holdfast, output, text},
    tiers::{ask_all, directory, fetches, fill, final_known, kept, number, start},
    upstream,
};

const FAILED: &str = r#"holdfast_tier_writes_total{tier="disk",outcome="failed"}"#;
const WRITTEN: &str = r#"holdfast_tier_writes_total{tier="disk",outcome="written"}"#;
const WRITING: &str = r#"holdfast_tier_writing{tier="disk"}"#;

#[tokio::test]
async fn full_disk_pauses_writes_and_affects_no_call() {
    let test = "full_disk_pauses_writes_and_affects_no_call";
    let Some(mounted) = Mounted::new(test, directory()) else { return };
    let node = upstream::devchain().blocks(900, 6).run().await;
    let proxy = start(&node, mounted.folder(), true).await;
    let client = client::http(&proxy);
    final_known(&proxy).await;
    let ask = async |at| {
        client.ask(BLOCK_BY_NUMBER, json!([number(at), true])).await.unwrap();
        client.ask(RECEIPTS, json!([number(at)])).await.unwrap();
    };
    for at in 1..=200 {
        ask(at).await;
    }
    let next = Cell::new(201);
    eventually("the disk is full, and writes pause", async || {
        ask(next.get()).await;
        next.set(next.get() + 1);
        proxy.metric(FAILED).await > 0 && proxy.metric(WRITING).await == 0
    })
    .await;
    ask_all(&client, &node, [1, 100, 200, 820, 830]).await;
    proxy.app.stop().await;

    // Blocks written before the disk was full are there after a restart.
    let proxy = start(&node, mounted.folder(), true).await;
    final_known(&proxy).await;
    let asked = fetches(&node);
    client::http(&proxy).ask(BLOCK_BY_NUMBER, json!([number(1), true])).await.unwrap();
    assert_eq!(fetches(&node), asked, "the block was on disk");
    proxy.app.stop().await;
}

#[tokio::test]
async fn disk_that_turns_read_only_answers_and_recovers() {
    let test = "disk_that_turns_read_only_answers_and_recovers";
    let node = upstream::devchain().blocks(900, 2).run().await;
    let directory = directory();
    fill(&node, &directory, [1]).await;
    let folder =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir());
    // Mounts only the chain's folder, because the lock file beside it is open for writing, which prevents a read-only
    // remount.
    let Some(mounted) = Mounted::new(test, folder.unwrap()) else { return };
    let proxy = start(&node, &directory, true).await;
    let client = client::http(&proxy);
    final_known(&proxy).await;
    ask_all(&client, &node, 1..=10).await;
    kept(&proxy, "disk", 20).await;
    mounted.remount("ro").await;
    ask_all(&client, &node, 11..=20).await;
    eventually("writes pause", async || proxy.metric(WRITING).await == 0).await;
    let written = proxy.metric(WRITTEN).await;
    let admin = proxy.app.admin_address().to_string();
    let url = proxy.url();
    // The command also reports the failing tier for blocks that are already present.
    for blocks in ["1..5", "11..15"] {
        let arguments = ["warm", "--blocks", blocks, "--url", &url, "--admin", &admin];
        let warmed = output(holdfast(&arguments)).await;
        let said = text(&warmed.stdout);
        assert_eq!(warmed.status.code(), Some(1), "{said}");
        assert!(said.contains("writes to disk fail, so some blocks may be missing there;"), "{said}");
    }
    let hash = node.hash_at(5).unwrap().to_string();
    for _ in 0..2 {
        let purged = output(holdfast(&["purge", &hash, "--admin", &admin])).await;
        let said = text(&purged.stderr);
        assert_eq!(purged.status.code(), Some(1), "{said}");
        assert!(said.contains("may still be in disk"), "{said}");
    }
    mounted.remount("rw").await;
    let next = Cell::new(41);
    eventually("the proxy writes to the disk again", async || {
        ask_all(&client, &node, [next.get()]).await;
        next.set(next.get() + 1);
        proxy.metric(WRITTEN).await > written
    })
    .await;
    proxy.app.stop().await;
}
