//! The demo's own traffic: an indexer, an explorer and a wallet.
//!
//! Each has a connection of its own, and learns of the chain only through the answers that it gets. Failed calls are
//! not retried: the next round sends new ones.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use tokio::time;

use super::client::{Client, DemoError, quantity};

/// Time between two rounds of the indexer and of the explorer's visitors.
const ROUND: Duration = Duration::from_millis(500);

/// Time between two polls of the wallet. Wallets poll every few seconds; a demo has to show it sooner.
const WALLET_ROUND: Duration = Duration::from_secs(1);

/// Number of transactions that the explorer lists, about a minute of them.
const LISTED: usize = 128;

/// Number of listed transactions that visitors open in each round.
const OPENED: usize = 3;

/// Sends calls for ever. The wallet polls the balance of `account`.
pub(super) async fn send(proxy: SocketAddr, account: String) {
    tokio::join!(index(Client::new(proxy)), explore(Client::new(proxy)), hold(Client::new(proxy), &account));
}

/// Polls the head, and reads each new block with its receipts and logs.
async fn index(mut client: Client) {
    let mut next = None;
    loop {
        time::sleep(ROUND).await;
        // Continues with the same block in the next round if a call fails.
        let _ = index_round(&mut client, &mut next).await;
    }
}

async fn index_round(client: &mut Client, next: &mut Option<u64>) -> Result<(), DemoError> {
    let head = quantity(&client.ask("eth_blockNumber", json!([])).await?.result).unwrap_or_default();
    let first = *next.get_or_insert(head);
    for number in first..=head {
        let at = format!("{number:#x}");
        client.ask("eth_getBlockByNumber", json!([at, true])).await?;
        client.ask("eth_getBlockReceipts", json!([at])).await?;
        client.ask("eth_getLogs", json!([{ "fromBlock": at, "toBlock": at }])).await?;
        *next = Some(number + 1);
    }
    Ok(())
}

/// Lists the transactions of new blocks, and opens some of the list with their receipts.
async fn explore(mut client: Client) {
    let mut listed = VecDeque::new();
    loop {
        time::sleep(ROUND).await;
        let _ = explore_round(&mut client, &mut listed).await;
    }
}

async fn explore_round(client: &mut Client, listed: &mut VecDeque<Value>) -> Result<(), DemoError> {
    let mut head = client.ask("eth_getBlockByNumber", json!(["latest", false])).await?;
    if let Value::Array(transactions) = head.result["transactions"].take() {
        let is_listed = |transaction: &Value| listed.iter().rev().any(|other| other == transaction);
        let new: Vec<_> = transactions.into_iter().filter(|transaction| !is_listed(transaction)).collect();
        listed.extend(new);
        listed.drain(..listed.len().saturating_sub(LISTED));
    }
    for _ in 0..OPENED.min(listed.len()) {
        let opened = json!([listed[fastrand::usize(..listed.len())]]);
        client.ask("eth_getTransactionByHash", opened.clone()).await?;
        client.ask("eth_getTransactionReceipt", opened).await?;
    }
    Ok(())
}

/// Polls the chain id, the head, a balance and a receipt.
async fn hold(mut client: Client, account: &str) {
    loop {
        time::sleep(WALLET_ROUND).await;
        let _ = hold_round(&mut client, account).await;
    }
}

async fn hold_round(client: &mut Client, account: &str) -> Result<(), DemoError> {
    client.ask("eth_chainId", json!([])).await?;
    let head = client.ask("eth_getBlockByNumber", json!(["latest", false])).await?;
    client.ask("eth_getBalance", json!([account, "latest"])).await?;
    if let Some(sent) = head.result["transactions"].get(0) {
        client.ask("eth_getTransactionReceipt", json!([sent])).await?;
    }
    Ok(())
}
