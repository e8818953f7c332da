//! A chain, and tiers filled with its final blocks.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use holdfast::{
    cache::{
        Disk, DiskConfig,
        redis::{Redis, RedisConfig},
        tier::{ChainKey, Part, Record, Sealed, Tier},
    },
    devchain::{self, DevChain},
    eth::{BlockHash, BlockNumber, Home, TxHash},
    verify::prove,
};
use tokio::time::Instant;

use crate::{folder, short};

/// Number of blocks requested under load. They are far more than fit into the memory cache, and few enough for a
/// Redis on any machine.
pub const ASKED: u64 = 1000;

pub struct Filled {
    pub chain: DevChain,
    /// Number of final blocks, all of them on disk. The first one is block 1.
    pub blocks: u64,
    pub data: PathBuf,
    /// Contains the blocks that the load requests.
    pub redis: Option<RedisServer>,
    transactions: usize,
    /// Size of the JSON of all blocks and receipts.
    raw: u64,
    on_disk: u64,
    filled_in: Duration,
}

/// A redis-server of this benchmark. Killed when dropped.
pub struct RedisServer {
    pub url: String,
    child: Child,
}

// === impl Filled ===

impl Filled {
    pub async fn new(blocks: u64, transactions: usize) -> Self {
        eprintln!("making {blocks} blocks of {transactions} transactions");
        let chain = DevChain::new(devchain::Config { keep_calls: 0, ..devchain::Config::default() });
        chain.mine_many(usize::try_from(blocks).unwrap(), transactions);
        chain.mine_many(32, 0);
        let data = folder().join("data");
        let _ = fs::remove_dir_all(&data);
        let redis = RedisServer::start();
        if redis.is_none() {
            eprintln!("LEFT OUT: Redis: redis-server is not installed");
        }
        let (mut raw, begun) = (0, Instant::now());
        {
            let disk = Disk::open(&DiskConfig::new(&data)).unwrap();
            let patient = |url: &String| RedisConfig {
                timeout: Duration::from_secs(5),
                ..RedisConfig::at(url.clone())
            };
            let shared = redis.as_ref().map(|redis| Redis::try_new(&patient(&redis.url)).unwrap());
            for number in 1..=blocks {
                for record in records(&chain, number, &mut raw) {
                    if let Some(shared) = shared.as_ref().filter(|_| number <= ASKED) {
                        put(shared, key(&chain), record.clone()).await;
                    }
                    put(&disk, key(&chain), record).await;
                }
            }
            for tier in
                [Some(&disk as &dyn Tier), shared.as_ref().map(|it| it as &dyn Tier)].into_iter().flatten()
            {
                tier.follow(Some(key(&chain))).await.unwrap();
            }
        }
        let (on_disk, filled_in) = (size(&data), begun.elapsed());
        Self { chain, blocks, data, redis, transactions, raw, on_disk, filled_in }
    }

    pub fn says(&self) -> String {
        format!("{} blocks of {} transactions each, with their receipts.", self.blocks, self.transactions)
    }

    pub fn table(&self) -> String {
        let each = |bytes: u64| bytes as f64 / self.blocks as f64 / 1000.0;
        format!(
            "| on disk | kB a block |\n|---|---|\n| raw JSON, block and receipts | {} |\n| directory, index included | {} |\n| directory ÷ raw | {} |\n\nOne thread fills the directory at {} blocks per second, compression included.\n",
            short(each(self.raw)),
            short(each(self.on_disk)),
            short(self.on_disk as f64 / self.raw as f64),
            short(self.blocks as f64 / self.filled_in.as_secs_f64()),
        )
    }
}

fn key(chain: &DevChain) -> ChainKey {
    ChainKey { id: chain.config().chain_id, genesis: chain.hash_at(0).unwrap() }
}

/// Returns the parts of a block as Holdfast writes them to a tier.
fn records(chain: &DevChain, number: u64, raw: &mut u64) -> [Record; 3] {
    let hash = chain.hash_at(number).unwrap();
    let texts = [chain.block_json(hash, true).unwrap(), chain.receipts_json(hash).unwrap()];
    *raw += texts.iter().map(|text| text.len() as u64).sum::<u64>();
    let transactions: Vec<_> = chain.transactions_of(hash).into_iter().map(TxHash).collect();
    let header = Sealed::new(&prove::raw::header(&texts[0]).unwrap()).unwrap();
    let [block, receipts] = texts.map(|text| Sealed::new(&text).unwrap());
    let home = Home { number: BlockNumber(number), block: BlockHash(hash) };
    let record = |part, transactions, value| Record { home, part, transactions, value };
    [
        record(Part::Block, transactions, block),
        record(Part::Header, Vec::new(), header),
        record(Part::Receipts, Vec::new(), receipts),
    ]
}

async fn put(tier: &dyn Tier, chain: ChainKey, record: Record) {
    tier.put(chain, record).await.unwrap();
}

fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let sizes = entries.map(|entry| {
        let metadata = entry.metadata().unwrap();
        if metadata.is_dir() { size(&entry.path()) } else { metadata.len() }
    });
    sizes.sum()
}

// === impl RedisServer ===

impl RedisServer {
    fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--dir", folder().to_str().unwrap()])
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Self { url: format!("redis://127.0.0.1:{port}"), child })
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
