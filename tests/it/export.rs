//! Final blocks become one file, proved, or none at all.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use holdfast::{
    cache::tier::{ArchiveReader, Carried, ChainKey, Sealed},
    devchain::{Fault, Lie},
    eth::{BlockHash, BlockNumber},
};
use serde_json::json;

use crate::support::{
    eventually,
    program::{Program, file, holdfast, output, text},
    proxy,
    upstream::{self, Node},
};

/// The exit code, and all that was said.
pub(super) type Ran = (Option<i32>, String);

/// Where a file could be.
pub(super) fn place() -> PathBuf {
    file("here", "").with_file_name("blocks.hf")
}

pub(super) async fn run(arguments: &[&str]) -> Ran {
    let ran = output(holdfast(arguments)).await;
    let said = text(&ran.stdout) + &text(&ran.stderr);
    assert!(!said.contains("panicked"), "{said}");
    (ran.status.code(), said)
}

/// Exports these blocks with their receipts.
pub(super) async fn export(url: &str, blocks: &str, out: &Path) -> Ran {
    run(&["export", "--url", url, "--blocks", blocks, "--receipts", "--out", out.to_str().unwrap()]).await
}

pub(super) fn read(file: &[u8]) -> (ChainKey, Vec<Carried>) {
    let mut reader = ArchiveReader::begin(file).unwrap();
    let chain = reader.chain();
    let blocks = std::iter::from_fn(|| reader.next_block().unwrap()).collect();
    (chain, blocks)
}

/// A block as an export of this node has it.
fn carried(node: &Node, at: u64) -> (BlockNumber, BlockHash, Bytes) {
    let hash = node.hash_at(at).unwrap();
    (BlockNumber(at), BlockHash(hash.0.into()), node.block_json(hash, true).unwrap())
}

fn is_a_part_left(at: &Path) -> bool {
    let beside = fs::read_dir(at.parent().unwrap()).unwrap();
    beside.flatten().any(|entry| entry.file_name().to_string_lossy().ends_with(".tmp"))
}

/// No file and no part of one.
fn is_nothing_left(at: &Path) -> bool {
    !at.exists() && !is_a_part_left(at)
}

#[tokio::test]
async fn what_is_final_is_exported_from_an_instance_as_from_a_node() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let (from_node, from_proxy) = (place(), place());
    let (code, said) = export(&node.url(), "3..finalized", &from_node).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("42 blocks with their receipts of chain"), "{said}");
    let (code, said) = export(&proxy.url(), "3..44", &from_proxy).await;
    assert_eq!(code, Some(0), "{said}");
    let written = fs::read(&from_node).unwrap();
    assert_eq!(written, fs::read(&from_proxy).unwrap());
    let (chain, blocks) = read(&written);
    assert_eq!((chain.id, chain.genesis), (node.config().chain_id, carried(&node, 0).1.0));
    assert_eq!(blocks.len(), 42);
    for (block, at) in blocks.iter().zip(3..) {
        let told = (block.number, block.hash, block.block.open().unwrap());
        assert_eq!(told, carried(&node, at));
        assert!(block.receipts.as_ref().is_some_and(|receipts| receipts.open().is_ok()));
    }
    // Without receipts, and to standard output: nothing else is there.
    let ran = output(holdfast(&["export", "--url", &node.url(), "--blocks", "3..5", "--out", "-"])).await;
    let streamed = read(&ran.stdout).1;
    assert_eq!(
        streamed.iter().map(|block| block.receipts.clone()).collect::<Vec<Option<Sealed>>>(),
        [None, None, None]
    );
    assert!(text(&ran.stderr).contains("3 blocks of chain"), "{}", text(&ran.stderr));
}

#[tokio::test]
async fn what_is_not_final_is_refused_and_what_is_there_is_not_replaced() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let at = place();
    for blocks in ["40..45", "45..finalized", "100..200"] {
        let (code, said) = export(&node.url(), blocks, &at).await;
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("is not final yet: blocks can be exported up to 44"), "{said}");
        assert!(is_nothing_left(&at));
    }
    assert_eq!(export(&node.url(), "1..2", &at).await.0, Some(0));
    let written = fs::read(&at).unwrap();
    let (code, said) = export(&node.url(), "1..3", &at).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("is there already: --force replaces it"), "{said}");
    assert_eq!(fs::read(&at).unwrap(), written);
    let out = at.to_str().unwrap();
    let forced = ["export", "--url", &node.url(), "--blocks", "1..3", "--out", out, "--force"];
    assert_eq!(run(&forced).await.0, Some(0));
    assert_eq!(read(&fs::read(&at).unwrap()).1.len(), 3);
    assert!(!is_a_part_left(&at));
    // What is no ordinary file is not replaced by one.
    let link = place();
    std::os::unix::fs::symlink(&at, &link).unwrap();
    let forced =
        ["export", "--url", &node.url(), "--blocks", "1..3", "--out", link.to_str().unwrap(), "--force"];
    let (code, said) = run(&forced).await;
    assert_eq!((code, said.contains("no ordinary file")), (Some(1), true), "{said}");

    let other = place();
    let out = other.to_str().unwrap();
    for (arguments, why) in [
        (vec!["--blocks", "5..3", "--out", out], "5 is after 3"),
        (vec!["--blocks", "3..latest", "--out", out], "19000000..finalized"),
        (vec!["--blocks", "3..5"], "--out"),
        (vec!["--blocks", "3..5", "--out", out, "--url", "ws://127.0.0.1:1"], "--url"),
    ] {
        let (code, said) = run(&[&["export"], &*arguments].concat()).await;
        assert_eq!(code, Some(64), "{said}");
        assert!(said.contains(why), "{said}");
        assert!(is_nothing_left(&other));
    }
}

#[tokio::test]
async fn what_cannot_be_proved_is_not_exported() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let at = place();
    let wrong = json!(format!("0x{}", "77".repeat(32)));
    for (method, field, why) in [
        ("eth_getBlockByNumber", "stateRoot", "it cannot be proved by Ethereum's rules: "),
        ("eth_getBlockReceipts", "gasUsed", "its receipts cannot be proved by Ethereum's rules: "),
    ] {
        let lie = if field == "gasUsed" { json!("0x1") } else { wrong.clone() };
        node.fail(Lie::Field(field.to_owned(), lie)).on(method).always();
        let (code, said) = export(&node.url(), "7..9", &at).await;
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("block 7: ") && said.contains(why), "{said}");
        assert!(is_nothing_left(&at));
        node.clear_faults();
    }
    let development = upstream::devchain().config(|config| config.chain_id = 1337).blocks(60, 1).run().await;
    let (code, said) = export(&development.url(), "1..2", &at).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("nothing of it is final"), "{said}");
}

#[tokio::test]
async fn an_export_that_is_stopped_leaves_nothing() {
    let node = upstream::devchain().blocks(60, 1).run().await;
    node.fail(Fault::Delay(Duration::from_millis(100))).on("eth_getBlockByNumber").always();
    let at = place();
    let out = at.to_str().unwrap();
    let arguments = ["export", "--url", &node.url(), "--blocks", "1..40", "--concurrency", "1", "--out", out];
    let mut program = Program::start(holdfast(&arguments));
    eventually("some are read", async || node.count("eth_getBlockByNumber") > 5).await;
    assert!(!is_nothing_left(&at));
    program.signal(rustix::process::Signal::INT);
    assert_eq!(program.exit_code().await, Some(130));
    assert!(is_nothing_left(&at));
}
