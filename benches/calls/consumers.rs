//! Real consumers one by one: their calls, and the upstream calls that Holdfast makes for them.

use std::time::Duration;

use alloy_eips::Encodable2718;
use alloy_primitives::{TxHash, hex};
use holdfast::{
    config::Config,
    devchain::{self, DevChain},
};
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use crate::{
    chains,
    in_memory::{self, InMemory},
    patterns::{Call, Follower, Kind, Rpc, RpcKind, blockscout},
    world::STALENESS,
};

/// Slot time of Ethereum.
pub const SLOT: Duration = Duration::from_secs(12);

/// Blocks that arrive while a consumer runs.
const BLOCKS: u64 = 30;

const TRANSACTIONS: usize = 50;

/// A method that the development chain lacks. Holdfast forwards it, so another forwarded method can stand for it.
const LACKING: &str = "eth_getStorageAt";

/// A chain, the proxy in front of it, and the number of calls of its consumers.
pub struct World {
    pub chain: DevChain,
    program: InMemory,
    changed: Instant,
    pub calls: u64,
}

/// How a library learns that a transaction is mined.
#[derive(Clone, Copy)]
enum Wait {
    /// Polls the receipt.
    Receipt,
    /// Polls the number of the head, and reads the receipt after each new block.
    Head,
    /// Polls the number of the head, and reads the hashes of each new block.
    Blocks,
}

/// A transaction that a library waits for.
struct Sent {
    hash: TxHash,
    /// Number of the head at the last poll.
    head: Value,
}

/// Returns the table of all consumers.
pub async fn table() -> String {
    let mut table = "| consumer | calls of one | upstream calls with Holdfast | calls of three | upstream calls with Holdfast |\n"
        .to_owned();
    table += "|---|---|---|---|---|\n";
    for (name, kind, every) in [
        ("op-node, `--l1.rpckind=standard`", Kind::OpNode(RpcKind::Standard), 12_000),
        ("op-node, `--l1.rpckind=basic`", Kind::OpNode(RpcKind::Basic), 12_000),
        ("op-node, `--l1.rpckind=debug_geth`", Kind::OpNode(RpcKind::DebugGeth), 12_000),
        ("kona-host, op-succinct", Kind::KonaHost, 12_000),
        ("Ponder", Kind::Ponder, 1_000),
        ("graph-node, two subgraphs", Kind::GraphNode, 500),
        ("Blockscout, new blocks", Kind::Blockscout, 6_000),
    ] {
        table += &row(name, async |count| follow(kind, count, Duration::from_millis(every)).await).await;
    }
    table += &row("Blockscout, catch-up", catch_up).await;
    for (name, wait, every) in [
        ("viem, ethers: 20 transactions", Wait::Head, 4_000),
        ("web3.js, ethclient: 20 transactions", Wait::Receipt, 1_000),
        ("web3.py: 20 transactions", Wait::Receipt, 100),
        ("alloy, cast: 20 transactions", Wait::Blocks, 7_000),
    ] {
        table += &row(name, async |count| send(wait, count, Duration::from_millis(every)).await).await;
    }
    table += &row("anvil, Hardhat: a fork at one block", fork).await;
    table
}

/// Runs a workload with one and with three consumers.
async fn row(name: &str, run: impl AsyncFn(usize) -> World) -> String {
    let [one, three] = [run(1).await, run(3).await];
    format!("| {name} | {} | {} | {} | {} |\n", one.calls, one.upstream(), three.calls, three.upstream())
}

/// Polls the head and reads new blocks.
async fn follow(kind: Kind, count: usize, every: Duration) -> World {
    let mut world = World::new();
    let mut followers: Vec<_> = (0..count).map(|_| Follower::new(kind)).collect();
    for _ in 0..BLOCKS {
        world.mine();
        for _ in 0..SLOT.as_millis() / every.as_millis() {
            time::sleep(every / 2).await;
            for follower in &mut followers {
                follower.poll(&mut world).await;
            }
            time::sleep(every / 2).await;
        }
    }
    world
}

/// Reads old blocks in batches of ten, from the newest to the oldest.
async fn catch_up(count: usize) -> World {
    let mut world = World::new();
    for last in (10..=BLOCKS).rev().step_by(10) {
        for _ in 0..count {
            blockscout(&mut world, last - 9, last).await;
            time::sleep(Duration::from_secs(1)).await;
        }
    }
    world
}

/// Sends a transaction every other slot, and waits until it is mined.
async fn send(wait: Wait, count: usize, every: Duration) -> World {
    let mut world = World::new();
    for _ in 0..20 {
        time::sleep(SLOT / 2).await;
        let mut waiting = Vec::new();
        for transaction in world.chain.generate(count) {
            let raw = format!("0x{}", hex::encode(transaction.encoded_2718()));
            world.call("eth_sendRawTransaction", json!([raw])).await;
            waiting.push(Sent { hash: *transaction.tx_hash(), head: Value::Null });
        }
        world.changed = Instant::now();
        let (sent, mut is_mined) = (Instant::now(), false);
        while !waiting.is_empty() {
            time::sleep(every).await;
            if !is_mined && sent.elapsed() >= SLOT {
                world.mine();
                is_mined = true;
            }
            let mut still = Vec::new();
            for mut sent in waiting {
                if !sent.has_receipt(&mut world, wait).await {
                    still.push(sent);
                }
            }
            waiting = still;
        }
    }
    world
}

/// Runs the tests of a project five times against a fork at one block.
async fn fork(count: usize) -> World {
    let mut world = World::new();
    let number = format!("{BLOCKS:#x}");
    for _ in 0..5 * count {
        for method in ["eth_chainId", "net_version", "eth_gasPrice"] {
            world.call(method, json!([])).await;
        }
        world.call("eth_getBlockByNumber", json!([number, true])).await;
        for address in 0..10 {
            let address = format!("0x{address:040x}");
            for method in ["eth_getBalance", "eth_getTransactionCount", "eth_getCode"] {
                world.call(method, json!([address, number])).await;
            }
            world.call("eth_getStorageAt", json!([address, "0x0", number])).await;
        }
        time::sleep(Duration::from_secs(60)).await;
    }
    world
}

// === impl Sent ===

impl Sent {
    /// Polls once, and returns whether the library has the receipt.
    async fn has_receipt(&mut self, world: &mut World, wait: Wait) -> bool {
        if !matches!(wait, Wait::Receipt) {
            let head = world.call("eth_blockNumber", json!([])).await;
            if head == self.head {
                return false;
            }
            self.head = head;
        }
        if matches!(wait, Wait::Blocks) {
            let block = world.call("eth_getBlockByNumber", json!([self.head, false])).await;
            if !block["transactions"].as_array().unwrap().contains(&json!(self.hash)) {
                return false;
            }
        }
        !world.call("eth_getTransactionReceipt", json!([self.hash])).await.is_null()
    }
}

// === impl World ===

impl World {
    pub fn new() -> Self {
        let config = devchain::Config {
            keep_calls: 1_000_000,
            slot_seconds: SLOT.as_secs(),
            ..devchain::Config::default()
        };
        let chain = chains::chain(&config, BLOCKS as usize + 16, TRANSACTIONS);
        let program = in_memory::program(&chain, &Config::default());
        Self { chain, program, changed: Instant::now(), calls: 0 }
    }

    /// Returns another consumer of the same proxy, which counts its own calls.
    pub fn client(&self) -> Self {
        Self { chain: self.chain.clone(), program: self.program.clone(), calls: 0, ..*self }
    }

    pub fn mine(&mut self) {
        self.chain.mine(TRANSACTIONS);
        self.changed = Instant::now();
    }

    fn upstream(&self) -> usize {
        self.chain.calls().len()
    }
}

impl Rpc for World {
    async fn batch(&mut self, mut calls: Vec<Call>) -> Vec<Value> {
        self.calls += calls.len() as u64;
        for call in &mut calls {
            if call.0 == LACKING {
                *call = ("eth_gasPrice", json!([]));
            }
        }
        let truth = |(method, params): &Call| -> Value {
            serde_json::from_slice(&self.chain.answer(method, params).unwrap()).unwrap()
        };
        let is_write = calls[0].0 == "eth_sendRawTransaction";
        let is_settled = self.changed.elapsed() > STALENESS && !is_write;
        let truths: Option<Vec<_>> = is_settled.then(|| calls.iter().map(truth).collect());
        let answers = if let [(method, params)] = &calls[..] {
            vec![self.program.ask(method, params.clone()).await]
        } else {
            self.program.batch(&calls).await
        };
        if let Some(truths) = truths {
            assert_eq!(answers, truths, "{calls:?}");
        }
        answers
    }
}
