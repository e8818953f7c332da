//! Logs of cached blocks equal the node's own answer, and a naive evaluation of the filter over the receipts, byte for
//! byte.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use alloy_primitives::hex;
use bytes::Bytes;
use fastrand::Rng;
use holdfast::{
    config::Config,
    devchain::DevChain,
    jsonrpc::{Answer, read_answers},
    upstream::{
        EndpointConfig, EndpointParts, InProcessNode, InProcessResponse, InProcessTransport, UpstreamError,
    },
};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tower::util::BoxCloneSyncService;

use crate::support::{
    anvil::{Anvil, SENDER},
    client::{self, Client},
    data::{self, Real},
    emitter::{self, Emission},
    eventually,
    in_memory::{self, InMemory},
    method::{BLOCK_BY_HASH, BLOCK_BY_NUMBER, RECEIPTS},
    nodes::hex,
    proxy, times, tools, upstream,
};

const LOGS: &str = "eth_getLogs";

/// A block's logs in order.
struct Block {
    number: u64,
    hash: String,
    logs: Vec<Log>,
}

/// A log, and its bytes in the receipts.
struct Log {
    text: String,
    address: String,
    topics: Vec<String>,
}

/// The members of a filter, except for its blocks.
#[derive(Clone, Debug)]
struct Filter {
    address: Value,
    topics: Vec<Value>,
}

/// How a filter judges a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Match,
    Miss,
    /// The log has fewer topics than the filter has positions, and nothing else speaks against it. With geth it does
    /// not match, with anvil it does.
    Disputed,
}

/// A call, and the naive evaluation of its filter: `None` if the filter is disputed about one of the logs.
struct Question {
    params: Value,
    expected: Option<String>,
}

/// A node that serves real blocks by hash, and otherwise a development chain.
#[derive(Clone)]
struct RealNode {
    chain: DevChain,
    blocks: Arc<Vec<(Real, Block)>>,
    /// Number of calls about the real blocks.
    calls: Arc<AtomicUsize>,
    /// Whether the node lacks `eth_getBlockReceipts`.
    lacks_receipts: bool,
}

// === impl Block ===

impl Block {
    /// Reads the logs from the JSON of receipts.
    fn new(number: u64, hash: String, receipts: &str) -> Self {
        #[derive(Deserialize)]
        struct Receipt<'a> {
            #[serde(borrow)]
            logs: Vec<&'a RawValue>,
        }
        let receipts: Vec<Receipt<'_>> = serde_json::from_str(receipts).unwrap();
        let logs = receipts.iter().flat_map(|receipt| &receipt.logs).map(|log| Log::new(log.get())).collect();
        Self { number, hash, logs }
    }

    fn of(real: &Real) -> Self {
        let block: Value = serde_json::from_slice(&real.block).unwrap();
        let receipts = std::str::from_utf8(real.receipts.as_deref().unwrap()).unwrap();
        let number = block["number"].as_str().unwrap().trim_start_matches("0x");
        let number = u64::from_str_radix(number, 16).unwrap();
        Self::new(number, block["hash"].as_str().unwrap().to_owned(), receipts)
    }
}

// === impl Log ===

impl Log {
    fn new(text: &str) -> Self {
        let log: Value = serde_json::from_str(text).unwrap();
        let string = |value: &Value| value.as_str().unwrap().to_owned();
        let topics = log["topics"].as_array().unwrap().iter().map(string).collect();
        Self { text: text.to_owned(), address: string(&log["address"]), topics }
    }
}

// === impl Filter ===

impl Filter {
    /// Draws a filter that in most cases matches at least one of the logs.
    fn draw(random: &mut Rng, logs: &[&Log]) -> Self {
        let any = |random: &mut Rng| logs[random.usize(..logs.len())];
        let like = any(random);
        let address = match random.u8(..10) {
            0..3 => Value::Null,
            3 if random.bool() => json!([]),
            _ => pattern(random, &like.address, |random| &any(random).address),
        };
        let positions = *random.choice(&[0, 0, 1, 1, 1, 2, 2, 3, 4]).unwrap();
        let mut topics: Vec<Value> = Vec::new();
        for at in 0..positions {
            let topic = like.topics.get(at).or_else(|| any(random).topics.get(at));
            topics.push(match (topic, random.u8(..20)) {
                (None, _) | (_, 0..7) => Value::Null,
                (_, 7) => json!([]),
                (Some(topic), 8) => json!([topic, null]),
                (Some(topic), _) => {
                    pattern(random, topic, |random| any(random).topics.get(at).unwrap_or(topic))
                }
            });
        }
        // Nodes differ about open positions at the end, so most filters have none.
        while topics.last().is_some_and(is_open) && random.u8(..10) > 2 {
            topics.pop();
        }
        Self { address, topics }
    }

    /// Draws a filter for an address, and in some cases for a topic, that does not occur.
    fn absent(random: &mut Rng) -> Self {
        let topics = if random.bool() { vec![json!(absent(random, 32))] } else { Vec::new() };
        Self { address: json!(absent(random, 20)), topics }
    }

    /// Returns the parameter of the call for these blocks.
    fn params(&self, random: &mut Rng, mut blocks: Value) -> Value {
        if !self.address.is_null() || random.bool() {
            blocks["address"] = self.address.clone();
        }
        if !self.topics.is_empty() || random.bool() {
            blocks["topics"] = json!(self.topics);
        }
        json!([blocks])
    }

    fn judge(&self, log: &Log) -> Verdict {
        let admits = |(pattern, topic): (&Value, &String)| admits(pattern, topic);
        let (beside, beyond) = self.topics.split_at(self.topics.len().min(log.topics.len()));
        if !admits((&self.address, &log.address)) || !beside.iter().zip(&log.topics).all(admits) {
            Verdict::Miss
        } else if beyond.is_empty() {
            Verdict::Match
        } else if beyond.iter().all(is_open) {
            Verdict::Disputed
        } else {
            Verdict::Miss
        }
    }

    /// Returns the JSON of all logs that match, as geth does, and whether the filter is disputed about one of the logs.
    fn evaluate<'a>(&self, logs: impl IntoIterator<Item = &'a Log>) -> (String, bool) {
        let (mut matching, mut is_disputed) = (Vec::new(), false);
        for log in logs {
            match self.judge(log) {
                Verdict::Match => matching.push(log.text.as_str()),
                Verdict::Miss => {}
                Verdict::Disputed => is_disputed = true,
            }
        }
        (format!("[{}]", matching.join(",")), is_disputed)
    }
}

/// Returns whether an address or a position of topics admits every value.
fn is_open(pattern: &Value) -> bool {
    match pattern {
        Value::Null => true,
        Value::Array(list) => list.is_empty() || list.contains(&Value::Null),
        _ => false,
    }
}

fn admits(pattern: &Value, value: &str) -> bool {
    let is_equal = |pattern: &Value| pattern.as_str().unwrap().eq_ignore_ascii_case(value);
    is_open(pattern) || pattern.as_array().map_or_else(|| is_equal(pattern), |list| list.iter().any(is_equal))
}

/// Returns a value alone or in a list, or rarely another value.
fn pattern<'a>(random: &mut Rng, value: &str, other: impl Fn(&mut Rng) -> &'a String) -> Value {
    let len = (value.len() - 2) / 2;
    let spelled = match random.u8(..10) {
        0 => format!("0x{}", value[2..].to_uppercase()),
        _ => value.to_owned(),
    };
    match random.u8(..10) {
        0 => json!(absent(random, len)),
        1 => json!(other(random)),
        2..6 => json!(spelled),
        _ => {
            let mut list = vec![spelled, absent(random, len)];
            for _ in 0..random.usize(..4) {
                list.push(other(random).clone());
            }
            random.shuffle(&mut list);
            json!(list)
        }
    }
}

/// Returns random bytes in hexadecimal.
fn absent(random: &mut Rng, len: usize) -> String {
    let bytes: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
    hex::encode_prefixed(bytes)
}

/// Draws a filter for one block or for a range.
fn draw(random: &mut Rng, blocks: &[Block], all: &[&Log]) -> Question {
    let filter = Filter::draw(random, all);
    let last = blocks.len() - 1;
    let (scope, range) = if random.u8(..10) < 3 {
        let at = random.usize(..=last);
        (json!({ "blockHash": blocks[at].hash }), at..=at)
    } else {
        let (from, to) = (random.usize(..=last), random.usize(..=last));
        // Half of the ranges are short.
        let to = if random.bool() { from.max(to) } else { (from + to % 4).min(last) };
        let (bound, to) = match random.u8(..10) {
            0 => (json!("latest"), last),
            _ => (json!(hex(blocks[to].number)), to),
        };
        (json!({ "fromBlock": hex(blocks[from].number), "toBlock": bound }), from..=to)
    };
    let logs = blocks[range].iter().flat_map(|block| &block.logs);
    let (expected, is_disputed) = filter.evaluate(logs);
    Question { params: filter.params(random, scope), expected: (!is_disputed).then_some(expected) }
}

/// Returns the results of a response, in order.
///
/// # Panics
/// If there is an error among them.
fn results(body: &Bytes) -> Vec<String> {
    let answers = read_answers(body).unwrap();
    let result = |answer| match answer {
        Some(Answer::Result(result)) => String::from_utf8(result.to_vec()).unwrap(),
        other => panic!("no result: {other:?}"),
    };
    answers.into_iter().map(|answer| result(answer.answer)).collect()
}

fn call(id: usize, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": LOGS, "params": params })
}

async fn value(client: &Client, method: &str, params: Value) -> Value {
    serde_json::from_str(&client.ask(method, params).await.unwrap()).unwrap()
}

/// Creates four contracts, and mines forty blocks of calls to them.
async fn emit_logs(node: &Client, random: &mut Rng) {
    let code = hex::encode_prefixed(emitter::creation());
    let mut contracts = Vec::new();
    for _ in 0..4 {
        let creation = json!([{ "from": SENDER, "data": code, "gas": "0x100000" }]);
        let hash = value(node, "eth_sendTransaction", creation).await;
        eventually("the contract is created", async || {
            !value(node, "eth_getTransactionReceipt", json!([hash])).await.is_null()
        })
        .await;
        let receipt = value(node, "eth_getTransactionReceipt", json!([hash])).await;
        contracts.push(receipt["contractAddress"].clone());
    }
    value(node, "evm_setAutomine", json!([false])).await;
    for _ in 0..40 {
        for _ in 0..random.usize(..6) {
            let logs: Vec<_> = (0..random.usize(..5)).map(|_| emission(random)).collect();
            let data = hex::encode_prefixed(emitter::calldata(&logs));
            let to = &contracts[random.usize(..contracts.len())];
            let transaction = json!([{ "from": SENDER, "to": to, "data": data, "gas": "0x100000" }]);
            value(node, "eth_sendTransaction", transaction).await;
        }
        value(node, "evm_mine", json!([])).await;
    }
}

/// Draws a log. The topics of each position are few, so that many logs share some of them.
fn emission(random: &mut Rng) -> Emission {
    let topic = |random: &mut Rng, at: u8| {
        let mut topic = [0x5a; 32];
        (topic[0], topic[31]) = (at, random.u8(..5));
        topic
    };
    let topics = (0..random.u8(..=4)).map(|at| topic(random, at)).collect();
    Emission { topics, data: [random.u8(..); 32], len: random.u8(..80) }
}

/// Reads all blocks and receipts through the proxy, so that it caches them.
async fn read_chain(through: &Client) -> Vec<Block> {
    let head = value(through, BLOCK_BY_NUMBER, json!(["latest", true])).await;
    let head = u64::from_str_radix(head["number"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
    let mut blocks = Vec::new();
    for number in 0..=head {
        let block = value(through, BLOCK_BY_NUMBER, json!([hex(number), true])).await;
        let receipts = through.ask(RECEIPTS, json!([hex(number)])).await.unwrap();
        blocks.push(Block::new(number, block["hash"].as_str().unwrap().to_owned(), &receipts));
    }
    blocks
}

#[tokio::test]
async fn logs_equal_those_of_a_real_node() {
    const BATCH: usize = 50;
    let Some(binary) = tools::anvil("logs_equal_those_of_a_real_node") else { return };
    let node = Anvil::start(binary, &["--order", "fifo"]).await;
    let direct = client::at(node.url());
    let mut random = Rng::with_seed(24);
    emit_logs(&direct, &mut random).await;
    let proxy = proxy::new().upstream_url(node.url());
    // The chain does not change, so answers from memory need no newer head.
    let proxy = proxy.config(|config| config.chain.max_staleness = Duration::from_secs(3600)).run().await;
    let through = client::http(&proxy);
    let blocks = read_chain(&through).await;
    let all: Vec<&Log> = blocks.iter().flat_map(|block| &block.logs).collect();
    assert!((0..=4).all(|count| all.iter().any(|log| log.topics.len() == count)), "{} logs", all.len());

    let (mut disputed, mut filled) = (0, 0);
    for _ in 0..5_000 / BATCH {
        let questions: Vec<_> = (0..BATCH).map(|_| draw(&mut random, &blocks, &all)).collect();
        let batch = json!(questions.iter().zip(0..).map(|(it, id)| call(id, &it.params)).collect::<Vec<_>>());
        let [own, answers] = [&direct, &through].map(|client| client.send(batch.to_string()));
        let (own, answers) = (results(&own.await.body), results(&answers.await.body));
        assert_eq!((own.len(), answers.len()), (BATCH, BATCH));
        for (question, (own, answer)) in questions.iter().zip(own.iter().zip(&answers)) {
            assert_eq!(answer, own, "{}", question.params);
            match &question.expected {
                Some(expected) => assert_eq!(answer, expected, "{}", question.params),
                None => disputed += 1,
            }
            filled += usize::from(own != "[]");
        }
        // Only a call of its own has a `cache-status` of its own.
        for (question, own) in questions.iter().zip(&own).step_by(10) {
            let response = through.call(LOGS, question.params.clone()).await;
            assert_eq!(results(&response.body), std::slice::from_ref(own), "{}", question.params);
            let status = response.header("cache-status").unwrap();
            // A call after a second needs a refresh.
            let is_from_memory =
                ["holdfast; hit", "holdfast; fwd=stale"].iter().any(|own| status.starts_with(own));
            assert_eq!(is_from_memory, question.expected.is_some(), "{}: {status}", question.params);
        }
    }
    assert!((100..1_000).contains(&disputed), "{disputed} filters are disputed");
    assert!((2_000..4_500).contains(&filled), "{filled} filters match a log");
}

// === impl RealNode ===

impl RealNode {
    /// Creates a node of this chain id. Leaves out blocks without receipts or logs.
    fn new(chain_id: u64, real: Vec<Real>) -> Self {
        let chain = upstream::devchain().config(|config| config.chain_id = chain_id).blocks(3, 1).chain();
        let real = real.into_iter().filter(|real| real.receipts.is_some());
        let blocks = real.map(|real| (Block::of(&real), real)).filter(|(block, _)| !block.logs.is_empty());
        Self {
            chain,
            blocks: Arc::new(blocks.map(|(block, real)| (real, block)).collect()),
            calls: Arc::default(),
            lacks_receipts: false,
        }
    }

    /// Starts a proxy in front of the node.
    fn program(&self) -> InMemory {
        let transport = BoxCloneSyncService::new(InProcessTransport::new(self.clone()));
        let (address, config) = (Some(in_memory::address("real")), EndpointConfig::at(""));
        let endpoint = EndpointParts { name: "real".into(), address, transport, config };
        in_memory::program_of(vec![endpoint], &Config::default())
    }

    fn calls(&self) -> usize {
        self.calls.load(Relaxed)
    }

    /// Returns the member `result` or `error` of the answer if the call is about a real block.
    fn answer(&self, call: &Value) -> Option<String> {
        let params = &call["params"][0];
        let hash = params.as_str().or_else(|| params["blockHash"].as_str())?;
        let (real, block) = self.blocks.iter().find(|(_, block)| block.hash == hash)?;
        self.calls.fetch_add(1, Relaxed);
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        let result = match call["method"].as_str().unwrap() {
            BLOCK_BY_HASH if call["params"][1] == true => text(&real.block),
            RECEIPTS if self.lacks_receipts => {
                return Some(r#""error":{"code":-32601,"message":"the method does not exist"}"#.to_owned());
            }
            RECEIPTS => text(real.receipts.as_ref().unwrap()),
            LOGS => {
                let topics = params["topics"].as_array().cloned().unwrap_or_default();
                let filter = Filter { address: params["address"].clone(), topics };
                filter.evaluate(&block.logs).0
            }
            other => panic!("unexpected call: {other}"),
        };
        Some(format!(r#""result":{result}"#))
    }
}

impl InProcessNode for RealNode {
    async fn respond(&self, body: Bytes) -> Result<InProcessResponse, UpstreamError> {
        let call: Value = serde_json::from_slice(&body).unwrap();
        let Some(answer) = self.answer(&call) else { return self.chain.respond(body).await };
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},{answer}}}"#, call["id"]);
        Ok(InProcessResponse { status: StatusCode::OK, retry_after: None, body: body.into() })
    }
}

/// Calls a program, and returns `cache-status` and the bytes of the result.
async fn logs(program: &InMemory, params: &Value) -> (String, String) {
    let (status, body) = program.send_for_status(call(1, params).to_string()).await;
    // Does not parse the body, because that is slow in a debug build.
    let text = std::str::from_utf8(&body).unwrap();
    let result =
        text.strip_prefix(r#"{"jsonrpc":"2.0","id":1,"result":"#).and_then(|it| it.strip_suffix('}'));
    (status, result.unwrap_or_else(|| panic!("no result: {text}")).to_owned())
}

/// Sends random filters about each block, and compares the answers with slices of the receipts. The more logs a block
/// has, the fewer filters: in all, they judge `judged` logs of each block. After an unfiltered call the node receives
/// only calls about disputed filters. Returns the number of filters.
async fn all_filters_agree(node: &RealNode, judged: usize, random: &mut Rng) -> usize {
    let mut filters = 0;
    let program = node.program();
    for (real, block) in node.blocks.iter() {
        let every: Vec<&Log> = block.logs.iter().collect();
        let scope = json!({ "blockHash": block.hash });
        let open = Filter { address: Value::Null, topics: Vec::new() };
        let (_, answer) = logs(&program, &json!([scope])).await;
        assert_eq!(answer, open.evaluate(&block.logs).0, "{}", real.name);
        let count = judged / every.len();
        let (mut disputed, mut filled) = (0, 0);
        for _ in 0..count {
            let filter = Filter::draw(random, &every);
            let (before, params) = (node.calls(), filter.params(random, scope.clone()));
            let (status, answer) = logs(&program, &params).await;
            // The node agrees with geth about disputed logs.
            let (expected, is_disputed) = filter.evaluate(&block.logs);
            assert_eq!(answer, expected, "{}: {params}", real.name);
            let calls = node.calls() - before;
            assert_eq!(calls, usize::from(is_disputed), "{}: {params}: {status}", real.name);
            disputed += calls;
            filled += usize::from(answer != "[]");
        }
        assert!(disputed < count / 3 && filled > count / 3, "{}: {disputed}, {filled}", real.name);
        filters += count;
    }
    filters
}

#[tokio::test(start_paused = true)]
async fn logs_of_real_blocks_are_slices_of_their_receipts() {
    let mut random = Rng::with_seed(15_573_637);
    let (mainnet, geth) = (mainnet(), RealNode::new(1337, data::raw()));
    let judged = times(100_000, 1_000_000) as usize;
    let filters = all_filters_agree(&mainnet, judged, &mut random).await
        + all_filters_agree(&geth, 300, &mut random).await;
    assert!(filters > judged / 200, "{filters}");
}

#[tokio::test(start_paused = true)]
async fn recorded_logs_are_those_of_the_recorded_receipts() {
    let program = RealNode::new(1337, data::raw()).program();
    for at in data::recorded().iter().filter(|at| at["logs"] != json!([])) {
        let (_, answer) = logs(&program, &json!([{ "blockHash": at["block"]["hash"] }])).await;
        assert_eq!(answer, at["logs"].to_string(), "{}", at["block"]["number"]);
    }
}

/// Returns a node of mainnet.
fn mainnet() -> RealNode {
    let real = data::real().into_iter().filter(|real| real.name.starts_with("mainnet"));
    RealNode::new(1, real.collect())
}

/// While only the block is cached, its bloom excludes many filters without a match, and no filter with one. The node has
/// no receipts, so the block stays without them.
#[tokio::test(start_paused = true)]
async fn blooms_of_real_blocks_exclude_no_log() {
    let mut random = Rng::with_seed(19_433_903);
    let node = RealNode { lacks_receipts: true, ..mainnet() };
    for (real, block) in node.blocks.iter() {
        let every: Vec<&Log> = block.logs.iter().collect();
        let program = node.program();
        program.ask(BLOCK_BY_HASH, json!([block.hash, true])).await;
        let mut excluded = 0;
        let filters = times(100, 600);
        for at in 0..filters {
            let filter =
                if at % 2 == 0 { Filter::draw(&mut random, &every) } else { Filter::absent(&mut random) };
            let params = filter.params(&mut random, json!({ "blockHash": block.hash }));
            let response = program.respond(call(1, &params).to_string()).await;
            let status = response.headers().get("cache-status").map(|status| status.to_str().unwrap());
            if status.is_some_and(|status| status.contains("detail=bloom")) {
                assert_eq!(filter.evaluate(&block.logs), ("[]".to_owned(), false), "{}: {params}", real.name);
                assert_eq!(results(response.body()), ["[]"], "{}: {params}", real.name);
                excluded += 1;
            }
        }
        assert!((filters / 4..3 * filters / 4).contains(&excluded), "{}: {excluded}", real.name);
    }
}

/// A filter that the bloom does not exclude makes the proxy fetch the receipts once.
#[tokio::test(start_paused = true)]
async fn receipts_are_fetched_if_the_bloom_excludes_nothing() {
    let mut random = Rng::with_seed(14_764_013);
    let node = mainnet();
    for (real, block) in node.blocks.iter() {
        let every: Vec<&Log> = block.logs.iter().collect();
        let mut excluded = 0;
        for round in 0..times(2, 4) {
            let program = node.program();
            program.ask(BLOCK_BY_HASH, json!([block.hash, true])).await;
            let before = node.calls();
            // The fetch ends the round.
            for at in 0.. {
                let is_drawn = round % 2 == 0 && at % 8 == 7;
                let filter =
                    if is_drawn { Filter::draw(&mut random, &every) } else { Filter::absent(&mut random) };
                let (expected, is_disputed) = filter.evaluate(&block.logs);
                if is_disputed {
                    continue;
                }
                let params = filter.params(&mut random, json!({ "blockHash": block.hash }));
                let (status, answer) = logs(&program, &params).await;
                assert_eq!(answer, expected, "{}: {params}: {status}", real.name);
                if node.calls() > before {
                    break;
                }
                assert_eq!(status, "holdfast; hit; detail=bloom; proof=proved", "{}: {params}", real.name);
                excluded += 1;
            }
            assert_eq!(node.calls() - before, 1, "{}", real.name);
        }
        assert!(excluded > 0, "{}: {excluded}", real.name);
    }
}
