//! Consumers with a limit: mostly readers of logs, and a reader of blocks on disk. The upstream calls that Holdfast makes
//! for them.

use std::{thread, time::Duration};

use futures_util::future::{join, join_all};
use holdfast::devchain::RecordedCall;
use serde_json::{Value, json};
use tokio::time;

use crate::{
    consumers::{SLOT, World},
    patterns::{Follower, Kind, Rpc, number},
    restart, run,
    world::{STALENESS, is_upkeep},
};

/// Blocks that arrive while the consumers run.
const BLOCKS: u64 = 100;

/// Consumers of one kind that share one Holdfast.
const CLIENTS: usize = 10;

/// Filters of a graph-node for each block.
const FILTERS: usize = 50;

/// viem's default `pollingInterval`.
const POLL: Duration = Duration::from_secs(4);

/// Results of a workload.
struct Row {
    name: &'static str,
    asked: u64,
    upstream: Vec<RecordedCall>,
    /// Number of blocks or polls that the limit counts.
    count: usize,
    limit: Limit,
}

enum Limit {
    /// Upstream calls for each block, for all consumers together.
    Block(usize),
    /// Upstream calls for each block, for all consumers together, without refreshes of the head and of finality.
    Content(usize),
    /// Upstream calls, all without transactions.
    Light(usize),
    /// One refresh of the head for each poll of all consumers together, and no other call except for finality.
    HeadOnly,
}

/// Returns the table of all workloads, which run beside each other, and whether all are within their limits.
pub fn table() -> (String, bool) {
    let rows = thread::scope(|scope| {
        let rows = [
            scope.spawn(|| run(ponder())),
            scope.spawn(|| run(graph_node())),
            scope.spawn(|| run(viem())),
            scope.spawn(|| run(watchers())),
            scope.spawn(restarted),
        ];
        rows.map(|row| row.join().unwrap())
    });
    let mut table =
        "| consumers | client calls | upstream calls with Holdfast | of these, finality | limit |\n"
            .to_owned();
    table += "|---|---|---|---|---|\n";
    rows.iter().for_each(|row| table += &row.show());
    (table, rows.iter().all(Row::is_met))
}

/// Ten Ponder instances. Each reads a new block, its logs without a filter, and its receipts.
async fn ponder() -> Row {
    let mut world = introduced().await;
    let mut followers: Vec<_> = (0..CLIENTS).map(|_| Follower::new(Kind::Ponder)).collect();
    let mut asked = 0;
    for delay in delays() {
        world.mine();
        time::sleep(delay).await;
        let polls = followers.iter_mut().map(async |follower| {
            let mut client = world.client();
            follower.poll(&mut client).await;
            client.calls
        });
        asked += join_all(polls).await.iter().sum::<u64>();
        time::sleep(SLOT - delay).await;
    }
    let upstream = world.chain.calls();
    Row { name: "ten Ponder instances", asked, upstream, count: BLOCKS as usize, limit: Limit::Block(3) }
}

/// A graph-node whose subgraphs read the logs of each block with fifty filters.
async fn graph_node() -> Row {
    let mut world = introduced().await;
    world.calls = 0;
    for delay in delays() {
        world.mine();
        time::sleep(delay).await;
        let latest = world.call("eth_getBlockByNumber", json!(["latest", false])).await;
        world.call("eth_getBlockByHash", json!([latest["hash"], true])).await;
        for filter in filters(&world, &latest) {
            world.call("eth_getLogs", json!([filter])).await;
        }
        time::sleep(SLOT - delay).await;
    }
    let (asked, upstream) = (world.calls, world.chain.calls());
    let name = "graph-node, 50 filters a block";
    Row { name, asked, upstream, count: BLOCKS as usize, limit: Limit::Block(3) }
}

/// Returns different filters for a block: half match some of its logs, half name contracts without logs.
fn filters(world: &World, block: &Value) -> Vec<Value> {
    let logs = truth(world, "eth_getLogs", &json!([{ "blockHash": block["hash"] }]));
    let logs: Vec<&Value> = logs.as_array().into_iter().flatten().collect();
    let filter = |at: usize| {
        let mut filter = json!({ "fromBlock": block["number"], "toBlock": block["number"] });
        match logs.get(at) {
            // Contracts and events of every other subgraph occur in the block.
            Some(log) if at.is_multiple_of(2) => {
                filter["address"] = json!([log["address"], contract(at)]);
                if let Some(event) = log["topics"].get(0) {
                    filter["topics"] = json!([[event]]);
                }
            }
            _ => filter["address"] = json!([contract(at)]),
        }
        filter
    };
    (0..FILTERS).map(filter).collect()
}

/// Ten viem clients that watch events, beside an indexer that reads every block and its receipts.
async fn viem() -> Row {
    let mut world = introduced().await;
    let mut last = world.chain.head().number;
    let (mut asked, mut polls, mut upstream) = (0, 0, Vec::new());
    for _ in 0..BLOCKS {
        world.mine();
        time::sleep(STALENESS * 2).await;
        let block = world.call("eth_getBlockByNumber", json!(["latest", true])).await;
        world.call("eth_getBlockReceipts", json!([block["hash"]])).await;
        // Calls for the indexer do not count.
        world.chain.clear_calls();
        time::sleep(POLL - STALENESS * 2).await;
        for at in 0..SLOT.as_secs() / POLL.as_secs() {
            time::sleep(if at == 0 { Duration::ZERO } else { POLL }).await;
            let heads = join_all((0..CLIENTS).map(async |index| {
                let mut client = world.client();
                let head = watch_event(&mut client, contract(index), last).await;
                (head, client.calls)
            }))
            .await;
            last = heads[0].0;
            asked += heads.iter().map(|(_, calls)| calls).sum::<u64>();
            polls += 1;
        }
        upstream.extend(world.chain.calls());
        world.chain.clear_calls();
    }
    assert_eq!(last, world.chain.head().number);
    let name = "ten viem clients, `watchEvent` over cached blocks";
    Row { name, asked, upstream, count: polls, limit: Limit::HeadOnly }
}

/// Ten clients that poll all logs of the last four blocks, each at its own time.
async fn watchers() -> Row {
    let mut world = introduced().await;
    let mut asked = 0;
    for _ in 0..BLOCKS {
        world.mine();
        for _ in 0..SLOT.as_secs() / POLL.as_secs() {
            let polls = (0..CLIENTS).map(async |at| {
                time::sleep(STALENESS.mul_f64(at as f64 / 4.0)).await;
                let mut client = world.client();
                let head = number(&json!({ "number": client.call("eth_blockNumber", json!([])).await }));
                let [from, to] = [head - 3, head].map(|number| format!("{number:#x}"));
                client.call("eth_getLogs", json!([{ "fromBlock": from, "toBlock": to }])).await;
                client.calls
            });
            let (calls, ()) = join(join_all(polls), time::sleep(POLL)).await;
            asked += calls.iter().sum::<u64>();
        }
    }
    let upstream = world.chain.calls();
    let name = "ten watchers of the last four blocks";
    Row { name, asked, upstream, count: BLOCKS as usize, limit: Limit::Content(3) }
}

/// A reader of all blocks on disk, after a restart.
fn restarted() -> Row {
    let upstream = restart::walk();
    let (name, asked) = ("restart with 10,000 blocks on disk, read upwards", restart::BLOCKS);
    Row { name, asked, upstream, count: 1, limit: Limit::Light(20) }
}

/// Polls as viem's `watchEvent` does without filters of the node, and returns the number of the head.
async fn watch_event(rpc: &mut impl Rpc, address: String, last: u64) -> u64 {
    let head = rpc.call("eth_blockNumber", json!([])).await;
    let number = number(&json!({ "number": head }));
    if number > last {
        let from = format!("{:#x}", last + 1);
        let filter = json!({ "address": address, "fromBlock": from, "toBlock": head });
        rpc.call("eth_getLogs", json!([filter])).await;
    }
    number
}

/// Returns for each block the time from its arrival at the node to the poll that finds it.
fn delays() -> impl Iterator<Item = Duration> {
    let mut random = fastrand::Rng::with_seed(7);
    (0..BLOCKS).map(move |_| SLOT / 4 + SLOT.mul_f64(random.f64()) / 2)
}

/// Returns a world whose proxy knows its node, so that only later calls count.
async fn introduced() -> World {
    let mut world = World::new();
    world.call("eth_getBlockByNumber", json!(["latest", false])).await;
    time::sleep(SLOT).await;
    world.chain.clear_calls();
    world
}

/// Returns the address of a contract that emits no logs.
fn contract(at: usize) -> String {
    format!("0x{:040x}", at + 1)
}

fn truth(world: &World, method: &str, params: &Value) -> Value {
    serde_json::from_slice(&world.chain.answer(method, params).unwrap()).unwrap()
}

// === impl Row ===

impl Row {
    /// Returns the number of calls for finality: the finalized block, and the previous one, which the node confirms.
    fn finality(&self) -> usize {
        self.upstream.iter().filter(|call| is_upkeep(call) && !call.params.contains("latest")).count()
    }

    /// Returns the number of calls for blocks, receipts and logs.
    fn content(&self) -> usize {
        self.upstream.iter().filter(|call| !is_upkeep(call)).count()
    }

    fn is_met(&self) -> bool {
        match self.limit {
            Limit::Block(limit) => self.upstream.len() <= limit * self.count,
            Limit::Content(limit) => self.content() <= limit * self.count,
            Limit::Light(limit) => {
                self.upstream.len() <= limit && self.upstream.iter().all(|call| !call.params.contains("true"))
            }
            Limit::HeadOnly => {
                self.upstream.len() - self.finality() <= self.count && self.upstream.iter().all(is_upkeep)
            }
        }
    }

    fn show(&self) -> String {
        let limit = match self.limit {
            Limit::Block(limit) => format!("{limit} a block"),
            Limit::Content(limit) => format!("{limit} a block for content ({})", self.content()),
            Limit::Light(limit) => format!("{limit}, all without transactions"),
            Limit::HeadOnly => "head only, once a poll".to_owned(),
        };
        let verdict = if self.is_met() { "met" } else { "**missed**" };
        format!(
            "| {} | {} | {} | {} | {limit}: {verdict} |\n",
            self.name,
            self.asked,
            self.upstream.len(),
            self.finality(),
        )
    }
}
