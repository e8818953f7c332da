//! A chain, the proxy in front of it, a naive cache to compare with, and a record of all requests.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use alloy_primitives::{B256, TxHash};
use bytes::Bytes;
use holdfast::{
    config::Config,
    devchain::{self, DevChain, RecordedCall},
};
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use crate::{
    chains,
    in_memory::{self, InMemory},
    plan::{Event, Need},
};

/// The default of `chain.max_staleness`.
pub const STALENESS: Duration = Duration::from_secs(1);

/// A request of a client.
#[derive(Clone, Debug)]
pub enum Ask {
    ChainId,
    BlockNumber,
    Latest { full: bool },
    Block { number: u64, full: bool },
    BlockByHash { hash: B256, full: bool },
    Transaction(TxHash),
    TransactionAt { number: u64, index: usize },
    Receipt(TxHash),
    BlockReceipts { number: u64 },
    Send { raw: String },
}

pub struct World {
    pub chain: DevChain,
    pub random: fastrand::Rng,
    program: InMemory,
    begun: Instant,
    changed: Instant,
    events: Vec<Event>,
    received: Vec<Received>,
    straw: StrawMan,
}

/// A call that the node received, and the block that it named or that contained its transaction at that time.
pub struct Received {
    call: RecordedCall,
    block: Option<B256>,
}

/// The cost of a workload.
pub struct Cost {
    pub events: Vec<Event>,
    /// Calls that the proxy made for clients.
    pub content: Vec<Received>,
    pub upkeep: usize,
    pub straw: u64,
    /// Answers of the naive cache that differ from the node's answer at that time.
    pub straw_wrong: u64,
}

/// A naive cache that keeps every answer by method and parameters for ever, except nulls and reads of the head.
#[derive(Debug, Default)]
struct StrawMan {
    answers: HashMap<(String, String), Bytes>,
    calls: u64,
    wrong: u64,
}

// === impl World ===

impl World {
    /// Creates a chain of `blocks` blocks of `transactions` transactions each, in which all but the last sixteen are
    /// final. The blocks are so far apart that, except for the newest final blocks, one answer is enough to make a
    /// block final.
    pub fn new(seed: u64, blocks: usize, transactions: usize) -> Self {
        Self::with_slots(seed, blocks, transactions, 600)
    }

    /// Same as [`World::new`], but with `slot_seconds` seconds between two blocks.
    pub fn with_slots(seed: u64, blocks: usize, transactions: usize, slot_seconds: u64) -> Self {
        let config =
            devchain::Config { keep_calls: 1_000_000, seed, slot_seconds, ..devchain::Config::default() };
        let chain = chains::chain(&config, blocks, transactions);
        let program = in_memory::program(&chain, &Config::default());
        let (begun, changed) = (Instant::now(), Instant::now());
        let random = fastrand::Rng::with_seed(seed);
        Self {
            chain,
            random,
            program,
            begun,
            changed,
            events: Vec::new(),
            received: Vec::new(),
            straw: StrawMan::default(),
        }
    }

    pub async fn sleep(&self, time: Duration) {
        time::sleep(time).await;
    }

    /// Changes the chain.
    pub fn change<T>(&mut self, change: impl FnOnce(&DevChain) -> T) -> T {
        self.changed = Instant::now();
        self.receive();
        change(&self.chain)
    }

    pub fn hash_at(&self, number: u64) -> B256 {
        self.chain.hash_at(number).unwrap()
    }

    pub fn transactions(&self, number: u64) -> Vec<TxHash> {
        self.chain.transactions_of(self.hash_at(number))
    }

    pub async fn ask(&mut self, ask: Ask) -> Value {
        self.ask_all(vec![ask]).await.remove(0)
    }

    /// Sends the calls in one request.
    pub async fn ask_all(&mut self, asks: Vec<Ask>) -> Vec<Value> {
        let calls: Vec<_> = asks.iter().map(Ask::call).collect();
        for (ask, (method, params)) in asks.iter().zip(&calls) {
            let event = self.event(ask);
            self.events.push(event);
            self.straw.ask(&self.chain, ask, method, params);
        }
        let writes = asks.iter().any(|ask| matches!(ask, Ask::Send { .. }));
        let truth = |(method, params): &(&str, Value)| -> Value {
            serde_json::from_slice(&self.chain.answer(method, params).unwrap()).unwrap()
        };
        // A write must not be sent twice.
        let truths: Vec<Value> = if writes { Vec::new() } else { calls.iter().map(truth).collect() };
        let answers = if let [(method, params)] = &calls[..] {
            vec![self.program.ask(method, params.clone()).await]
        } else {
            self.program.batch(&calls).await
        };
        self.receive();
        let settled = self.changed.elapsed() > STALENESS || self.events.len() == asks.len();
        if settled && !writes {
            assert_eq!(answers, truths, "{calls:?}");
        }
        if writes {
            self.changed = Instant::now();
        }
        answers
    }

    /// Moves the calls that the node received into `received`, with their blocks. Must run before the chain changes.
    fn receive(&mut self) {
        let block_of = |call: &RecordedCall| {
            let params: Value = serde_json::from_str(&call.params).ok()?;
            let name = params[0].as_str()?;
            if name == "latest" {
                return Some(self.chain.head().hash);
            }
            let is_single =
                matches!(call.method.as_str(), "eth_getTransactionByHash" | "eth_getTransactionReceipt");
            match name.parse::<B256>() {
                Ok(hash) if is_single => self.chain.location(hash).map(|(block, _)| block),
                Ok(hash) => Some(hash),
                Err(_) => self.chain.hash_at(u64::from_str_radix(name.strip_prefix("0x")?, 16).ok()?),
            }
        };
        let calls = self.chain.calls();
        self.received.extend(calls.into_iter().map(|call| Received { block: block_of(&call), call }));
        self.chain.clear_calls();
    }

    pub fn cost(mut self) -> Cost {
        self.receive();
        let mut full = HashSet::new();
        let (upkeep, content): (Vec<_>, Vec<_>) = self.received.into_iter().partition(|it| {
            // A full head is content if it brings a new block, and else a refresh of the head.
            let is_new = it.is_full_block() && full.insert(it.block);
            is_upkeep(&it.call) || (it.is_full_block() && it.names_head() && !is_new)
        });
        let (straw, straw_wrong) = (self.straw.calls, self.straw.wrong);
        Cost { events: self.events, content, upkeep: upkeep.len(), straw, straw_wrong }
    }

    fn event(&self, ask: &Ask) -> Event {
        let head = self.chain.head();
        let young = |number| self.chain.finalized().is_none_or(|last| number > last);
        let at = |number: u64| self.chain.hash_at(number);
        let located = |hash: TxHash| self.chain.location(hash).map(|(block, _)| block);
        let (need, reads_head) = match *ask {
            Ask::ChainId => (Need::View, false),
            Ask::BlockNumber => (Need::View, true),
            Ask::Latest { full } => (Need::Block { block: head.hash, with_hashes: !full }, true),
            Ask::Block { number, full } => (
                at(number).map_or(Need::View, |block| Need::Block { block, with_hashes: !full }),
                young(number),
            ),
            Ask::BlockByHash { hash, full } => (Need::Block { block: hash, with_hashes: !full }, false),
            // The call names the block, so fetching the whole block costs no more.
            Ask::TransactionAt { number, .. } => (
                at(number).map_or(Need::View, |block| Need::Block { block, with_hashes: false }),
                young(number),
            ),
            Ask::Transaction(hash) => match located(hash) {
                Some(block) => (Need::Transaction { block, hash }, false),
                None => (Need::Forward, false),
            },
            Ask::Receipt(hash) => match located(hash) {
                Some(block) => (Need::Receipt { block, hash }, false),
                None => (Need::NoReceipt { hash }, true),
            },
            Ask::BlockReceipts { number } => {
                (at(number).map_or(Need::View, |block| Need::Receipts { block }), young(number))
            }
            Ask::Send { .. } => (Need::Write, false),
        };
        Event { at: self.begun.elapsed(), head: head.hash, reads_head, need }
    }
}

/// Returns whether the call is for the chain id, a head, finality or a gap between heads. For clients, the proxy derives
/// blocks with hashes from full ones, so only upkeep asks for blocks with hashes.
pub fn is_upkeep(call: &RecordedCall) -> bool {
    match call.method.as_str() {
        "eth_chainId" | "net_version" => true,
        "eth_getBlockByNumber" | "eth_getBlockByHash" => call.params.ends_with("false]"),
        _ => false,
    }
}

// === impl Received ===

impl Received {
    fn is_full_block(&self) -> bool {
        self.is_any(&["eth_getBlockByHash", "eth_getBlockByNumber"]) && self.call.params.ends_with("true]")
    }

    fn names_head(&self) -> bool {
        self.call.params.contains("latest")
    }

    fn is_any(&self, methods: &[&str]) -> bool {
        methods.contains(&self.call.method.as_str())
    }
}

// === impl Cost ===

impl Cost {
    /// Describes the calls by purpose.
    pub fn breakdown(&self) -> String {
        let of = |methods: &'static [&str]| self.content.iter().filter(|it| it.is_any(methods));
        let blocks = || of(&["eth_getBlockByHash", "eth_getBlockByNumber"]);
        let receipts = || of(&["eth_getBlockReceipts"]);
        // Counts entries that were fetched alone, although the proxy also fetched the whole block before or after.
        let twice = |alone: &'static [&str], whole: HashSet<B256>| {
            of(alone).filter(|it| it.block.is_some_and(|block| whole.contains(&block))).count()
        };
        let (transaction, receipt): (&[_], &[_]) =
            (&["eth_getTransactionByHash"], &["eth_getTransactionReceipt"]);
        format!(
            "{} blocks, {} receipts of blocks; alone {} transactions ({} of blocks that were fetched too) and {} receipts ({} \
             of blocks whose receipts were fetched too); {} nulls, {} forwarded",
            blocks().count(),
            receipts().count(),
            of(transaction).filter(|it| it.block.is_some()).count(),
            twice(transaction, blocks().filter_map(|it| it.block).collect()),
            of(receipt).filter(|it| it.block.is_some()).count(),
            twice(receipt, receipts().filter_map(|it| it.block).collect()),
            of(receipt).chain(of(transaction)).filter(|it| it.block.is_none()).count(),
            of(&["eth_sendRawTransaction"]).count(),
        )
    }
}

// === impl Ask ===

impl Ask {
    fn call(&self) -> (&'static str, Value) {
        let number = |number: &u64| format!("{number:#x}");
        match self {
            Self::ChainId => ("eth_chainId", json!([])),
            Self::BlockNumber => ("eth_blockNumber", json!([])),
            Self::Latest { full } => ("eth_getBlockByNumber", json!(["latest", full])),
            Self::Block { number: at, full } => ("eth_getBlockByNumber", json!([number(at), full])),
            Self::BlockByHash { hash, full } => ("eth_getBlockByHash", json!([hash, full])),
            Self::Transaction(hash) => ("eth_getTransactionByHash", json!([hash])),
            Self::TransactionAt { number: at, index } => {
                ("eth_getTransactionByBlockNumberAndIndex", json!([number(at), format!("{index:#x}")]))
            }
            Self::Receipt(hash) => ("eth_getTransactionReceipt", json!([hash])),
            Self::BlockReceipts { number: at } => ("eth_getBlockReceipts", json!([number(at)])),
            Self::Send { raw } => ("eth_sendRawTransaction", json!([raw])),
        }
    }
}

// === impl StrawMan ===

impl StrawMan {
    fn ask(&mut self, chain: &DevChain, ask: &Ask, method: &str, params: &Value) {
        if matches!(ask, Ask::Send { .. }) {
            self.calls += 1;
            return;
        }
        let truth = chain.answer(method, params).unwrap();
        let key = (method.to_owned(), params.to_string());
        if let Some(kept) = self.answers.get(&key) {
            self.wrong += u64::from(*kept != truth);
            return;
        }
        self.calls += 1;
        let changes = matches!(ask, Ask::BlockNumber | Ask::Latest { .. }) || truth == "null";
        // A pending transaction has no block hash.
        let waits = truth.starts_with(b"{") && find(&truth, br#""blockHash":null"#);
        if !changes && !waits {
            self.answers.insert(key, truth);
        }
    }
}

fn find(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|window| window == what)
}
