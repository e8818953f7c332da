//! Copies of a data directory, served elsewhere.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use holdfast::devchain::{Fault, Pruned};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{
    client::{self, Client},
    eventually,
    method::BLOCK_BY_NUMBER,
    tiers::{ask_all, directory, fill, final_known, kept, number, start, truths},
    upstream,
};

async fn copy(from: &Path) -> PathBuf {
    let to = directory();
    let (source, target) = (from.to_owned(), to.clone());
    let copied = tokio::task::spawn_blocking(move || {
        Command::new("cp").arg("-a").arg(source).arg(target).stderr(Stdio::null()).status().unwrap()
    });
    copied.await.unwrap();
    to
}

#[tokio::test]
async fn copy_made_under_load_answers_the_truth() {
    let node = upstream::devchain().blocks(120, 2).run().await;
    let data = directory();
    let first = start(&node, &data, true).await;
    final_known(&first).await;
    let (client, last) = (client::http(&first), 100);
    let writing = async { ask_all(&client, &node, 1..=last).await };
    let copying = async {
        let mut copies = Vec::new();
        for parts in [20, 60, 120] {
            kept(&first, "disk", parts).await;
            copies.push(copy(&data).await);
        }
        copies
    };
    let ((), copies) = tokio::join!(writing, copying);
    let truths = truths(&node, [1, 5, 20, 40, 60]).await;
    for copy in &copies {
        let second = start(&node, copy, true).await;
        final_known(&second).await;
        ask_all(&client::http(&second), &node, (1..=last).step_by(9)).await;
        assert!(second.metric(r#"holdfast_tier_reads_total{tier="disk",outcome="hit"}"#).await > 0);
        second.app.stop().await;
    }
    // Without a node, a proxy with a copy gives true answers or none. It answers by block hash.
    node.fail(Fault::Status(503)).always();
    let alone = start(&node, &copies[2], false).await;
    let client = client::http(&alone);
    let mut answered = 0;
    for (method, params, truth) in truths {
        if let Ok(answer) = client.ask(method, params.clone()).await {
            assert_eq!(Ok(answer), truth, "{method} {params}");
            answered += 1;
        }
    }
    assert!(answered > 5, "only {answered} calls were answered");
}

#[tokio::test]
async fn copy_answers_for_blocks_that_the_node_has_pruned() {
    for pruned in [Pruned::Error4444, Pruned::Null] {
        let node = upstream::devchain().blocks(60, 2).run().await;
        let data = directory();
        fill(&node, &data, (3..=20).chain([25, 32])).await;
        let data = copy(&data).await;
        let direct = client::at(&node.url());
        let truth = async |at| direct.ask(BLOCK_BY_NUMBER, json!([number(at), true])).await;
        let truths = [(25, truth(25).await), (7, truth(7).await)];
        node.prune_below(30, pruned);
        let proxy = start(&node, &data, true).await;
        let client = client::http(&proxy);
        let ask = async |at| client.ask(BLOCK_BY_NUMBER, json!([number(at), true])).await;
        final_known(&proxy).await;
        // Nothing has shown yet that the directory is of the node's chain.
        assert_ne!(ask(25).await, truths[0].1);
        ask(32).await.unwrap();
        for (at, truth) in truths {
            assert_eq!(ask(at).await, truth);
        }
        // The proxy writes to the copy as to any directory.
        ask_all(&client, &node, [35]).await;
        kept(&proxy, "disk", 2).await;
    }
}

/// One block of the run above the pruned history is enough.
#[tokio::test]
async fn run_that_reaches_above_the_pruned_history_is_confirmed_by_its_top() {
    let node = upstream::devchain().config(|config| config.slot_seconds = 600).blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, 3..=35).await;
    let truth = client::at(&node.url()).ask(BLOCK_BY_NUMBER, json!([number(7), true])).await;
    node.prune_below(30, Pruned::Null);
    let proxy = start(&node, &data, true).await;
    let client = client::http(&proxy);
    assert_eq!(client.ask(BLOCK_BY_NUMBER, json!([number(7), true])).await, truth);
    // The rest of the run needs no calls at all, and a reader of all of it a few.
    node.clear_calls();
    for at in 8..=29 {
        assert_ne!(client.ask(BLOCK_BY_NUMBER, json!([number(at), true])).await.as_deref(), Ok("null"));
    }
    let light = node.calls().iter().filter(|call| call.method == BLOCK_BY_NUMBER).count();
    assert!(light <= 4, "{:?}", node.calls());
}

#[tokio::test]
async fn call_before_finality_is_known_waits_for_it() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, 3..=35).await;
    let ask = async |client: &Client, at| client.ask(BLOCK_BY_NUMBER, json!([number(at), true])).await;
    let direct = client::at(&node.url());
    let truths = [ask(&direct, 7).await, ask(&direct, 8).await];
    node.prune_below(30, Pruned::Null);
    for _ in 0..10 {
        let proxy = start(&node, &data, true).await;
        let client = client::http(&proxy);
        // Delays the answers for the head and the finalized block.
        node.fail(Fault::Delay(Duration::from_millis(400))).on(BLOCK_BY_NUMBER).times(2);
        let second = async {
            eventually("the head is known", async || proxy.metric("holdfast_head_number").await == 60).await;
            ask(&client, 8).await
        };
        let begun = Instant::now();
        let (first, second) = tokio::join!(ask(&client, 7), second);
        if [&first, &second] == truths.each_ref() {
            return;
        }
        // The proxy waits for the finalized block for a limited time, which may be too short if the machine stalls.
        assert!(begun.elapsed() > Duration::from_millis(1500), "{first:?} {second:?}");
        node.clear_faults();
        proxy.app.stop().await;
    }
    panic!("too slow each time");
}
