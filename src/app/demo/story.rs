//! A miss and a hit; a reorg, and the answers before and after it.

use std::time::Duration;

use serde_json::json;
use tokio::time::{self, Instant};

use super::client::{Client, DemoError, Exchange};
use crate::devchain::DevChain;

/// Numbers of blocks that a reorg can replace, by preference. The demo takes one for which the lowest replaced block
/// contains a transaction, if there is one.
const DEPTHS: [u64; 3] = [2, 3, 1];

/// Time between two calls that wait for the answer after a reorg. Long enough that these calls, which are hits, do not
/// improve the score much.
const POLL: Duration = Duration::from_millis(50);

/// Longest wait for the answer after a reorg. `chain.max_staleness` is 1 s in the demo; the rest is for a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// A reorg that the demo has staged, and the answers around it.
#[derive(Clone, Debug)]
pub struct StagedReorg {
    /// Number of blocks that left the canonical chain.
    pub depth: u64,
    /// Answers to `eth_getBlockByNumber` for the lowest replaced block, before and after.
    pub block: [Exchange; 2],
    /// Answers to `eth_getTransactionReceipt` for a transaction of that block, before and after.
    pub receipt: Option<[Exchange; 2]>,
    /// Answer to `eth_getBlockByHash` for the replaced block, after the reorg.
    pub orphan: Exchange,
    /// Time from the reorg to the last call that got the old block; zero if none did.
    pub stale: Duration,
}

/// Asks for the same block twice. No other client of a demo that has just started has asked for it.
pub(super) async fn miss_and_hit(client: &mut Client, number: u64) -> Result<[Exchange; 2], DemoError> {
    let params = json!([format!("{number:#x}"), true]);
    let first = client.ask("eth_getBlockByNumber", params.clone()).await?;
    Ok([first, client.ask("eth_getBlockByNumber", params).await?])
}

/// Replaces the newest blocks. The new branch is one block longer: its first block is empty, and each further block has
/// the transactions of the old block before it, so that all replaced transactions move up by one block.
///
/// Only the caller mines blocks; a block that is mined meanwhile would become part of the reorg.
pub(super) async fn reorg(chain: &DevChain, client: &mut Client) -> Result<StagedReorg, DemoError> {
    let head = chain.head().number;
    let lowest = |depth: u64| chain.hash_at(head + 1 - depth).map(|hash| chain.transactions_of(hash));
    let has_transactions = |depth: &u64| lowest(*depth).is_some_and(|transactions| !transactions.is_empty());
    let depth = DEPTHS.into_iter().find(has_transactions).unwrap_or(DEPTHS[0]);
    let by_number = json!([format!("{:#x}", head + 1 - depth), false]);
    let by_transaction = lowest(depth).and_then(|hashes| Some(json!([*hashes.first()?])));

    let block = cached(client, "eth_getBlockByNumber", by_number.clone()).await?;
    let receipt = match &by_transaction {
        Some(params) => Some(cached(client, "eth_getTransactionReceipt", params.clone()).await?),
        None => None,
    };

    let old = (head + 1 - depth..=head).filter_map(|number| chain.hash_at(number)).map(|hash| {
        let hashes = chain.transactions_of(hash);
        hashes.into_iter().filter_map(|hash| chain.transaction(hash)).collect::<Vec<_>>()
    });
    chain.reorg_with(depth, std::iter::once(Vec::new()).chain(old).collect());
    let begun = Instant::now();

    let (after, stale) = changed(client, &block, "hash", begun).await?;
    let receipt = match receipt {
        Some(before) => {
            let (after, _) = changed(client, &before, "blockHash", begun).await?;
            Some([before, after])
        }
        None => None,
    };
    let orphan = client.ask("eth_getBlockByHash", json!([block.result["hash"], false])).await?;
    Ok(StagedReorg { depth, block: [block, after], receipt, orphan, stale })
}

/// Asks twice, so that the answer is cached, and returns the second answer.
async fn cached(
    client: &mut Client,
    method: &'static str,
    params: serde_json::Value,
) -> Result<Exchange, DemoError> {
    client.ask(method, params.clone()).await?;
    client.ask(method, params).await
}

/// Repeats a call until a member of the result is another than before, or until [`PATIENCE`] is over. Returns the last
/// answer, and the time from `begun` to the last call that was answered as before.
async fn changed(
    client: &mut Client,
    before: &Exchange,
    member: &str,
    begun: Instant,
) -> Result<(Exchange, Duration), DemoError> {
    let mut stale = Duration::ZERO;
    loop {
        let sent = begun.elapsed();
        let now = client.ask(before.method, before.params.clone()).await?;
        let is_new = now.result[member].is_string() && now.result[member] != before.result[member];
        if is_new || begun.elapsed() > PATIENCE {
            return Ok((now, stale));
        }
        stale = sent;
        time::sleep(POLL).await;
    }
}
