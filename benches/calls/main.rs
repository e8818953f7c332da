//! Number of upstream calls: `cargo bench --bench calls`. The results do not depend on the speed of the machine.
//! `--limits` leaves out the workloads without a limit of their own, those of `consumers.rs`.
//!
//! Scripted workloads run against the whole proxy in memory, with paused time. The benchmark compares the calls that
//! the node receives with the best plan (see `plan.rs`) and with a cache keyed by method and parameters. It also counts
//! the calls of real consumers with and without Holdfast (see `consumers.rs`), and checks the calls of consumers that read
//! logs against their limits (see `logs.rs`).

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot continue should panic at that line")]

#[path = "../../tests/it/support/chains.rs"]
mod chains;
mod consumers;
#[path = "../shared/docs.rs"]
mod docs;
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
#[path = "../../tests/it/support/in_memory.rs"]
mod in_memory;
mod logs;
#[path = "../../tests/it/support/consumers.rs"]
mod patterns;
mod plan;
mod restart;
mod workloads;
mod world;

use std::{fs, process::exit, thread};

use tokio::runtime::Builder;

use self::{
    plan::{Foresight, best},
    world::{Cost, STALENESS},
};

/// Results of a workload.
struct Row {
    name: &'static str,
    asked: u64,
    content: u64,
    upkeep: u64,
    best: u64,
    prefetching: u64,
    straw: u64,
    straw_wrong: u64,
    /// Target of the ratio to the best plan, and the worst allowed ratio.
    target: Option<(f64, f64)>,
}

// === impl Row ===

impl Row {
    fn new(name: &'static str, target: Option<(f64, f64)>, cost: Cost) -> Self {
        let plan = best(&cost.events, STALENESS, Foresight::Choose);
        println!("{name}: the best plan: {plan:?}");
        println!("{:width$}  Holdfast: {}", "", cost.breakdown(), width = name.len());
        Self {
            name,
            target,
            asked: cost.events.len() as u64,
            content: cost.content.len() as u64,
            upkeep: cost.upkeep as u64,
            best: plan.calls(),
            prefetching: best(&cost.events, STALENESS, Foresight::Prefetch).calls(),
            straw: cost.straw,
            straw_wrong: cost.straw_wrong,
        }
    }

    fn ratio(&self) -> f64 {
        self.content as f64 / self.best as f64
    }

    /// Compares the ratio as rounded for display, so that a single call in a thousand does not miss a target.
    fn is_within(&self, bound: f64) -> bool {
        (self.ratio() * 100.0).round() <= bound * 100.0
    }

    fn verdict(&self) -> String {
        match self.target {
            None => String::new(),
            Some((target, _)) if self.is_within(target) => format!("≤ {target}: met"),
            Some((target, worst)) if self.is_within(worst) => {
                format!("≤ {target}: missed, within the worst allowed ({worst})")
            }
            Some((target, _)) => format!("≤ {target}: **missed**"),
        }
    }

    fn show(&self) -> String {
        let share = |calls: u64| format!("{:.1}", calls as f64 / self.asked as f64 * 1000.0);
        format!(
            "| {} | {} | {} | {} | {} | {} | {} | {:.2} | {} |\n",
            self.name,
            self.asked,
            share(self.content),
            share(self.upkeep),
            share(self.best),
            share(self.prefetching),
            if self.straw_wrong > 0 {
                format!("{} ({} answers wrong)", share(self.straw), self.straw_wrong)
            } else {
                share(self.straw)
            },
            self.ratio(),
            self.verdict(),
        )
    }
}

/// Runs a part on this thread, with a clock of its own that is paused.
fn run<T>(part: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(part)
}

/// Runs the workloads beside each other.
fn rows() -> Vec<Row> {
    thread::scope(|scope| {
        let rows = [
            scope.spawn(|| {
                Row::new("indexer, one by one", Some((1.06, 1.06)), run(workloads::indexer(false)))
            }),
            scope.spawn(|| Row::new("indexer, in batches", Some((1.0, 1.0)), run(workloads::indexer(true)))),
            scope.spawn(|| Row::new("explorer", None, run(workloads::explorer()))),
            scope.spawn(|| Row::new("wallets, with reorgs", None, run(workloads::wallets()))),
            scope.spawn(|| Row::new("fork tests, run twice", None, run(workloads::fork_tests()))),
            scope.spawn(|| {
                Row::new("single receipts, again and again", None, run(workloads::repeated_receipts()))
            }),
            scope.spawn(|| Row::new("the last hour, walked twice", None, run(workloads::last_hour()))),
        ];
        rows.map(|row| row.join().unwrap()).into()
    })
}

fn main() {
    let has = |option: &str| std::env::args().any(|argument| argument == option);
    let save = has("--save");
    let (mut rows, (logs, are_logs_met)) = thread::scope(|scope| {
        let logs = scope.spawn(logs::table);
        (rows(), logs.join().unwrap())
    });
    let sum = |part: fn(&Row) -> u64| rows.iter().map(part).sum();
    rows.push(Row {
        name: "all together",
        asked: sum(|row| row.asked),
        content: sum(|row| row.content),
        upkeep: sum(|row| row.upkeep),
        best: sum(|row| row.best),
        prefetching: sum(|row| row.prefetching),
        straw: sum(|row| row.straw),
        straw_wrong: sum(|row| row.straw_wrong),
        target: Some((1.24, 1.24)),
    });
    let mut table = "| upstream calls per 1,000 client calls | client calls | Holdfast | its upkeep | best plan | with prefetching | keyed by parameters | Holdfast ÷ best plan | target |\n".to_owned();
    table += "|---|---|---|---|---|---|---|---|---|\n";
    rows.iter().for_each(|row| table += &row.show());
    println!("\n{table}");
    fs::write(docs::results().join("calls.md"), &table).unwrap();
    if save {
        docs::refresh(docs::PAGE, "calls", &table);
    }
    println!("{logs}");
    if save {
        docs::refresh(docs::PAGE, "logs", &logs);
    }
    if !has("--limits") {
        let consumers = run(consumers::table());
        println!("{consumers}");
        if save {
            docs::refresh(docs::PAGE, "consumers", &consumers);
        }
    }
    if !are_logs_met || !rows.iter().all(|row| row.target.is_none_or(|(_, worst)| row.is_within(worst))) {
        exit(1);
    }
}
