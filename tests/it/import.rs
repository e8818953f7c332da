//! A directory is filled from a file, with nothing that is not proved, and answers from it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use holdfast::{
    cache::{
        Disk, DiskConfig,
        tier::{ArchiveWriter, Carried, ChainKey, Sealed, Tier},
    },
    devchain::{Fault, Pruned},
    eth::{BlockHash, BlockNumber},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    disk::open_when_free,
    export::{Ran, export, place, read, run},
    support::{
        client::{self, Client, PATIENCE},
        eventually,
        upstream::{self, Node},
    },
    tiers::{ask_all, calls, confirmed, directory, kept, number, start},
};

const IN_USE: &str = "is in use by another process";

/// Once the directory is free: a process that another test starts has its lock for a moment.
async fn import(file: &Path, data: &Path) -> Ran {
    let begun = Instant::now();
    loop {
        let ran = import_now(file, data).await;
        if !ran.1.contains(IN_USE) || begun.elapsed() > PATIENCE {
            return ran;
        }
    }
}

async fn import_now(file: &Path, data: &Path) -> Ran {
    run(&["import", file.to_str().unwrap(), "--data", data.to_str().unwrap()]).await
}

/// A file with these blocks of this node.
async fn exported(node: &Node, blocks: &str) -> PathBuf {
    let at = place();
    let (code, said) = export(&node.url(), blocks, &at).await;
    assert_eq!(code, Some(0), "{said}");
    at
}

/// A file as anybody could write it, its sums right.
fn written(chain: ChainKey, blocks: &[Carried]) -> PathBuf {
    let mut writer = ArchiveWriter::begin(Vec::new(), chain).unwrap();
    for block in blocks {
        writer.put(block).unwrap();
    }
    let at = place();
    fs::write(&at, writer.finish().unwrap()).unwrap();
    at
}

/// The same text with a member that is another.
fn bent(sealed: &Sealed, bend: impl FnOnce(&mut Value)) -> Sealed {
    let mut value = serde_json::from_slice(&sealed.open().unwrap()).unwrap();
    bend(&mut value);
    Sealed::new(value.to_string().as_bytes()).unwrap()
}

fn opened(data: &Path) -> Disk {
    open_when_free(data, DiskConfig::new(data).size)
}

/// What it says of numbers, and how much there is.
async fn told(data: &Path, chain: ChainKey) -> (Vec<u64>, Option<BlockNumber>) {
    let disk = opened(data);
    let mut numbers = Vec::new();
    for at in 0..60 {
        if disk.hash_at(chain, BlockNumber(at)).await.unwrap().is_some() {
            numbers.push(at);
        }
    }
    (numbers, disk.finalized(chain).await.unwrap().map(|(number, _)| number))
}

#[tokio::test]
async fn after_an_import_the_directory_answers_without_any_node() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let file = exported(&node, "3..40").await;
    let data = directory();
    // The second time all of it is there.
    for _ in 0..2 {
        let (code, said) = import(&file, &data).await;
        assert_eq!(code, Some(0), "{said}");
        assert!(said.starts_with("38 blocks of chain"), "{said}");
    }
    let direct = client::at(&node.url());
    let mut truths = Vec::new();
    for (method, params) in [calls(&node, 3), calls(&node, 17), calls(&node, 40)].concat() {
        truths.push((method, params.clone(), direct.ask(method, params).await));
    }
    node.fail(Fault::Status(503)).always();

    let proxy = start(&node, &data, false).await;
    let client = client::http(&proxy);
    for (method, params, truth) in truths {
        assert_eq!(client.ask(method, params.clone()).await, truth, "{method} {params}");
    }
    for absent in [json!("latest"), number(2), number(41)] {
        assert!(client.ask("eth_getBlockByNumber", json!([absent, true])).await.is_err(), "{absent}");
    }
    node.clear_faults();
    proxy.app.ready().await;
    ask_all(&client, &node, [2, 3, 40, 41, 60]).await;
}

#[tokio::test]
async fn what_the_node_has_pruned_is_answered_from_what_was_imported() {
    for pruned in [Pruned::Error4444, Pruned::Null] {
        let node = upstream::devchain().blocks(60, 2).run().await;
        let (file, data) = (exported(&node, "3..20").await, directory());
        import(&file, &data).await;
        let direct = client::at(&node.url());
        let truth = direct.ask("eth_getBlockByNumber", json!([number(7), true])).await;
        node.prune_below(30, pruned);
        let proxy = start(&node, &data, true).await;
        let client = client::http(&proxy);
        confirmed(&proxy).await;
        assert_eq!(client.ask("eth_getBlockByNumber", json!([number(7), true])).await, truth);
        // It is written to, as any.
        ask_all(&client, &node, [35]).await;
        kept(&proxy, "disk", 2).await;
        proxy.app.stop().await;
        node.fail(Fault::Status(503)).always();
        let alone = start(&node, &data, false).await;
        let last = client::http(&alone).ask("eth_getBlockByNumber", json!([number(35), true])).await;
        assert!(last.is_ok_and(|text| text != "null"));
    }
}

#[tokio::test]
async fn whoever_asks_before_it_is_known_what_is_final_waits_for_that() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let (file, data) = (exported(&node, "3..20").await, directory());
    import(&file, &data).await;
    let ask = async |client: &Client, at| client.ask("eth_getBlockByNumber", json!([number(at), true])).await;
    let direct = client::at(&node.url());
    let truths = [ask(&direct, 7).await, ask(&direct, 8).await];
    node.prune_below(30, Pruned::Null);
    for _ in 0..10 {
        let proxy = start(&node, &data, true).await;
        let client = client::http(&proxy);
        // The head, and what is final.
        node.fail(Fault::Delay(Duration::from_millis(400))).on("eth_getBlockByNumber").times(2);
        let second = async {
            eventually("the head is known", async || proxy.metric("holdfast_head_number").await == 60).await;
            ask(&client, 8).await
        };
        let begun = Instant::now();
        let (first, second) = tokio::join!(ask(&client, 7), second);
        if [&first, &second] == truths.each_ref() {
            return;
        }
        // It is waited for, but not for ever: not where the machine stood still.
        assert!(begun.elapsed() > Duration::from_millis(1500), "{first:?} {second:?}");
        node.clear_faults();
        proxy.app.stop().await;
    }
    panic!("too slow each time");
}

#[tokio::test]
async fn a_file_that_was_damaged_is_refused_as_a_whole() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let whole = fs::read(exported(&node, "1..6").await).unwrap();
    let data = directory();
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..40 {
        let mut bytes = whole.clone();
        match round % 4 {
            0 => bytes.truncate(random.usize(..bytes.len())),
            1 => bytes.extend([0; 3]),
            _ => {
                for _ in 0..1 + random.usize(..4) {
                    let at = random.usize(..bytes.len());
                    bytes[at] ^= 1 << random.u8(..8);
                }
            }
        }
        let file = place();
        fs::write(&file, bytes).unwrap();
        let (code, said) = import(&file, &data).await;
        assert_eq!(code, Some(1), "{said}");
        let reasons = ["ends early", "damaged", "not a file that `holdfast export`", "of format"];
        assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
        assert!(!data.exists(), "nothing was touched");
    }
    let (code, said) = import(Path::new("nowhere.hf"), &data).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("nowhere.hf: it cannot be read"), "{said}");
}

#[tokio::test]
async fn a_file_with_anything_wrong_in_it_is_refused_there() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let (chain, blocks) = read(&fs::read(exported(&node, "1..6").await).unwrap());
    let changed = |at: usize, change: &dyn Fn(&mut Carried)| {
        let mut blocks = blocks.clone();
        change(&mut blocks[at]);
        blocks
    };
    let wrong_root = |value: &mut Value| value["stateRoot"] = json!(format!("0x{}", "77".repeat(32)));
    let wrong_log = |value: &mut Value| value[0]["gasUsed"] = json!("0x1");
    let foreign = blocks[3].clone();
    let garbage = Sealed::new(b"[[[[").unwrap();
    let forgeries: Vec<(&str, &str, Vec<Carried>)> = vec![
        ("block 3: ", "hash is", changed(2, &|block| block.block = bent(&block.block, wrong_root))),
        (
            "block 3: its receipts ",
            "cannot be proved",
            changed(2, &|block| {
                block.receipts = block.receipts.as_ref().map(|receipts| bent(receipts, wrong_log));
            }),
        ),
        ("block 3: its receipts ", "", changed(2, &|block| block.receipts.clone_from(&foreign.receipts))),
        ("block 3: ", "", changed(2, &|block| block.block = foreign.block.clone())),
        ("block 3: ", "", changed(2, &|block| block.block = garbage.clone())),
        (
            "block 3: ",
            "damaged",
            changed(2, &|block| block.block = Sealed::from(bytes::Bytes::from_static(b"?"))),
        ),
        ("block 3: ", "hash is", changed(2, &|block| block.hash = BlockHash([7; 32].into()))),
        ("block 9: ", "its own number is 6", changed(5, &|block| block.number = BlockNumber(9))),
        ("block 2: ", "does not come after", changed(2, &|block| block.number = BlockNumber(2))),
    ];
    for (block, why, forgery) in forgeries {
        let data = directory();
        let (code, said) = import(&written(chain, &forgery), &data).await;
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(block) && said.contains(why), "{block}{why}: {said}");
        if block.starts_with("block 3") {
            assert!(said.contains("the 2 blocks before it are proved, and stay in"), "{said}");
            assert_eq!(told(&data, chain).await, (vec![1, 2], Some(BlockNumber(2))));
        }
    }

    // A block of another branch proves itself, but not that it follows on.
    node.reorg(57, 57);
    let (_, branch) = read(&fs::read(exported(&node, "1..6").await).unwrap());
    let mixed = [&blocks[..4], &branch[4..]].concat();
    let (_, said) = import(&written(chain, &mixed), &directory()).await;
    assert!(said.contains("block 5: it follows on"), "{said}");
    // Nor is another chain's block one of this.
    let stranger = ChainKey { id: chain.id + 1, ..chain };
    let (_, said) = import(&written(stranger, &blocks), &directory()).await;
    assert!(said.contains("block 1: it cannot be proved"), "{said}");
    let (code, said) = import(&written(chain, &[]), &directory()).await;
    assert_eq!((code, said.contains("there is no block in it")), (Some(1), true), "{said}");
}

#[tokio::test]
async fn what_contradicts_the_directory_is_refused_before_anything_gets_in() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let one = exported(&node, "10..12").await;
    let chain = read(&fs::read(&one).unwrap()).0;
    let data = directory();
    assert_eq!(import(&one, &data).await.0, Some(0));
    node.reorg(55, 55);
    for (blocks, why) in [
        ("8..11", "block 10: it is 0x"),
        ("12..14", "block 12: it is 0x"),
        ("13..14", "block 13: it follows on"),
        ("7..9", "block 9: the next block in"),
    ] {
        let (code, said) = import(&exported(&node, blocks).await, &data).await;
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(why), "{why}: {said}");
    }
    let (numbers, finalized) = told(&data, chain).await;
    assert_eq!((numbers, finalized), (vec![10, 11, 12], Some(BlockNumber(12))));

    // What is known to be final there, and is not there itself.
    let disk = opened(&data);
    disk.note_finalized(chain, BlockNumber(20), BlockHash([1; 32].into())).await.unwrap();
    drop(disk);
    let (code, said) = import(&exported(&node, "21..22").await, &data).await;
    assert_eq!((code, said.contains("block 21: it follows on")), (Some(1), true), "{said}");
}

#[tokio::test]
async fn chains_are_kept_apart_and_one_can_be_insisted_on() {
    let one = upstream::devchain().blocks(60, 2).run().await;
    let other = upstream::devchain().config(|config| config.chain_id = 4242).blocks(60, 2).run().await;
    let (of_one, of_other) = (exported(&one, "1..9").await, exported(&other, "1..9").await);
    let data = directory();
    let at = data.to_str().unwrap();
    let refused = ["import", of_one.to_str().unwrap(), "--data", at, "--chain-id", "4242"];
    let (code, said) = run(&refused).await;
    assert_eq!((code, said.contains("but --chain-id is 4242")), (Some(1), true), "{said}");
    assert!(!data.exists());
    let (code, said) = run(&["import", of_one.to_str().unwrap()]).await;
    assert_eq!((code, said.contains("--data")), (Some(64), true), "{said}");

    assert_eq!(import(&of_one, &data).await.0, Some(0));
    let (code, said) =
        run(&["import", of_other.to_str().unwrap(), "--data", at, "--chain-id", "0x1092"]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("as long as no node answers"), "{said}");
    // Still of the first, where nobody says which.
    let truth = client::at(&one.url()).ask("eth_getBlockByNumber", json!([number(5), true])).await;
    one.fail(Fault::Status(503)).always();
    let proxy = start(&one, &data, false).await;
    let (code, said) = import_now(&of_one, &data).await;
    assert_eq!((code, said.contains(IN_USE)), (Some(1), true), "{said}");
    assert_eq!(client::http(&proxy).ask("eth_getBlockByNumber", json!([number(5), true])).await, truth);
    proxy.app.stop().await;
    let proxy = start(&other, &data, true).await;
    ask_all(&client::http(&proxy), &other, [5, 9]).await;
    assert!(proxy.metric(r#"holdfast_tier_reads_total{tier="disk",outcome="hit"}"#).await > 0);
}
