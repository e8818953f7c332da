//! Defines the cases: the requests that the load generator sends to each server.

use std::{fs, io::Write};

use bytes::Bytes;
use holdfast::devchain::{Config, DevChain};

use crate::{folder, servers::Settings};

/// Number of blocks of about the size of mainnet blocks.
const FULL_BLOCKS: u64 = 60;
const FULL: usize = 200;

/// Number of blocks with one transaction. For these, fetching the whole block has no advantage.
const SMALL_BLOCKS: usize = 10_000;

/// Number of blocks above all requested blocks, so that the requested ones are final.
const YOUNG_BLOCKS: usize = 32;

const CONNECTIONS: usize = 64;

/// Number of connections in cases where no two may ask for the same block at the same time and share a fetch.
const FEW: usize = 16;

/// Size of a cache that is too small for the requests, so that cycling through them always misses.
const TINY: &str = "1 MiB";

/// Load of one kind.
#[derive(Clone, Debug)]
pub struct Load {
    pub name: &'static str,
    pub mode: &'static str,
    pub bodies: Vec<String>,
    pub others: Option<Vec<String>>,
    pub header: Option<&'static str>,
    pub connections: usize,
    /// Number of additional idle connections.
    pub idle: usize,
}

/// One load on all servers.
#[derive(Debug)]
pub struct Case {
    pub name: &'static str,
    pub title: &'static str,
    pub load: Load,
    /// Another load on Holdfast in the same rounds, for comparison.
    pub beside: Option<(&'static str, Load)>,
    /// Bodies that warm up every server before the measurement.
    pub warm: Vec<String>,
    pub settings: Settings,
    /// Whether a comparison with the limit makes sense. `with_proxy_cache` is whether a comparison with a cache keyed
    /// by request bodies does.
    pub with_limit: bool,
    pub with_proxy_cache: bool,
}

/// The chain behind the servers.
pub struct Asked {
    pub chain: DevChain,
    full: Vec<String>,
    /// Transactions of full blocks. `single` has those of small blocks.
    transactions: Vec<String>,
    single: Vec<String>,
}

// === impl Load ===

impl Load {
    pub fn new(name: &'static str, mode: &'static str, bodies: Vec<String>) -> Self {
        Self { name, mode, bodies, others: None, header: None, connections: CONNECTIONS, idle: 0 }
    }

    pub fn file(&self, part: &str) -> String {
        format!("{}.{part}", self.name)
    }

    /// Writes the bodies into files for the load generator.
    pub fn write(&self) {
        for (part, bodies) in [("bodies", Some(&self.bodies)), ("others", self.others.as_ref())] {
            let Some(bodies) = bodies else { continue };
            let mut file = fs::File::create(folder().join(self.file(part))).unwrap();
            file.write_all(bodies.join("\n").as_bytes()).unwrap();
            file.write_all(b"\n").unwrap();
        }
    }
}

/// Inserts the id into a body.
pub fn with_id(body: &str, id: u64) -> String {
    body.replace('@', &id.to_string())
}

// === impl Asked ===

impl Asked {
    pub fn new() -> Self {
        let chain = DevChain::new(Config { keep_calls: 0, ..Config::default() });
        chain.mine_many(FULL_BLOCKS as usize, FULL);
        chain.mine_many(SMALL_BLOCKS, 1);
        chain.mine_many(YOUNG_BLOCKS, 1);
        let hash = |number| chain.hash_at(number).unwrap();
        let transactions_of =
            |number| chain.transactions_of(hash(number)).into_iter().map(|it| format!("{it:#x}"));
        let small = FULL_BLOCKS + 1..=FULL_BLOCKS + SMALL_BLOCKS as u64;
        Self {
            full: (1..=FULL_BLOCKS).map(|number| format!("{:#x}", hash(number))).collect(),
            // These are 10,000 transactions in 50 blocks.
            transactions: (1..=50).flat_map(transactions_of).collect(),
            single: small.flat_map(transactions_of).collect(),
            chain,
        }
    }

    /// Returns the node's own answer to a request body.
    pub fn truth(&self, body: &str) -> Bytes {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        match runtime.block_on(self.chain.serve(body.to_owned().into())) {
            holdfast::devchain::NodeResponse::Reply { body, .. } => body,
            other => panic!("{other:?}"),
        }
    }

    /// Returns an answer of average length.
    pub fn typical(&self, bodies: &[String]) -> Bytes {
        let some = bodies.iter().step_by(bodies.len().div_ceil(500));
        let answers: Vec<Bytes> = some.map(|body| self.truth(&with_id(body, 1_000_000_000))).collect();
        let mean = answers.iter().map(Bytes::len).sum::<usize>() / answers.len();
        answers.into_iter().min_by_key(|answer| answer.len().abs_diff(mean)).unwrap()
    }

    fn blocks(&self, full: bool) -> Vec<String> {
        self.full[..50]
            .iter()
            .map(|hash| call("eth_getBlockByHash", &format!(r#""{hash}",{full}"#)))
            .collect()
    }

    fn transaction_calls(&self) -> Vec<String> {
        self.transactions
            .iter()
            .map(|hash| call("eth_getTransactionByHash", &format!(r#""{hash}""#)))
            .collect()
    }

    fn receipt_calls(&self) -> Vec<String> {
        self.transactions
            .iter()
            .map(|hash| call("eth_getTransactionReceipt", &format!(r#""{hash}""#)))
            .collect()
    }

    fn lone_calls(&self) -> Vec<String> {
        self.single.iter().map(|hash| call("eth_getTransactionByHash", &format!(r#""{hash}""#))).collect()
    }

    /// Returns 100 batches of 100 transactions each, spread over all blocks.
    fn batches(&self) -> Vec<String> {
        let calls = self.transaction_calls();
        let batch = |first: usize| {
            let entry =
                |at: usize| calls[(first + at * 101) % calls.len()].replace('@', &format!("@{at:02}"));
            format!("[{}]", (0..100).map(entry).collect::<Vec<_>>().join(","))
        };
        (0..100).map(|first| batch(first * 37)).collect()
    }

    pub fn cases(&self) -> Vec<Case> {
        let hit = |name, title, load| Case {
            name,
            title,
            load,
            beside: None,
            warm: self.blocks(true),
            settings: Settings::default(),
            with_limit: true,
            with_proxy_cache: false,
        };
        let miss = |name, title, load, flags: &[&str]| Case {
            warm: Vec::new(),
            settings: Settings {
                flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
                dict: Some("64k"),
                ..Settings::default()
            },
            with_limit: false,
            with_proxy_cache: true,
            ..hit(name, title, load)
        };
        let transactions = || Load::new("txs", "random", self.transaction_calls());
        let full_blocks = || Load::new("block", "random", self.blocks(true));
        // Requests by number are the most common.
        let with_hashes =
            (1..=50).map(|number| call("eth_getBlockByNumber", &format!(r#""{number:#x}",false"#)));
        let receipts_of =
            self.full[..50].iter().map(|hash| call("eth_getBlockReceipts", &format!(r#""{hash}""#)));
        let (small_cache, size) = ("--cache-size", TINY);
        vec![
            Case {
                with_proxy_cache: true,
                ..hit(
                    "tx",
                    "one transaction, one id",
                    Load::new("tx", "same", self.transaction_calls()[..1].to_vec()),
                )
            },
            hit("txs", "10,000 transactions", transactions()),
            Case {
                warm: self.blocks(true).into_iter().chain(receipts_of).collect(),
                ..hit("receipts", "10,000 receipts", Load::new("receipts", "random", self.receipt_calls()))
            },
            hit("hashes", "block, hashes only", Load::new("hashes", "random", with_hashes.collect())),
            hit("block", "block, 200 transactions", full_blocks()),
            Case {
                beside: Some(("one transaction", transactions())),
                ..hit("batch", "batch of 100 transactions", Load::new("batch", "random", self.batches()))
            },
            Case {
                beside: Some(("not compressed", full_blocks())),
                ..hit(
                    "gzip",
                    "block, gzip",
                    Load { header: Some("Accept-Encoding: gzip"), name: "gzip", ..full_blocks() },
                )
            },
            hit("c1", "transactions, 1 connection", Load { connections: 1, name: "c1", ..transactions() }),
            Case {
                settings: Settings {
                    environment: vec![("HOLDFAST_CONNECTIONS__MAX", "2048".to_owned())],
                    ..Settings::default()
                },
                ..hit(
                    "idle",
                    "transactions, 1,000 idle connections",
                    Load { idle: 1000, name: "idle", ..transactions() },
                )
            },
            Case {
                warm: self.blocks(true)[..5].to_vec(),
                settings: Settings {
                    flags: vec!["--cache-size".to_owned(), "2 MiB".to_owned()],
                    dict: Some("2m"),
                    ..Settings::default()
                },
                with_limit: false,
                ..hit(
                    "mix",
                    "9 of 10 hit",
                    Load {
                        others: Some(self.lone_calls()),
                        ..Load::new("mix", "mix", self.transaction_calls()[..1000].to_vec())
                    },
                )
            },
            miss(
                "miss",
                "miss: transaction",
                Load::new("miss", "cycle", self.lone_calls()),
                &["--verify", "structural", small_cache, size],
            ),
            miss(
                "miss-proved",
                "miss: transaction, proved",
                Load::new("miss-proved", "cycle", self.lone_calls()),
                &[small_cache, size],
            ),
            miss(
                "miss-block",
                "miss: block",
                Load { connections: FEW, ..Load::new("miss-block", "cycle", self.blocks(true)) },
                &["--verify", "structural", small_cache, "1 MiB"],
            ),
            miss(
                "miss-block-proved",
                "miss: block, proved",
                Load { connections: FEW, ..Load::new("miss-block-proved", "cycle", self.blocks(true)) },
                &[small_cache, "1 MiB"],
            ),
        ]
    }
}

/// Returns a call with a placeholder for the id.
pub fn call(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":@,"method":"{method}","params":[{params}]}}"#)
}
