//! What the tiers behind memory are worth: `cargo bench --bench tiers`.
//!
//! A directory (and a Redis, where there is one) is filled with real blocks of the development chain. Then it is measured how
//! long the program takes from its start to its first answer, and how many answers a second it gives out of memory, out of
//! each tier and from the node, in rounds in which all take their turn. With 1 MiB of memory nearly everything has to come from
//! where it is said to come from.

#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on should say where")]

#[path = "../shared/docs.rs"]
mod docs;
mod filled;
mod load;
#[path = "../shared/machine.rs"]
mod machine;
mod restart;
#[allow(dead_code, reason = "shared with e2e, which needs more of it")]
#[path = "../e2e/servers.rs"]
mod servers;

use std::{fs, path::PathBuf};

use clap::Parser;
use holdfast::devchain::DevNode;

use self::filled::Filled;

#[derive(Debug, Parser)]
struct Arguments {
    /// Blocks on disk
    #[arg(long, default_value_t = 10_000)]
    blocks: u64,

    /// Transactions of each: most of the time that it takes goes into making them
    #[arg(long, default_value_t = 50)]
    transactions: usize,

    #[arg(long, default_value_t = 7)]
    rounds: u32,

    /// For one server in one round of one case
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,

    /// 1,000 blocks, three rounds of half a second: to see whether it works
    #[arg(long)]
    quick: bool,

    /// A build of Holdfast to measure, in place of the one that is made for it
    #[arg(long)]
    binary: Option<PathBuf>,

    /// Writes the tables into docs
    #[arg(long)]
    save: bool,

    /// Cargo says so to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

/// Where everything goes that is written, but for results.
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
    // Servers have the other core.
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

/// The middle one, and both ends: `12.3 (10.1–15.0)`.
fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let [first, .., last] = values[..] else {
        return values.first().map_or("–".to_owned(), |it| short(*it));
    };
    format!("{} ({}–{})", short(values[values.len() / 2]), short(first), short(last))
}

/// To three digits, or whole.
fn short(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ if value >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
