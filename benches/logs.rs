//! CPU of `eth_getLogs` from memory, as a multiple of that of a cached receipt, with limits: `cargo bench --bench logs`.
//!
//! All requests pass through the whole proxy without sockets, in turn, so that the load of the machine affects them
//! alike. The node makes structurally valid blocks of the size of mainnet blocks.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot continue should panic at that line")]

#[path = "shared/blocks.rs"]
#[allow(dead_code, reason = "shared with benchmarks that use more of it")]
mod blocks;
#[path = "shared/docs.rs"]
#[allow(dead_code, reason = "shared with benchmarks that use more of it")]
mod docs;
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
#[path = "../tests/it/support/in_memory.rs"]
mod in_memory;

use std::{fmt::Write, process::exit, time::Duration};

use alloy_primitives::{Address, B256};
use bytes::{Buf, Bytes};
use bytesize::ByteSize;
use holdfast::{
    config::Config,
    upstream::{
        EndpointConfig, EndpointParts, InProcessNode, InProcessResponse, InProcessTransport, UpstreamError,
    },
    verify::Demand,
};
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;

use self::in_memory::InMemory;

/// Number of cached blocks.
const BLOCKS: u64 = 1_000;

/// Number of blocks above the cached ones, so that these are final.
const YOUNG: u64 = 40;

/// Distance of the finalized block from the head.
const FINALITY: u64 = 16;

/// Time between two blocks. One answer makes a block final if it is an hour older than the finalized block.
const SLOT_SECONDS: u64 = 600;

const TRANSACTIONS: u64 = 200;
const LOGS: u64 = 500;

/// Every hundredth block has a log of the contract that the filters name.
const RARITY: u64 = 100;

/// Number of other contracts and of their events.
const CONTRACTS: u64 = 40;
const EVENTS: u64 = 8;

const ROUNDS: usize = 21;

/// A request and its limit in cached receipts.
struct Case {
    name: &'static str,
    limit: f64,
    body: Bytes,
    /// Number of requests in a round.
    times: usize,
    /// Time of one request divided by the time of one cached receipt, for each round.
    ratios: Vec<f64>,
}

/// A node whose blocks follow from their numbers.
#[derive(Clone)]
struct Node;

fn main() {
    let save = std::env::args().any(|argument| argument == "--save");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cases = runtime.block_on(async {
        let program = program();
        warm(&program).await;
        measure(&program).await
    });
    let mut table = "| `eth_getLogs` from memory | ÷ cached receipt | limit |\n|---|---|---|\n".to_owned();
    cases.iter().for_each(|case| table += &case.show());
    println!("{table}");
    if save {
        docs::refresh(docs::PAGE, "log cost", &table);
    }
    if !cases.iter().all(Case::is_met) {
        exit(1);
    }
}

fn program() -> InMemory {
    let mut config = Config::default();
    config.cache.size = ByteSize::gib(4);
    config.verify.level = Demand::Structural;
    // No refresh of the head may disturb the measurement.
    config.chain.max_staleness = Duration::from_secs(3600);
    let transport = BoxCloneSyncService::new(InProcessTransport::new(Node));
    let (address, endpoint) = (Some(in_memory::address("made")), EndpointConfig::at(""));
    in_memory::program_of(
        vec![EndpointParts { name: "made".into(), address, transport, config: endpoint }],
        &config,
    )
}

/// Reads all blocks and their receipts, and their logs, so that all indexes exist.
async fn warm(program: &InMemory) {
    for tag in ["latest", "finalized"] {
        program.ask("eth_getBlockByNumber", json!([tag, false])).await;
    }
    for number in 1..=BLOCKS {
        let at = format!("{number:#x}");
        for request in [
            body("eth_getBlockByNumber", &json!([at, true])),
            body("eth_getBlockReceipts", &json!([at])),
            logs(number, number),
        ] {
            let (status, reply) = program.send(request).await;
            assert!(
                status == 200 && !reply.windows(7).any(|it| it == b"\"error\""),
                "block {number}: {status}"
            );
        }
    }
}

async fn measure(program: &InMemory) -> Vec<Case> {
    // The step is prime, so that consecutive receipts are not of neighbouring blocks.
    let receipts: Vec<Bytes> = (0..512)
        .map(|at| transaction(1 + at * 37 % BLOCKS, at * 7 % TRANSACTIONS))
        .map(|hash| body("eth_getTransactionReceipt", &json!([hash])))
        .collect();
    let matching = |bodies: &Bytes| {
        let program = program.clone();
        let request = bodies.clone();
        async move {
            let (_, reply) = program.send(request).await;
            let reply: Value = serde_json::from_slice(&reply).unwrap();
            reply["result"].as_array().unwrap().len() as u64
        }
    };
    let range = logs(1, BLOCKS);
    let block = logs(RARITY, RARITY);
    assert_eq!((matching(&range).await, matching(&block).await), (BLOCKS / RARITY, 1));
    let mut cases = vec![
        Case::new("a filter over 1,000 blocks that matches 1 % of them", 150.0, range, 20),
        Case::new("a filter over one block", 2.0, block, 2_000),
    ];
    for round in 0..=ROUNDS {
        let receipt = time(program, &receipts, 2_000).await;
        for case in &mut cases {
            let ratio = time(program, std::slice::from_ref(&case.body), case.times).await / receipt;
            // The first round warms the processor's caches.
            if round > 0 {
                case.ratios.push(ratio);
            }
        }
    }
    cases
}

/// Returns the seconds that one of these requests takes on average.
///
/// # Panics
/// If an answer does not come from memory.
async fn time(program: &InMemory, bodies: &[Bytes], times: usize) -> f64 {
    let begun = Instant::now();
    for at in 0..times {
        let response = program.respond_raw(bodies[at % bodies.len()].clone(), None).await;
        let status = response.headers()["cache-status"].to_str().unwrap();
        assert!(status.starts_with("holdfast; hit"), "{status}");
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let Ok(mut rope) = frame.unwrap().into_data() else { continue };
            // Consumes the body as a socket does, without a copy.
            rope.advance(rope.remaining());
        }
    }
    begun.elapsed().as_secs_f64() / times as f64
}

fn body(method: &str, params: &Value) -> Bytes {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string().into()
}

/// Returns a call for the logs of the rare contract.
fn logs(from: u64, to: u64) -> Bytes {
    let filter = json!({
        "fromBlock": format!("{from:#x}"),
        "toBlock": format!("{to:#x}"),
        "address": contract(CONTRACTS),
        "topics": [event(0)],
    });
    body("eth_getLogs", &json!([filter]))
}

fn transaction(block: u64, index: u64) -> B256 {
    blocks::hash("transaction", block << 16 | index)
}

fn contract(at: u64) -> Address {
    Address::from_word(blocks::hash("contract", at))
}

fn event(at: u64) -> B256 {
    blocks::hash("event", at)
}

/// Returns a block, with full transactions or with their hashes.
fn block(number: u64, full: bool) -> String {
    let (own, parent, root) = (
        blocks::hash("block", number),
        blocks::hash("block", number.wrapping_sub(1)),
        blocks::hash("root", number),
    );
    let timestamp = 1_700_000_000 + number * SLOT_SECONDS;
    let input = "5a".repeat(100);
    let transactions: Vec<String> = (0..TRANSACTIONS)
        .map(|index| (index, transaction(number, index)))
        .map(|(index, hash)| {
            if full {
                format!(
                    r#"{{"hash":"{hash}","blockHash":"{own}","blockNumber":"{number:#x}","transactionIndex":"{index:#x}","input":"0x{input}"}}"#
                )
            } else {
                format!("\"{hash}\"")
            }
        })
        .collect();
    format!(
        r#"{{"hash":"{own}","parentHash":"{parent}","number":"{number:#x}","transactionsRoot":"{root}","uncles":[],"timestamp":"{timestamp:#x}","transactions":[{}]}}"#,
        transactions.join(",")
    )
}

/// Returns the receipts of a block in geth's form. Two or three logs belong to each transaction.
fn receipts(number: u64) -> String {
    let own = blocks::hash("block", number);
    let bloom = "5a".repeat(256);
    let (data, party) = ("17".repeat(32), "33".repeat(20));
    let mut json = "[".to_owned();
    for index in 0..TRANSACTIONS {
        let hash = transaction(number, index);
        let first = index * LOGS / TRANSACTIONS;
        let logs: Vec<String> = (first..(index + 1) * LOGS / TRANSACTIONS)
            .map(|at| {
                let is_rare = number.is_multiple_of(RARITY) && at == LOGS / 2;
                let (address, event) = if is_rare {
                    (contract(CONTRACTS), event(0))
                } else {
                    (contract((number * 7 + at * 13) % CONTRACTS), event(at % EVENTS))
                };
                let (from, to) = (blocks::hash("party", at), blocks::hash("party", number));
                format!(
                    r#"{{"address":"{address:#x}","topics":["{event}","{from}","{to}"],"data":"0x{data}","blockNumber":"{number:#x}","transactionHash":"{hash}","transactionIndex":"{index:#x}","blockHash":"{own}","blockTimestamp":"0x1","logIndex":"{at:#x}","removed":false}}"#
                )
            })
            .collect();
        let comma = if index == 0 { "" } else { "," };
        write!(
            json,
            r#"{comma}{{"blockHash":"{own}","blockNumber":"{number:#x}","contractAddress":null,"cumulativeGasUsed":"0x5208","effectiveGasPrice":"0x1","from":"0x{party}","gasUsed":"0x5208","logs":[{}],"logsBloom":"0x{bloom}","status":"0x1","to":"0x{party}","transactionHash":"{hash}","transactionIndex":"{index:#x}","type":"0x2"}}"#,
            logs.join(",")
        )
        .unwrap();
    }
    json.push(']');
    json
}

// === impl Case ===

impl Case {
    fn new(name: &'static str, limit: f64, body: Bytes, times: usize) -> Self {
        Self { name, limit, body, times, ratios: Vec::new() }
    }

    /// Returns the median of all rounds.
    fn ratio(&self) -> f64 {
        let mut ratios = self.ratios.clone();
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    }

    fn is_met(&self) -> bool {
        self.ratio() <= self.limit
    }

    fn show(&self) -> String {
        let verdict = if self.is_met() { "met" } else { "**missed**" };
        format!("| {} | {:.1} | ≤ {}: {verdict} |\n", self.name, self.ratio(), self.limit)
    }
}

// === impl Node ===

impl Node {
    /// Returns the number of the block that a parameter names.
    fn number(name: &str) -> Option<u64> {
        let head = BLOCKS + YOUNG;
        match name {
            "latest" => Some(head),
            "safe" | "finalized" => Some(head - FINALITY),
            _ if name.len() == 66 => {
                let hash: B256 = name.parse().unwrap();
                (0..=head).find(|number| blocks::hash("block", *number) == hash)
            }
            _ => u64::from_str_radix(name.strip_prefix("0x")?, 16).ok().filter(|number| *number <= head),
        }
    }
}

impl InProcessNode for Node {
    async fn respond(&self, body: Bytes) -> Result<InProcessResponse, UpstreamError> {
        let call: Value = serde_json::from_slice(&body).unwrap();
        let number = call["params"][0].as_str().and_then(Self::number);
        let result = match (call["method"].as_str().unwrap(), number) {
            ("eth_chainId", _) => "\"0x6fdd2d\"".to_owned(),
            ("eth_getBlockByNumber" | "eth_getBlockByHash", Some(number)) => {
                block(number, call["params"][1] == true)
            }
            ("eth_getBlockReceipts", Some(number)) => receipts(number),
            // The node has no logs of its own: they must come from receipts.
            ("eth_getLogs", _) => "[]".to_owned(),
            _ => "null".to_owned(),
        };
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, call["id"]);
        Ok(InProcessResponse { status: StatusCode::OK, retry_after: None, body: body.into() })
    }
}
