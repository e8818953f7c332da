//! Finalized data across restarts: the proxy serves it correctly, and starts without waiting for it.

use std::{fs, path::PathBuf, time::Duration};

use futures_util::future::join_all;
use holdfast::{config::Config, devchain::Fault, verify::Demand};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{
    client, eventually,
    method::{BLOCK_BY_HASH, BLOCK_BY_NUMBER, RECEIPTS},
    process,
    program::{holdfast, output, text},
    proxy::Proxy,
    tiers::{
        ask_all, directory, fetches, files, fill, final_known, finalize, kept, number, start, start_with,
        truths,
    },
    upstream,
};

#[tokio::test]
async fn only_final_blocks_survive_a_restart() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, [1, 7, 20, 44, 50, 60]).await;

    let second = start(&node, &data, true).await;
    let client = client::http(&second);
    let truths = truths(&node, [1, 7, 20, 44]).await;
    final_known(&second).await;
    let asked = fetches(&node);
    for (method, params, truth) in truths {
        assert_eq!(client.ask(method, params.clone()).await, truth, "{method} {params}");
    }
    assert_eq!(fetches(&node), asked, "the node was asked for blocks on disk");
    let disk = r#"holdfast_tier_reads_total{tier="disk",outcome="hit"}"#;
    assert!(second.metric(disk).await > 4);
    assert!(
        second.metric(r#"holdfast_calls_total{method="eth_getBlockByNumber",outcome="disk"}"#).await >= 1
    );
    let status = client.get(&second.admin_url("/status")).await.json();
    let told = json!({ "tier": "disk", "reading": true, "writing": true, "stores": true, "errors": 0 });
    for (name, value) in told.as_object().unwrap() {
        assert_eq!(&status["tiers"][0][name], value, "{name}");
    }
    // The tier did not store blocks above the finalized block.
    let before = fetches(&node);
    client.ask(BLOCK_BY_NUMBER, json!([number(50), true])).await.unwrap();
    client.ask(RECEIPTS, json!([number(50)])).await.unwrap();
    assert_eq!(fetches(&node), before + 2, "these blocks must be fetched");
}

/// Without a node, nothing leads to a number or a transaction.
#[tokio::test]
async fn without_a_node_the_disk_answers_by_hash() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, [5, 44]).await;
    let truths = truths(&node, [5, 44]).await;
    node.fail(Fault::Status(503)).always();

    let second = start(&node, &data, false).await;
    let client = client::http(&second);
    for (method, params, truth) in truths {
        let answer = client.call(method, params.clone()).await;
        if method.contains("ByBlockHash") || method == BLOCK_BY_HASH {
            assert_eq!(answer.outcome(), truth, "{method} {params}");
        } else {
            assert!(answer.outcome().is_err(), "{method} {params}");
        }
    }
    // When the node is back, the proxy sends it calls again.
    node.clear_faults();
    second.app.ready().await;
    ask_all(&client, &node, [5, 6, 44, 60]).await;
}

#[tokio::test]
async fn running_process_keeps_its_numbers_when_the_node_goes_away() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, [5]).await;
    let small = |config: &mut Config| config.cache.size = bytesize::ByteSize::kib(1);
    let second = start_with(&node, &data, true, small).await;
    let client = client::http(&second);
    ask_all(&client, &node, [5]).await;
    let truths = truths(&node, [5]).await;
    node.fail(Fault::Status(503)).always();
    for (method, params, truth) in truths {
        assert_eq!(client.ask(method, params.clone()).await, truth, "{method} {params}");
    }
}

/// Blocks of ten minutes, so that nearly all are old enough for one answer to be enough.
#[tokio::test]
async fn walk_over_stored_blocks_asks_the_node_for_few() {
    let node = upstream::devchain().config(|config| config.slot_seconds = 600).blocks(400, 1).run().await;
    let data = directory();
    fill(&node, &data, 1..=384).await;
    let second = start(&node, &data, true).await;
    final_known(&second).await;
    let client = client::http(&second);
    node.clear_calls();
    for at in 1..=384 {
        client.ask(BLOCK_BY_NUMBER, json!([number(at), true])).await.unwrap();
    }
    let asked: Vec<_> = node.calls().into_iter().filter(|call| call.params.contains("false")).collect();
    assert!(asked.len() <= 6, "{asked:?}");
    assert_eq!(fetches(&node), 0, "the content is on disk");
}

/// A restart soon after: the stored blocks link to the finalized block, although none is old.
#[tokio::test]
async fn gap_below_the_finalized_block_is_closed() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, 10..=44).await;
    node.mine_many(40, 1);
    let second = start(&node, &data, true).await;
    final_known(&second).await;
    node.clear_calls();
    let client = client::http(&second);
    for at in 10..=44 {
        client.ask(BLOCK_BY_NUMBER, json!([number(at), true])).await.unwrap();
    }
    assert_eq!(fetches(&node), 0, "the content is on disk");
    let light = node.count(BLOCK_BY_NUMBER);
    assert!(light <= 39 + 4, "{:?}", node.calls());
}

#[tokio::test]
async fn another_chain_in_the_same_directory_never_answers() {
    let one = upstream::devchain().blocks(60, 2).run().await;
    let other = upstream::devchain().config(|config| config.chain_id = 4242).blocks(60, 2).run().await;
    let data = directory();
    fill(&one, &data, [10, 40]).await;
    let second = start(&other, &data, true).await;
    let client = client::http(&second);
    ask_all(&client, &other, [10, 40]).await;
    let foreign = json!([format!("{:#x}", one.hash_at(10).unwrap()), true]);
    assert_eq!(client.ask(BLOCK_BY_HASH, foreign).await.as_deref(), Ok("null"));
}

#[tokio::test]
async fn early_answers_are_dropped_if_the_chain_differs() {
    let one = upstream::devchain().blocks(60, 2).run().await;
    let other = upstream::devchain().config(|config| config.chain_id = 4242).blocks(60, 2).run().await;
    let data = directory();
    fill(&one, &data, [10]).await;
    other.fail(Fault::Status(503)).always();
    let second = start(&other, &data, false).await;
    let client = client::http(&second);
    let foreign = json!([format!("{:#x}", one.hash_at(10).unwrap()), true]);
    let answer = client.ask(BLOCK_BY_HASH, foreign.clone()).await.unwrap();
    assert!(answer.contains("transactions"), "the directory knows no better: {answer}");
    other.clear_faults();
    eventually("the foreign block is no longer served", async || {
        client.ask(BLOCK_BY_HASH, foreign.clone()).await.as_deref() == Ok("null")
    })
    .await;
    ask_all(&client, &other, [10]).await;
}

/// A proxy that is killed again and again while it writes starts at once, and all its answers are true.
#[tokio::test]
async fn kills_leave_nothing_wrong_behind() {
    let node = upstream::devchain().blocks(400, 3).run().await;
    let data = directory();
    let (mut slowest, mut asked) = (Duration::ZERO, 1);
    for round in 0..50u64 {
        let begun = Instant::now();
        let process = process::serve(&node).set("CACHE__DISK__PATH", data.to_str().unwrap()).run().await;
        slowest = slowest.max(begun.elapsed());
        let client = process.client();
        // Asks for an old block, and for new blocks that the proxy does not finish before the kill.
        ask_all(&client, &node, [1 + round * 7 % asked]).await;
        let next: Vec<_> = (asked..asked + 12)
            .map(|at| client.call(BLOCK_BY_NUMBER, json!([number(1 + at % 380), true])))
            .collect();
        let all = tokio::time::timeout(Duration::from_millis(5 + round % 40), join_all(next));
        let _ = all.await;
        asked = (asked + 12).min(380);
        drop(process);
    }
    println!("slowest start of 50: {slowest:?}");
    let process = process::serve(&node).set("CACHE__DISK__PATH", data.to_str().unwrap()).run().await;
    ask_all(&process.client(), &node, (1..380).step_by(29)).await;
    assert!(process.metric(r#"holdfast_tier_reads_total{tier="disk",outcome="hit"}"#).await > 2);
    assert_eq!(process.metric(r#"holdfast_tier_reads_total{tier="disk",outcome="rejected"}"#).await, 0);
}

#[tokio::test]
async fn damage_on_disk_is_a_miss_and_nothing_worse() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, 1..44).await;
    let mut random = fastrand::Rng::with_seed(7);
    let hits = r#"holdfast_tier_reads_total{tier="disk",outcome="hit"}"#;
    for round in 0..8 {
        for path in files(&data) {
            // Half of the rounds do not damage the notes, because without them the proxy ignores all other files.
            let is_note = path.extension().is_none();
            if is_note && round % 2 == 0 {
                continue;
            }
            let mut bytes = fs::read(&path).unwrap();
            if bytes.is_empty() {
                continue;
            }
            for _ in 0..1 + bytes.len() / 20_000 {
                let at = random.usize(..bytes.len());
                bytes[at] ^= 1 << random.u8(..8);
            }
            if random.u8(..4) == 0 {
                bytes.truncate(random.usize(..bytes.len()));
            }
            fs::write(&path, bytes).unwrap();
        }
        let again = start(&node, &data, true).await;
        ask_all(&client::http(&again), &node, (1..44).step_by(3)).await;
        assert!(again.metric(hits).await > 0 || round > 0, "intact entries are found");
        again.app.stop().await;
    }
}

#[tokio::test]
async fn warming_fills_the_disk_without_repeated_fetches() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    let warm = async |proxy: &Proxy| {
        let (url, admin) = (proxy.url(), proxy.app.admin_address().to_string());
        let arguments = ["warm", "--blocks", "1..40", "--receipts", "--url", &url, "--admin", &admin];
        let warmed = output(holdfast(&arguments)).await;
        assert!(warmed.status.success(), "{}{}", text(&warmed.stdout), text(&warmed.stderr));
    };
    let first = start(&node, &data, true).await;
    final_known(&first).await;
    warm(&first).await;
    kept(&first, "disk", 80).await;
    first.app.stop().await;
    let second = start(&node, &data, true).await;
    final_known(&second).await;
    let asked = fetches(&node);
    warm(&second).await;
    assert_eq!(fetches(&node), asked, "all blocks were on disk");
    ask_all(&client::http(&second), &node, [1, 40]).await;
}

#[tokio::test]
async fn chain_without_genesis_is_not_stored_and_logged() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    node.fail(Fault::Null).on(r#"eth_getBlockByNumber["0x0"*"#).always();
    let data = directory();
    let process = process::serve(&node).env("HOLDFAST_CACHE__DISK__PATH", data.to_str().unwrap()).run().await;
    process.client().ask(BLOCK_BY_NUMBER, json!([number(5), true])).await.unwrap();
    process.says("the upstream does not show its genesis block").await;
    assert_eq!(files(&data), Vec::<PathBuf>::new(), "nothing is stored");
}

#[tokio::test]
async fn hanging_node_does_not_delay_answers_from_disk() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, [5]).await;
    let mut truths = truths(&node, [5]).await;
    truths.retain(|(method, ..)| method.contains("ByBlockHash") || *method == BLOCK_BY_HASH);
    node.fail(Fault::Hang).always();
    let second = start(&node, &data, false).await;
    let client = client::http(&second);
    let begun = Instant::now();
    let answers = truths.iter().map(|(method, params, _)| client.ask(method, params.clone()));
    for ((method, params, truth), answer) in truths.iter().zip(join_all(answers).await) {
        assert_eq!(&answer, truth, "{method} {params}");
    }
    assert!(begun.elapsed() < Config::default().upstream.timeout, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn earlier_chain_does_not_answer_for_a_development_chain() {
    let (node, development) = (
        upstream::devchain().blocks(60, 2).run().await,
        upstream::devchain().config(|config| config.chain_id = 31337).blocks(3, 1).run().await,
    );
    let data = directory();
    fill(&node, &data, [5]).await;
    let second = start(&development, &data, true).await;
    client::http(&second).ask(BLOCK_BY_NUMBER, json!([number(2), true])).await.unwrap();
    second.app.stop().await;
    development.fail(Fault::Status(503)).always();
    let third = start(&development, &data, false).await;
    let foreign = json!([format!("{:#x}", node.hash_at(5).unwrap()), true]);
    let answer = client::http(&third).ask(BLOCK_BY_HASH, foreign).await;
    assert!(answer.is_err(), "{answer:?}");
}

#[tokio::test]
async fn unproved_blocks_are_stored_only_if_fetched_when_final() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    let unproved = |config: &mut Config| config.verify.level = Demand::Structural;
    let block = async |proxy: &Proxy, at| {
        client::http(proxy).ask(BLOCK_BY_NUMBER, json!([number(at), true])).await.unwrap()
    };
    let first = start_with(&node, &data, true, unproved).await;
    final_known(&first).await;
    block(&first, 10).await;
    // The proxy fetches the block before it is final.
    let client = client::http(&first);
    client.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await.unwrap();
    block(&first, 60).await;
    finalize(&node, &first, 60).await;
    kept(&first, "disk", 1).await;
    first.app.stop().await;

    let second = start_with(&node, &data, true, unproved).await;
    final_known(&second).await;
    let asked = fetches(&node);
    block(&second, 10).await;
    assert_eq!(fetches(&node), asked, "block 10 was final when the proxy fetched it");
    block(&second, 60).await;
    assert_eq!(fetches(&node), asked + 1, "block 60 was not final when the proxy fetched it");
    kept(&second, "disk", 1).await;
    second.app.stop().await;
    // The second proxy fetched the block after it had become final, so the block is on disk now.
    let third = start_with(&node, &data, true, unproved).await;
    final_known(&third).await;
    let asked = fetches(&node);
    block(&third, 60).await;
    assert_eq!(fetches(&node), asked);
}
