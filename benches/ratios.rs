//! Hit ratios of the cache and of a plain LRU under four kinds of workloads. Each has room for a quarter of the data:
//! `cargo bench --bench ratios`.
//!
//! The workloads are the same in each run; the ratios of the hot set vary by some points, because TinyLFU seeds its sketch
//! randomly.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot continue should panic at that line")]

#[path = "shared/blocks.rs"]
mod blocks;

use std::iter::repeat_n;

use bytesize::ByteSize;
use holdfast::{
    cache::{Cache, Config, Metrics},
    eth::{Block, BlockNumber},
    verify::Verified,
};
use moka::{policy::EvictionPolicy, sync};

/// Number of blocks.
const BLOCKS: usize = 2_000;

/// A step of a workload.
#[derive(Clone, Copy)]
enum Step {
    /// Sets the head of the chain.
    Head(usize),
    /// A client reads this block.
    Read(usize),
    /// A scan reads this block; the ratio does not include it.
    Scan(usize),
}

/// A cache of blocks.
trait Keeps {
    /// Returns whether the block was cached, and stores it if not.
    fn read(&self, at: usize, block: &Verified<Block>) -> bool;

    fn set_head(&self, _: usize) {}
}

/// A plain LRU that uses the same weights as the cache.
struct Lru(sync::Cache<usize, ()>);

fn main() {
    let mut chance = Chance(7);
    let data: Vec<Verified<Block>> = (0..BLOCKS as u64)
        .map(|number| {
            let transactions = 5 + chance.below(40) as u64;
            blocks::block(
                number,
                (0..transactions).map(|index| blocks::hash("transaction", number << 16 | index)),
                100,
            )
        })
        .collect();
    let weights = weigh(&data);
    let quarter = weights.iter().map(|weight| u64::from(*weight)).sum::<u64>() / 4;
    println!("{BLOCKS} blocks, a cache of {}", ByteSize(quarter));
    println!("{:<60} {:>7} {:>7} {:>7}", "workload", "LRU", "cache", "points");
    let workloads = [
        ("8 hot blocks; a scan of 520 between reads, once each", hot_set_and_scan(1, 520)),
        ("8 hot blocks; a scan of 520 between reads, 5 times each", hot_set_and_scan(5, 520)),
        ("8 hot blocks; a scan of 1,000 between reads, 5 times each", hot_set_and_scan(5, 1_000)),
        ("indexer walk, another 20 blocks behind", indexers(20)),
        ("indexer walk, another 200 blocks behind", indexers(200)),
        ("explorer, Zipf 0.7", explorers(0.7)),
        ("explorer, Zipf 1.1", explorers(1.1)),
        ("head-following, 8 deep on average", head_following(8, 0)),
        ("head-following, 64 deep on average", head_following(64, 0)),
        ("head-following, 8 deep, and a scan of 20 blocks a head", head_following(8, 20)),
        ("head-following, 8 deep, and a scan of 240 blocks a head", head_following(8, 240)),
    ];
    for (name, steps) in &workloads {
        let by_weight = weights.clone();
        let lru = Lru(sync::Cache::builder()
            .max_capacity(quarter)
            .weigher(move |at: &usize, ()| by_weight[*at])
            .eviction_policy(EvictionPolicy::lru())
            .build());
        let cache = Cache::new(&Config { size: ByteSize(quarter), ..Config::default() }, Metrics::default());
        let (lru, cache) = (ratio(&lru, steps, &data), ratio(&cache, steps, &data));
        println!("{name:<60} {lru:>7.3} {cache:>7.3} {:>+7.1}", (cache - lru) * 100.0);
    }
}

/// Returns the weight of each block in the cache.
fn weigh(data: &[Verified<Block>]) -> Vec<u32> {
    let cache = Cache::new(&Config { size: ByteSize::gib(8), ..Config::default() }, Metrics::default());
    let mut before = 0;
    let weigh = |block: &Verified<Block>| {
        cache.insert_block(block.clone());
        cache.settle();
        let (_, bytes) = cache.sizes();
        let weight = bytes - before;
        before = bytes;
        weight.try_into().unwrap()
    };
    data.iter().map(weigh).collect()
}

/// Returns the share of hits among the reads, without scans.
fn ratio(cache: &impl Keeps, steps: &[Step], data: &[Verified<Block>]) -> f64 {
    let (mut hits, mut reads) = (0, 0);
    for step in steps {
        match *step {
            Step::Head(head) => cache.set_head(head),
            Step::Scan(at) => {
                cache.read(at, &data[at]);
            }
            Step::Read(at) => {
                reads += 1;
                hits += u32::from(cache.read(at, &data[at]));
            }
        }
    }
    f64::from(hits) / f64::from(reads)
}

/// Reads of old blocks, far below the head: a few hot blocks, and between their reads a scan that reads each block
/// `times` times.
fn hot_set_and_scan(times: usize, between: usize) -> Vec<Step> {
    let mut steps = vec![Step::Head(BLOCKS * 10)];
    let mut scan = (8..BLOCKS).cycle();
    for _ in 0..60 {
        steps.extend((0..8).map(Step::Read));
        for at in scan.by_ref().take(between) {
            steps.extend(repeat_n(Step::Scan(at), times));
        }
    }
    steps
}

/// Two indexers that walk old blocks, one behind the other. Each reads a block five times, for its transactions.
fn indexers(behind: usize) -> Vec<Step> {
    let mut steps = vec![Step::Head(BLOCKS * 10)];
    for at in 0..BLOCKS {
        steps.extend([Step::Read(at); 5]);
        if let Some(at) = at.checked_sub(behind) {
            steps.extend([Step::Read(at); 5]);
        }
    }
    steps
}

/// Reads of old blocks, some more often than others.
fn explorers(exponent: f64) -> Vec<Step> {
    let mut chance = Chance(11);
    let mut total = 0.0;
    let mut cumulative = Vec::new();
    for rank in 1..=BLOCKS {
        total += (rank as f64).powf(-exponent);
        cumulative.push(total);
    }
    let mut steps = vec![Step::Head(BLOCKS * 10)];
    for _ in 0..40_000 {
        let drawn = chance.fraction() * total;
        let rank = cumulative.partition_point(|below| *below < drawn).min(BLOCKS - 1);
        // Ranks are spread over the chain.
        steps.push(Step::Read(rank * 977 % BLOCKS));
    }
    steps
}

/// Clients that read each new block and blocks at some depth below it, in parallel with a scan of `scan` old blocks for
/// each new one. Without a scan, they occasionally read any older block.
fn head_following(depth: usize, scan: usize) -> Vec<Step> {
    let mut chance = Chance(13);
    let mut steps = Vec::new();
    let old = if scan > 0 { BLOCKS / 2 } else { 0 };
    let mut scanned = (0..old).cycle();
    for head in old..BLOCKS {
        steps.push(Step::Head(head));
        steps.extend([Step::Read(head); 4]);
        for _ in 0..12 {
            let below = -(1.0 - chance.fraction()).ln() * depth as f64;
            steps.push(Step::Read(head.saturating_sub(below as usize)));
            for at in scanned.by_ref().take(scan / 12) {
                steps.extend([Step::Scan(at); 3]);
            }
        }
        if old == 0 && chance.below(4) == 0 {
            steps.push(Step::Read(chance.below(head + 1)));
        }
    }
    steps
}

// === impl Keeps ===

impl Keeps for Cache {
    fn read(&self, _: usize, block: &Verified<Block>) -> bool {
        let hit = self.block(block.hash()).is_some();
        if !hit {
            self.insert_block(block.clone());
        }
        self.settle();
        hit
    }

    fn set_head(&self, head: usize) {
        self.set_head(Some(BlockNumber(head as u64)));
    }
}

impl Keeps for Lru {
    fn read(&self, at: usize, _: &Verified<Block>) -> bool {
        let hit = self.0.get(&at).is_some();
        if !hit {
            self.0.insert(at, ());
        }
        self.0.run_pending_tasks();
        hit
    }
}

/// A deterministic random number generator: `SplitMix64`.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
