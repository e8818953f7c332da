//! Performance of the tiers: `cargo bench --bench tiers`.
//!
//! Fills a directory, and a Redis if one is installed, with blocks of the development chain. Then measures the time from
//! the start of the program to its first answer, and the answers per second from memory, from each tier and from the node,
//! in rounds in which they take turns. A memory cache of 1 MiB makes nearly all answers come from the measured source.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot continue should panic at that line")]

#[path = "../shared/docs.rs"]
mod docs;
mod filled;
mod load;
#[path = "../shared/machine.rs"]
mod machine;
mod restart;
#[allow(dead_code, reason = "shared with e2e, which uses more of it")]
#[path = "../e2e/servers.rs"]
mod servers;

use std::{fs, path::PathBuf};

use clap::Parser;
use holdfast::devchain::DevNode;

use self::filled::Filled;

#[derive(Debug, Parser)]
struct Arguments {
    /// Number of blocks on disk
    #[arg(long, default_value_t = 10_000)]
    blocks: u64,

    /// Transactions per block; generating them takes most of the time
    #[arg(long, default_value_t = 50)]
    transactions: usize,

    #[arg(long, default_value_t = 7)]
    rounds: u32,

    /// Seconds for one server in one round of one case
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,

    /// 1,000 blocks and three rounds of half a second, as a smoke test
    #[arg(long)]
    quick: bool,

    /// Build of Holdfast to measure instead of a new build
    #[arg(long)]
    binary: Option<PathBuf>,

    /// Write the tables into docs
    #[arg(long)]
    save: bool,

    /// Cargo passes this flag to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

/// Returns the folder for all files except results.
fn folder() -> PathBuf {
    let folder = docs::results().join("tiers");
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn main() {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        (arguments.blocks, arguments.rounds, arguments.seconds) = (1000, 3, 0.5);
    }
    let binary = arguments.binary.unwrap_or_else(|| machine::build(&folder()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let filled = runtime.block_on(Filled::new(arguments.blocks, arguments.transactions));
    let node = runtime.block_on(DevNode::start(filled.chain.clone(), ([127, 0, 0, 1], 0).into())).unwrap();

    let restarts = restart::measure(&binary, &filled, &node, arguments.rounds);
    // The servers use the other core.
    machine::pin(0);
    let answers = load::measure(&binary, &filled, &node, arguments.rounds, arguments.seconds);

    let extent =
        format!("{} rounds of {} s in turn. Median (least–most).", arguments.rounds, arguments.seconds);
    let (machine, filled) =
        (machine::description(), format!("{} {extent}\n\n{}", filled.says(), filled.table()));
    let tables = format!("{machine}\n\n{filled}\n{restarts}\n{answers}");
    println!("{tables}");
    fs::write(docs::results().join("tiers.md"), &tables).unwrap();
    if arguments.save {
        docs::refresh(docs::PAGE, "tiers", &tables);
    }
}

/// Formats the median with minimum and maximum: `12.3 (10.1–15.0)`.
fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let [first, .., last] = values[..] else {
        return values.first().map_or("–".to_owned(), |it| short(*it));
    };
    format!("{} ({}–{})", short(values[values.len() / 2]), short(first), short(last))
}

/// Formats a number with about three significant digits.
fn short(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ if value >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
