//! The block of a receipt, read by real clients on a chain with short blocks. As soon as a client has a receipt, it can
//! read the block by number and by hash, and the head is at least as high.

use std::{path::Path, process::Command};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{
    anvil::Anvil,
    client,
    program::{output, succeed, text},
    proxy::{self, Proxy},
    tools,
};

/// Rounds and accounts of a short test, and of one with 200 transactions. In a round, each account sends a transaction.
/// Each round takes one or two blocks.
const FEW: (usize, usize) = (6, 5);
const MANY: (usize, usize) = (20, 10);

/// Starts a node, and a proxy with its default settings. The node has its own chain id, because Holdfast asks for the head
/// in each call on development chains.
async fn setting(test: &str) -> Option<(Anvil, Proxy)> {
    let binary = tools::anvil(test)?;
    let anvil = Anvil::start(binary, &["--chain-id", "7777", "--block-time", "1.2"]).await;
    let proxy = proxy::new().upstream_url(anvil.url()).run().await;
    Some((anvil, proxy))
}

/// Runs a script of `tests/clients`. The script fails if a read fell behind a receipt.
async fn run(test: &str, script: Option<Command>, (rounds, accounts): (usize, usize)) {
    let Some(mut command) = script else { return };
    let Some((_anvil, proxy)) = setting(test).await else { return };
    command.args([proxy.url(), rounds.to_string(), accounts.to_string()]);
    succeed(command).await;
}

#[tokio::test]
async fn clients_read_the_block_of_a_receipt() {
    const TEST: &str = "clients_read_the_block_of_a_receipt";
    run(TEST, tools::node_script(TEST, "viem", "confirm_viem.mjs"), FEW).await;
    run(TEST, tools::node_script(TEST, "ethers", "confirm_ethers.mjs"), FEW).await;
}

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn clients_read_the_blocks_of_200_receipts() {
    const TEST: &str = "clients_read_the_blocks_of_200_receipts";
    run(TEST, tools::node_script(TEST, "viem", "confirm_viem.mjs"), MANY).await;
    run(TEST, tools::node_script(TEST, "ethers", "confirm_ethers.mjs"), MANY).await;
    run(TEST, tools::python_script(TEST, "confirm_web3py.py"), MANY).await;
}

/// Runs `cast`, and returns its output.
async fn print(cast: &Path, url: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(cast);
    command.args(arguments).args(["--rpc-url", url]);
    let ran = output(command).await;
    let printed = text(&ran.stdout).trim().to_owned();
    if ran.status.success() { Ok(printed) } else { Err(format!("{arguments:?}: {}", text(&ran.stderr))) }
}

/// Sends a transaction from an account, and reads its block, each time in another order. Returns the reads that fell
/// behind the receipt.
async fn confirm(cast: &Path, url: &str, account: usize, address: &str) -> Vec<String> {
    let send = ["send", address, "--value", "1", "--from", address, "--unlocked", "--json"];
    let receipt: Value = serde_json::from_str(&print(cast, url, &send).await.unwrap()).unwrap();
    let quantity = receipt["blockNumber"].as_str().unwrap().strip_prefix("0x").unwrap();
    let number = u64::from_str_radix(quantity, 16).unwrap();
    let (decimal, hash) = (number.to_string(), receipt["blockHash"].as_str().unwrap());
    let mut reads = [
        ["block", &decimal, "--field", "hash"].to_vec(),
        ["block-number"].to_vec(),
        ["block", hash, "--field", "hash"].to_vec(),
    ];
    reads.rotate_left(account % 3);
    let mut wrong = Vec::new();
    for read in reads {
        match print(cast, url, &read).await {
            Ok(head) if read.len() == 1 && head.parse::<u64>().unwrap() >= number => {}
            Ok(block) if block == hash => {}
            Ok(other) => wrong.push(format!("{read:?} printed {other} after {receipt}")),
            Err(error) => wrong.push(error),
        }
    }
    wrong
}

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn cast_reads_the_blocks_of_200_receipts() {
    const TEST: &str = "cast_reads_the_blocks_of_200_receipts";
    let Some(cast) = tools::cast(TEST) else { return };
    let Some((anvil, proxy)) = setting(TEST).await else { return };
    let addresses = client::at(anvil.url()).call("eth_accounts", json!([])).await.json();
    let (rounds, accounts) = MANY;
    let mut wrong = Vec::new();
    for _ in 0..rounds {
        let mut round = JoinSet::new();
        for account in 0..accounts {
            let address = addresses["result"][account].as_str().unwrap().to_owned();
            let (cast, url) = (cast.clone(), proxy.url());
            round.spawn(async move { confirm(&cast, &url, account, &address).await });
        }
        wrong.extend(round.join_all().await.into_iter().flatten());
    }
    println!("{TEST}: {} transactions, {} wrong answers", rounds * accounts, wrong.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}
