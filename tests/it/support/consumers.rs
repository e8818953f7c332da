//! Call patterns of real consumers, for tests against a real node and for the benchmark of upstream calls.

use serde_json::{Value, json};

/// Method and parameters.
pub type Call = (&'static str, Value);

/// A connection on which a consumer sends its calls.
pub trait Rpc {
    /// Sends the calls in one request and returns their results in order.
    async fn batch(&mut self, calls: Vec<Call>) -> Vec<Value>;

    async fn call(&mut self, method: &'static str, params: Value) -> Value {
        self.batch(vec![(method, params)]).await.remove(0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// op-node's L1 client (optimism: `op-service/sources/eth_client.go`).
    OpNode(RpcKind),
    /// kona-host, also inside op-succinct (kona: `bin/host/src/single/handler.rs`).
    KonaHost,
    /// Ponder's realtime sync (ponder: `packages/core/src/sync-realtime/index.ts`).
    Ponder,
    /// graph-node's block ingestor with two subgraphs (graph-node: `chain/ethereum/src/ingestor.rs`).
    GraphNode,
    /// Blockscout's realtime fetcher (blockscout: `apps/indexer/lib/indexer/block/fetcher.ex`).
    Blockscout,
}

/// op-node's `--l1.rpckind`, which selects how it reads receipts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcKind {
    Standard,
    Basic,
    DebugGeth,
}

/// A consumer that polls the head and reads each new block.
pub struct Follower {
    kind: Kind,
    /// Number and hash of the newest block that it has read.
    head: Option<(u64, Value)>,
}

// === impl Kind ===

impl Kind {
    /// Returns whether the consumer polls for the full block.
    fn polls_in_full(self) -> bool {
        self == Self::Ponder
    }
}

// === impl Follower ===

impl Follower {
    pub fn new(kind: Kind) -> Self {
        Self { kind, head: None }
    }

    /// Polls the head, and reads all blocks since the previous poll. The first poll reads the head only.
    pub async fn poll(&mut self, rpc: &mut impl Rpc) {
        let latest = rpc.call("eth_getBlockByNumber", json!(["latest", self.kind.polls_in_full()])).await;
        let (number, hash) = (number(&latest), latest["hash"].clone());
        let next = match &self.head {
            Some((_, known)) if *known == hash => return,
            Some((known, _)) => *known + 1,
            None => number,
        };
        match self.kind {
            Kind::OpNode(kind) => {
                for number in next..=number {
                    op_node(rpc, kind, number).await;
                }
            }
            Kind::KonaHost => {
                for number in next..=number {
                    kona_host(rpc, number).await;
                }
            }
            Kind::Ponder => {
                for missing in next..number {
                    let block = rpc.call("eth_getBlockByNumber", json!([hex(missing), true])).await;
                    ponder(rpc, &block).await;
                }
                ponder(rpc, &latest).await;
            }
            Kind::GraphNode => graph_node(rpc, &hash, next).await,
            Kind::Blockscout => blockscout(rpc, next, number).await,
        }
        self.head = Some((number, hash));
    }
}

async fn op_node(rpc: &mut impl Rpc, kind: RpcKind, number: u64) {
    let block = rpc.call("eth_getBlockByNumber", json!([hex(number), false])).await;
    let block = rpc.call("eth_getBlockByHash", json!([block["hash"], true])).await;
    match kind {
        RpcKind::Standard => {
            rpc.call("eth_getBlockReceipts", json!([block["hash"]])).await;
        }
        RpcKind::Basic => receipts(rpc, &[block], 20).await,
        RpcKind::DebugGeth => {
            rpc.call("debug_getRawReceipts", json!([block["hash"]])).await;
        }
    }
}

async fn kona_host(rpc: &mut impl Rpc, number: u64) {
    let block = rpc.call("eth_getBlockByNumber", json!([hex(number), false])).await;
    rpc.call("debug_getRawHeader", json!([block["hash"]])).await;
    rpc.call("eth_getBlockByHash", json!([block["hash"], true])).await;
    rpc.call("debug_getRawReceipts", json!([block["hash"]])).await;
}

async fn ponder(rpc: &mut impl Rpc, block: &Value) {
    if transactions(block).next().is_none() {
        return;
    }
    rpc.call("eth_getLogs", json!([{ "blockHash": block["hash"] }])).await;
    rpc.call("eth_getBlockReceipts", json!([block["hash"]])).await;
}

/// Reads the block with this hash and its ancestors down to number `first`.
async fn graph_node(rpc: &mut impl Rpc, hash: &Value, first: u64) {
    let mut next = hash.clone();
    loop {
        let block = rpc.call("eth_getBlockByHash", json!([next, true])).await;
        rpc.call("eth_getBlockReceipts", json!([next])).await;
        let at = hex(number(&block));
        for subgraph in 1..=2 {
            let filter = json!({ "fromBlock": at, "toBlock": at, "address": [format!("0x{subgraph:040x}")] });
            rpc.call("eth_getLogs", json!([filter])).await;
        }
        let call = json!({ "to": format!("0x{:040x}", 1), "data": "0x" });
        rpc.call("eth_call", json!([call, { "blockHash": next }])).await;
        if number(&block) <= first {
            return;
        }
        next = block["parentHash"].clone();
    }
}

/// Reads these blocks with their receipts, and the balances of all senders.
pub async fn blockscout(rpc: &mut impl Rpc, first: u64, last: u64) {
    let calls = (first..=last).map(|number| ("eth_getBlockByNumber", json!([hex(number), true])));
    let blocks = rpc.batch(calls.collect()).await;
    receipts(rpc, &blocks, 250).await;
    for block in &blocks {
        let balance = |transaction: &Value| ("eth_getBalance", json!([transaction["from"], block["number"]]));
        in_batches(rpc, transactions(block).map(balance).collect(), 100).await;
    }
}

/// Reads all receipts of full blocks one by one, in batches of at most `size` calls.
async fn receipts(rpc: &mut impl Rpc, blocks: &[Value], size: usize) {
    let call = |transaction: &Value| ("eth_getTransactionReceipt", json!([transaction["hash"]]));
    in_batches(rpc, blocks.iter().flat_map(transactions).map(call).collect(), size).await;
}

async fn in_batches(rpc: &mut impl Rpc, calls: Vec<Call>, size: usize) {
    for batch in calls.chunks(size) {
        rpc.batch(batch.to_vec()).await;
    }
}

fn transactions(block: &Value) -> impl Iterator<Item = &Value> {
    block["transactions"].as_array().into_iter().flatten()
}

/// Returns the number of a block.
pub fn number(block: &Value) -> u64 {
    let digits = block["number"].as_str().unwrap_or_else(|| panic!("no number in {block}"));
    u64::from_str_radix(digits.trim_start_matches("0x"), 16).unwrap()
}

fn hex(number: u64) -> String {
    format!("{number:#x}")
}
