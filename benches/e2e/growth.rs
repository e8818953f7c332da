//! Cost of a hit by number of cached blocks and of connections, and memory use: `cargo bench --bench e2e -- --growth`.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use holdfast::devchain::{Config, DevChain, DevNode};
use serde::Serialize;

use crate::{
    cases::{Load, call, with_id},
    measure::{self, Round, rss_mib},
    plot,
    report::{Column, short},
    servers::{Kind, Server, Settings},
};

/// Numbers of cached blocks.
const SIZES: [u64; 3] = [1_000, 10_000, 100_000];

/// Numbers of active connections.
const CONNECTIONS: [usize; 3] = [1, 100, 10_000];

/// Number of cached blocks while the number of connections varies.
const WITH: u64 = 10_000;

/// Number of blocks of about the size of mainnet blocks, for churn.
const FULL_BLOCKS: u64 = 250;

/// Memory that the program may use in addition to the cache.
const BESIDE_MIB: f64 = 64.0;

/// Time between two samples of a server's memory.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, Serialize)]
pub struct Growth {
    machine: String,
    kept: Vec<Kept>,
    connected: Vec<Connected>,
    churned: Vec<Churned>,
}

/// Hits with a number of cached blocks.
#[derive(Debug, Serialize)]
struct Kept {
    blocks: u64,
    /// Size of the answers of the node.
    content_mib: f64,
    /// Size according to the cache.
    counted_mib: f64,
    /// Growth of the process.
    grown_mib: f64,
    rounds: Vec<Round>,
}

/// Hits with a number of connections.
#[derive(Debug, Serialize)]
struct Connected {
    connections: usize,
    rounds: Vec<Round>,
}

/// Memory while the cache constantly replaces its entries.
#[derive(Debug, Serialize)]
struct Churned {
    what: &'static str,
    cache_mib: f64,
    counted_mib: f64,
    /// Maximum resident memory.
    rss_mib: f64,
    /// Number of times that the whole cache was replaced.
    turns: f64,
}

/// Parameters of the benchmark.
pub struct Bench<'a> {
    pub binary: &'a Kind,
    pub core: usize,
    pub rounds: u32,
    pub seconds: u32,
}

struct World {
    chain: DevChain,
    node: SocketAddr,
    small: Vec<u64>,
    full: Vec<u64>,
}

// === impl Bench ===

impl Bench<'_> {
    pub fn run(&self, runtime: &tokio::runtime::Runtime, quick: bool) -> Growth {
        let most = if quick { SIZES[1] } else { SIZES[2] };
        let full = if quick { FULL_BLOCKS / 5 } else { FULL_BLOCKS };
        let chain = DevChain::new(Config { keep_calls: 0, ..Config::default() });
        eprintln!("a chain of {most} small blocks and {full} full ones");
        chain.mine_many(full as usize, 200);
        chain.mine_many(most as usize + 32, 1);
        let node = runtime.block_on(DevNode::start(chain.clone(), ([127, 0, 0, 1], 0).into())).unwrap();
        let world = World {
            node: node.address(),
            full: (1..=full).collect(),
            small: (full + 1..=full + most).collect(),
            chain,
        };
        let sizes = SIZES.into_iter().filter(|size| *size <= most);
        let kept = sizes.map(|blocks| self.kept(&world, blocks)).collect();
        let connected = self.connected(&world);
        let churned = vec![
            self.churned(&world, "small blocks", if quick { 8 } else { 64 }),
            self.churned(&world, "full blocks and their receipts", if quick { 16 } else { 64 }),
        ];
        Growth { machine: crate::machine::description(), kept, connected, churned }
    }

    fn start(&self, world: &World, cache_mib: u64) -> Server {
        let settings = Settings {
            flags: vec!["--cache-size".to_owned(), format!("{cache_mib} MiB")],
            environment: vec![
                ("HOLDFAST_CONNECTIONS__MAX", "12000".to_owned()),
                ("HOLDFAST_HTTP__MAX_IN_FLIGHT", "12000".to_owned()),
            ],
            ..Settings::default()
        };
        self.binary.start(world.node, self.core, &settings)
    }

    fn rounds(&self, server: &Server, load: &Load) -> Vec<Round> {
        load.write();
        (0..self.rounds).map(|round| measure::steady_round(server, load, self.seconds, round + 1)).collect()
    }

    fn kept(&self, world: &World, blocks: u64) -> Kept {
        eprintln!("{blocks} blocks");
        let server = self.start(world, 4096);
        let before = rss_mib(server.pid);
        let numbers = &world.small[..blocks as usize];
        let content = world.fill(&server, numbers);
        let grown_mib = rss_mib(server.pid) - before;
        let (_, counted) = server.cached();
        let rounds = self.rounds(&server, &Load::new("kept", "random", world.transactions(numbers)));
        Kept { blocks, content_mib: mib(content), counted_mib: mib(counted), grown_mib, rounds }
    }

    fn connected(&self, world: &World) -> Vec<Connected> {
        let server = self.start(world, 4096);
        let numbers = &world.small[..world.small.len().min(WITH as usize)];
        world.fill(&server, numbers);
        let bodies = world.transactions(numbers);
        let connected = |connections| {
            eprintln!("{connections} connections");
            let load = Load { connections, ..Load::new("connected", "random", bodies.clone()) };
            Connected { connections, rounds: self.rounds(&server, &load) }
        };
        CONNECTIONS.into_iter().map(connected).collect()
    }

    fn churned(&self, world: &World, what: &'static str, cache_mib: u64) -> Churned {
        eprintln!("churn of {what}");
        let server = self.start(world, cache_mib);
        let numbers = if what == "small blocks" { &world.small } else { &world.full };
        let by_number = |number: &u64| call("eth_getBlockByNumber", &format!(r#""{number:#x}",true"#));
        let mut bodies: Vec<String> = numbers.iter().map(by_number).collect();
        if what != "small blocks" {
            let receipts = |number: &u64| call("eth_getBlockReceipts", &format!(r#""{number:#x}""#));
            bodies = bodies.into_iter().zip(numbers.iter().map(receipts)).flat_map(<[_; 2]>::from).collect();
        }
        let load = Load { connections: 16, ..Load::new("churn", "cycle", bodies) };
        load.write();
        let (over, pid) = (AtomicBool::new(false), server.pid);
        let (rounds, most) = thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut most: f64 = 0.0;
                while !over.load(Relaxed) {
                    most = most.max(rss_mib(pid));
                    thread::sleep(LOOK);
                }
                most
            });
            let rounds = [self.seconds, self.seconds * self.rounds * 2]
                .map(|seconds| measure::round(&server, &load, seconds, 1, || world.chain.calls_total()));
            over.store(true, Relaxed);
            (rounds, watch.join().unwrap())
        });
        let [_, round] = &rounds;
        let stored =
            round.bytes_per_response * round.requests_per_second * f64::from(self.seconds * self.rounds * 2);
        Churned {
            what,
            cache_mib: cache_mib as f64,
            counted_mib: mib(server.cached().1),
            rss_mib: most,
            turns: stored / (cache_mib as f64 * 1024.0 * 1024.0),
        }
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0 / 1024.0
}

// === impl World ===

impl World {
    /// Requests each block once and returns the size of the answers.
    fn fill(&self, server: &Server, numbers: &[u64]) -> u64 {
        let mut connection = server.connect();
        let mut content = 0;
        for number in numbers {
            let body = with_id(&call("eth_getBlockByNumber", &format!(r#""{number:#x}",true"#)), 1);
            content += connection.post(body.as_bytes()).len() as u64;
        }
        content
    }

    fn transactions(&self, numbers: &[u64]) -> Vec<String> {
        let of = |number: &u64| self.chain.transactions_of(self.chain.hash_at(*number).unwrap());
        numbers
            .iter()
            .flat_map(of)
            .map(|hash| call("eth_getTransactionByHash", &format!(r#""{hash:#x}""#)))
            .collect()
    }
}

// === impl Growth ===

impl Growth {
    pub fn tables(&self) -> String {
        let mut out = format!("{}\n\n", self.machine);
        out += "| cached blocks | CPU µs/hit | p50 µs | p99 µs | content MiB | counted by the cache MiB | process grew by MiB | bytes of memory per byte of content |\n|---|---|---|---|---|---|---|---|\n";
        for kept in &self.kept {
            out += &format!(
                "| {} | {} | {} | {} | {} |\n",
                kept.blocks,
                hits(&kept.rounds),
                short(kept.content_mib),
                short(kept.counted_mib),
                format_args!("{} | {}", short(kept.grown_mib), short(kept.grown_mib / kept.content_mib))
            );
        }
        out += "\n| connections | CPU µs/hit | p50 µs | p99 µs | requests failed |\n|---|---|---|---|---|\n";
        for connected in &self.connected {
            let failed: u64 = connected.rounds.iter().map(|round| round.failed).sum();
            out += &format!("| {} | {} | {failed} |\n", connected.connections, hits(&connected.rounds));
        }
        out += "\n| replaced content | cache MiB | counted MiB | turnover | peak RSS MiB | RSS ÷ (cache + 64 MiB) | target |\n|---|---|---|---|---|---|---|\n";
        for churned in &self.churned {
            let ratio = churned.rss_mib / (churned.cache_mib + BESIDE_MIB);
            let verdict = match ratio {
                it if it <= 1.2 => "≤ 1.2: met",
                it if it <= 1.35 => "≤ 1.2: missed, within the worst allowed (1.35)",
                _ => "≤ 1.2: **missed**",
            };
            out += &format!(
                "| {} | {} | {} | {} × | {} | {} | {verdict} |\n",
                churned.what,
                short(churned.cache_mib),
                short(churned.counted_mib),
                short(churned.turns),
                short(churned.rss_mib),
                short(ratio)
            );
        }
        out
    }

    /// Plots the CPU time of a hit by number of cached blocks and of connections.
    pub fn plot(&self) -> String {
        let cpu = |rounds: &[Round]| column(rounds).spread(|round| round.cpu_us).map_or(0.0, |it| it.median);
        let kept = self.kept.iter().map(|it| (format!("{} cached blocks", it.blocks), cpu(&it.rounds)));
        let connected =
            self.connected.iter().map(|it| (format!("{} connections", it.connections), cpu(&it.rounds)));
        let bars: Vec<(String, f64)> = kept.chain(connected).collect();
        let most = bars.iter().map(|(_, value)| *value).fold(1.0, f64::max);
        let mut out = plot::begin(640.0, 50.0 + bars.len() as f64 * 24.0);
        out += &plot::text(8.0, 18.0, "start", "", "CPU for a hit, in µs");
        for (at, (label, value)) in bars.iter().enumerate() {
            let y = at as f64 * 24.0 + 36.0;
            let width = value / most * 380.0;
            out += &plot::text(170.0, y + 12.0, "end", "", label);
            out += &format!(
                "<rect x=\"180\" y=\"{y}\" width=\"{width:.1}\" height=\"16\" rx=\"2\" fill=\"#2f81f7\"/>\n"
            );
            out += &plot::text(186.0 + width, y + 12.0, "start", "soft", &short(*value));
        }
        out + "</svg>\n"
    }
}

fn column(rounds: &[Round]) -> Column {
    Column { server: String::new(), rounds: rounds.to_vec() }
}

fn hits(rounds: &[Round]) -> String {
    let column = column(rounds);
    let show =
        |value: fn(&Round) -> f64| column.spread(value).map_or("–".to_owned(), |it| short(it.median));
    let cpu = column.spread(|round| round.cpu_us).map_or("–".to_owned(), |it| it.to_string());
    format!("{cpu} | {} | {}", show(|round| round.p50_us), show(|round| round.p99_us))
}
