//! A fuzz of replicas over HTTP: three nodes of one chain behind a balancer, each with a lag of its own, and blocks that are
//! final two to eleven blocks below the head. So a replica may lack the finalized block, or still show an orphan at its
//! number, for as long as it lags.
//!
//! The rules, for answers that are no errors:
//! - In one batch, a tag means one block, and `finalized`, `safe` and `latest` are on one branch in this order.
//! - A block, transaction or receipt that is final is never `null` after the proxy has shown its block.
//! - `latest` and `eth_blockNumber` are never below the finalized block that the proxy has shown.
//! - Content is the true content of the block that it names. By number, tag or transaction, this block is final, or a replica
//!   showed it at its number within the last seconds.
//! - Logs are those of one such branch, unless a node searched for them (`proof=none`).
//!
//! The only error is −32010, and a node's error about logs. A replica that lags never raises the alarm and never suspends
//! canonicity. The seed decides the events, but the real clock decides their order, so a seed repeats a run only roughly.

mod call;
mod judge;
mod nodes;

use std::{ops::Range, sync::Arc, time::Duration};

use fastrand::Rng;
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{self, Instant};

use self::{
    call::{At, Call, SentCall},
    judge::{Judge, Report},
    nodes::{Balance, Nodes},
};
use crate::support::{client::Client, process, seed};

const CLIENTS: usize = 3;

/// Log lines of the alarm and of suspension.
const FORBIDDEN: [&str; 2] = ["ALARM", "the upstream no longer has the finalized block"];

/// Runs replicas, a proxy and clients for this long.
async fn run(position: u64, seed: u64, length: Duration) -> Report {
    let mut rng = Rng::with_seed(seed.wrapping_add(position));
    let balance = if position.is_multiple_of(2) { Balance::Connections } else { Balance::Requests };
    let finality = 2 + usize::try_from(position / 2 % 10).unwrap();
    let nodes = Arc::new(Nodes::new(finality, &mut rng));
    let judge = Judge::new(nodes.clone(), format!("{balance:?}, finality {finality}"));
    let url = nodes.serve(balance, rng.fork()).await;
    let proxy = process::serve_url(&url).run().await;
    let clients: Vec<_> =
        (0..CLIENTS).map(|_| send_calls(proxy.client(), &nodes, &judge, rng.fork())).collect();
    // All of them run until the time is up.
    let _ = time::timeout(length, async { tokio::join!(nodes.drive(rng.fork()), join_all(clients)) }).await;
    let said = proxy.said();
    let forbidden = said.lines().filter(|line| FORBIDDEN.iter().any(|text| line.contains(text)));
    let alarms = proxy.metric("holdfast_finality_alarms_total").await;
    judge.report(alarms, forbidden)
}

/// Sends random calls, a third of them as batches.
async fn send_calls(client: Client, nodes: &Nodes, judge: &Judge, mut rng: Rng) {
    loop {
        time::sleep(Duration::from_millis(rng.u64(10..100))).await;
        let count = if rng.u8(..3) == 0 { rng.usize(2..6) } else { 1 };
        let calls: Vec<_> = (0..count).map(|_| any_call(nodes, &mut rng, count > 1)).collect();
        let (at, finalized) = (Instant::now(), judge.finalized());
        let sent: Vec<_> = calls.into_iter().map(|call| SentCall { call, at, finalized }).collect();
        let bodies: Vec<_> = sent.iter().map(|sent| sent.call.body()).collect();
        let body = if count == 1 { bodies[0].to_string() } else { json!(bodies).to_string() };
        let response = client.send(body).await;
        let replies = response.json();
        let replies = replies.as_array().cloned().unwrap_or_else(|| vec![replies]);
        judge.note(&sent, &replies, response.header("cache-status").unwrap_or_default());
    }
}

/// Returns a call about a tag or a recent block, orphaned or not.
fn any_call(nodes: &Nodes, rng: &mut Rng, is_batch: bool) -> Call {
    let (number, block) = nodes.any_block(rng);
    let tag = At::Tag(["latest", "safe", "finalized"][rng.usize(..3)]);
    let at = if rng.bool() { tag } else { At::Number(number + rng.u64(..2)) };
    let transaction = nodes.master.transactions_of(block).into_iter().next();
    match (rng.u8(..12), transaction) {
        (0, _) => Call::BlockNumber,
        (1 | 2, Some(hash)) => Call::Transaction(hash),
        (3 | 4, Some(hash)) => Call::Receipt(hash),
        (5, _) => Call::Receipts(at),
        (6, _) => Call::Block(At::Hash(block), rng.bool()),
        // The `cache-status` of a batch does not name the source of its logs.
        (7 | 8, _) if !is_batch => Call::Logs(number.saturating_sub(rng.u64(..6)), number),
        (7..=9, _) => Call::Block(tag, rng.bool()),
        _ => Call::Block(at, rng.bool()),
    }
}

/// Returns the number of answers while a replica contradicted F.
async fn no_run_is_wrong(runs: Range<u64>, length: Duration) -> u64 {
    let seed = seed();
    let reports = join_all(runs.map(|position| tokio::spawn(run(position, seed, length)))).await;
    let reports: Vec<_> = reports.into_iter().map(|report| report.unwrap()).collect();
    reports.iter().for_each(|report| println!("{report}"));
    let wrong: Vec<_> = reports.iter().flat_map(|report| &report.wrong).collect();
    let bad = reports.iter().filter(|report| !report.wrong.is_empty()).count();
    let first: String = wrong.iter().take(20).map(|wrong| format!("\n{wrong}")).collect();
    assert!(
        wrong.is_empty(),
        "HOLDFAST_SEED={seed}: {} wrong in {bad} of {} runs:{first}",
        wrong.len(),
        reports.len()
    );
    reports.iter().map(|report| report.contradicted).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs in tests/run --all"]
async fn lagging_replicas_cause_no_wrong_answer_in_twenty_runs() {
    let contradicted = no_run_is_wrong(0..20, Duration::from_secs(60)).await;
    assert!(contradicted > 0, "no replica lacked the finalized block");
}
