//! Cache hits in parallel with cold reads (of blocks that are not cached), whose proofs compete for the same core:
//! `cargo bench --bench e2e -- --cold`.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use holdfast::devchain::{Config, DevChain, DevNode};
use serde::Serialize;
use tokio::time::Instant;

use crate::{
    cases::{call, with_id},
    report::short,
    servers::{Connection, Kind, Server, Settings},
};

/// Number of readers of cold blocks. Each has its own blocks, so that no two share a fetch.
const READERS: usize = 16;

const BLOCKS: u64 = 64;
const TRANSACTIONS: usize = 300;

/// Cache size. It has room for the cached answer and about four of the blocks, so that each block is evicted before
/// its next read.
const CACHE: &str = "1 MiB";

/// Niceness of the load. It yields to the reader of cached answers on the same core, because the benchmark measures the
/// server and not the load.
const NICENESS: i32 = 10;

/// Length of the warm-up before a measurement.
const LEAD: Duration = Duration::from_secs(1);

#[derive(Debug, Serialize)]
pub struct Cold {
    machine: String,
    servers: Vec<Measured>,
}

/// Results of one build: the median round of each case.
#[derive(Debug, Serialize)]
struct Measured {
    server: String,
    undisturbed: Hits,
    /// Hits in parallel with cold reads that Holdfast proves.
    proved: Hits,
    /// Hits in parallel with cold reads that Holdfast checks structurally.
    structural: Hits,
}

/// Cache hits in one round.
#[derive(Clone, Copy, Debug, Serialize)]
struct Hits {
    p50_us: f64,
    p99_us: f64,
    most_us: f64,
    per_second: f64,
    /// Cold blocks read in parallel.
    blocks_per_second: f64,
}

/// Parameters of the benchmark.
pub struct Bench<'a> {
    pub builds: &'a [Kind],
    pub core: usize,
    pub rounds: u32,
    pub seconds: u32,
}

struct World {
    node: DevNode,
    hit: String,
    cold: Vec<String>,
}

// === impl Bench ===

impl Bench<'_> {
    pub fn run(&self) -> Cold {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .on_thread_start(give_way)
            .build()
            .unwrap();
        eprintln!("a chain of {BLOCKS} blocks of {TRANSACTIONS} transactions");
        let chain = DevChain::new(Config { keep_calls: 0, ..Config::default() });
        chain.mine_many(BLOCKS as usize, TRANSACTIONS);
        chain.mine_many(BLOCKS as usize, 1);
        let by_hash =
            |number| call("eth_getBlockByHash", &format!(r#""{:#x}",true"#, chain.hash_at(number).unwrap()));
        let (hit, cold) = (by_hash(BLOCKS + 1), (1..=BLOCKS).map(by_hash).collect());
        let node = runtime.block_on(DevNode::start(chain.clone(), ([127, 0, 0, 1], 0).into())).unwrap();
        let world = World { node, hit, cold };
        let servers = self.builds.iter().map(|build| self.measure(build, &world)).collect();
        Cold { machine: crate::machine::description(), servers }
    }

    fn measure(&self, build: &Kind, world: &World) -> Measured {
        eprintln!("{}", build.name());
        let start = |flags: &[&str]| {
            let flags = ["--cache-size", CACHE].iter().chain(flags).map(|&flag| flag.to_owned());
            let settings = Settings { flags: flags.collect(), ..Settings::default() };
            build.start(world.node.address(), self.core, &settings)
        };
        // The servers run one after the other, because two servers would compete for one core.
        let server = start(&[]);
        let mut alone = Vec::new();
        let mut proved = Vec::new();
        for _ in 0..self.rounds {
            alone.push(self.round(&server, world, 0));
            proved.push(self.round(&server, world, READERS));
        }
        drop(server);
        let server = start(&["--verify", "structural"]);
        let structural = (0..self.rounds).map(|_| self.round(&server, world, READERS)).collect();
        Measured {
            server: build.name().to_owned(),
            undisturbed: median(alone),
            proved: median(proved),
            structural: median(structural),
        }
    }

    fn round(&self, server: &Server, world: &World, readers: usize) -> Hits {
        let (over, blocks) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for reader in 0..readers {
                let bodies = world.cold.iter().skip(reader).step_by(READERS).cycle();
                let (mut connection, over, blocks) = (server.connect(), &over, &blocks);
                scope.spawn(move || {
                    give_way();
                    for body in bodies.take_while(|_| !over.load(Relaxed)) {
                        connection.post(with_id(body, 1).as_bytes());
                        if !is_hit(&connection) {
                            blocks.fetch_add(1, Relaxed);
                        }
                    }
                });
            }
            let mut connection = server.connect();
            let body = with_id(&world.hit, 1);
            let begun = Instant::now();
            while begun.elapsed() < LEAD {
                connection.post(body.as_bytes());
            }
            let before = blocks.load(Relaxed);
            let (begun, mut took) = (Instant::now(), Vec::new());
            while begun.elapsed() < Duration::from_secs(self.seconds.into()) {
                let sent = Instant::now();
                connection.post(body.as_bytes());
                assert!(is_hit(&connection), "the answer is no longer cached");
                took.push(sent.elapsed());
            }
            let elapsed = begun.elapsed().as_secs_f64();
            let after = blocks.load(Relaxed);
            over.store(true, Relaxed);
            took.sort_unstable();
            let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
            Hits {
                p50_us: at(0.5),
                p99_us: at(0.99),
                most_us: at(1.0),
                per_second: took.len() as f64 / elapsed,
                blocks_per_second: (after - before) as f64 / elapsed,
            }
        })
    }
}

fn give_way() {
    rustix::process::nice(NICENESS).unwrap();
}

fn is_hit(connection: &Connection) -> bool {
    connection.head().contains("cache-status: holdfast; hit")
}

/// Returns the round with the median p99.
fn median(mut rounds: Vec<Hits>) -> Hits {
    rounds.sort_by(|one, other| one.p99_us.total_cmp(&other.p99_us));
    rounds[rounds.len() / 2]
}

// === impl Cold ===

impl Cold {
    pub fn table(&self) -> String {
        let mut out = format!(
            "{}\n\nOne reader of a cached block beside {READERS} readers of cold blocks of {TRANSACTIONS} transactions.\n\n",
            self.machine
        );
        out += "| build | beside | p50 µs | p99 µs | most µs | hits/s | cold blocks/s | p99, of the most allowed |\n";
        out += "|---|---|---|---|---|---|---|---|\n";
        for Measured { server, undisturbed, proved, structural } in &self.servers {
            let allowed = (undisturbed.p99_us * 5.0).max(structural.p99_us * 2.0);
            let verdict = format!(
                "{} of {} µs: {}",
                short(proved.p99_us),
                short(allowed),
                if proved.p99_us <= allowed { "met" } else { "**missed**" }
            );
            for (beside, hits, verdict) in [
                ("nothing", undisturbed, ""),
                ("cold reads, proved", proved, &verdict),
                ("cold reads, structural", structural, ""),
            ] {
                let shown = [hits.p50_us, hits.p99_us, hits.most_us, hits.per_second, hits.blocks_per_second];
                let shown = shown.map(short).join(" | ");
                out += &format!("| {server} | {beside} | {shown} | {verdict} |\n");
            }
        }
        out
    }
}
