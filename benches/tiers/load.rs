//! Answers per second by source.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use holdfast::devchain::DevNode;
use tokio::time::Instant;

use crate::{
    filled::{ASKED, Filled},
    machine,
    servers::{Kind, Server, Settings},
    short, spread,
};

/// Core of the servers.
const CORE: usize = 1;

/// Number of connections with sequential requests.
const CLIENTS: u64 = 8;

/// Length of a tick. The kernel reports hundredths of a second.
const TICK_MILLIS: f64 = 10.0;

/// Requests, each about a random block.
const CASES: [&str; 3] = ["whole block by number", "all receipts by number", "transaction by hash"];

/// Results of one server in one case.
#[derive(Clone, Debug, Default)]
struct Rounds {
    answers: Vec<f64>,
    cpu: Vec<f64>,
    upstream: Vec<f64>,
}

pub fn measure(binary: &Path, filled: &Filled, node: &DevNode, rounds: u32, seconds: f64) -> String {
    let servers = start(binary, filled, node);
    let asked = ASKED.min(filled.blocks);
    let mut took = vec![vec![Rounds::default(); servers.len()]; CASES.len()];
    for round in 0..rounds {
        for (case, name) in CASES.iter().enumerate() {
            for (at, server) in servers.iter().enumerate() {
                let seed = u64::from(round) * 100 + case as u64 * 10 + at as u64;
                let (calls, cpu) = (filled.chain.calls_total(), machine::process_ticks(server.pid));
                let (answers, time) = load(server, filled, case, asked, seed, seconds);
                let cpu = (machine::process_ticks(server.pid) - cpu) as f64 * TICK_MILLIS / answers;
                let upstream = (filled.chain.calls_total() - calls) as f64 / answers * 1000.0;
                eprintln!("{name}, {}: {:.0} a second", server.kind.name(), answers / time);
                let of = &mut took[case][at];
                of.answers.push(answers / time);
                of.cpu.push(cpu);
                of.upstream.push(upstream);
            }
        }
    }
    let mut table = "| request | source | answers/s | ÷ memory | ÷ node | CPU ms/answer | upstream calls /1000 |\n|---|---|---|---|---|---|---|\n".to_owned();
    for (name, of_case) in CASES.iter().zip(&took) {
        let (memory, node) = (&of_case[0].answers, &of_case[of_case.len() - 1].answers);
        for (server, of) in servers.iter().zip(of_case) {
            // The ratios compare servers within a round.
            let ratio =
                |to: &[f64]| spread(of.answers.iter().zip(to).map(|(own, other)| own / other).collect());
            table += &format!(
                "| {name} | {} | {} | {} | {} | {} | {} |\n",
                server.kind.name(),
                spread(of.answers.clone()),
                ratio(memory),
                ratio(node),
                short(median(&of.cpu)),
                short(median(&of.upstream)),
            );
        }
    }
    table
}

/// Starts the servers. The first answers from memory, the last from the node.
fn start(binary: &Path, filled: &Filled, node: &DevNode) -> Vec<Server> {
    let with = |name: &str, size: &str, flags: &[&str]| {
        let mut all = vec!["--cache-size".to_owned(), size.to_owned()];
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let kind = Kind::Holdfast { name: name.to_owned(), binary: binary.to_owned() };
        kind.start(node.address(), CORE, &Settings { flags: all, ..Settings::default() })
    };
    let little = "1MiB";
    let mut servers = vec![with("memory", "4GiB", &[])];
    servers.push(with("disk", little, &["--data", filled.data.to_str().unwrap()]));
    servers.extend(filled.redis.as_ref().map(|redis| with("Redis", little, &["--redis", &redis.url])));
    servers.push(with("the node", little, &[]));
    eprintln!("filling memory");
    let mut connection = servers[0].connect();
    for number in 1..=ASKED.min(filled.blocks) {
        for case in [0, 1] {
            connection.post(body(filled, case, number, 0).as_bytes());
        }
    }
    servers
}

/// Sends requests for `seconds` and returns the number of answers and the elapsed seconds.
fn load(server: &Server, filled: &Filled, case: usize, asked: u64, seed: u64, seconds: f64) -> (f64, f64) {
    let (answers, begun) = (AtomicU64::new(0), Instant::now());
    let end = Duration::from_secs_f64(seconds);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let answers = &answers;
            scope.spawn(move || {
                let mut connection = server.connect();
                let mut random = fastrand::Rng::with_seed(seed * CLIENTS + client);
                while begun.elapsed() < end {
                    let body = body(filled, case, random.u64(1..=asked), random.usize(..));
                    let answer = connection.post(body.as_bytes());
                    let right = answer.starts_with(b"{\"jsonrpc\"") && answer.len() > 300;
                    assert!(right, "{}: {}", server.kind.name(), String::from_utf8_lossy(&answer));
                    answers.fetch_add(1, Relaxed);
                }
            });
        }
    });
    (answers.load(Relaxed) as f64, begun.elapsed().as_secs_f64())
}

fn body(filled: &Filled, case: usize, number: u64, which: usize) -> String {
    let (method, params) = match case {
        0 => ("eth_getBlockByNumber", format!(r#""{number:#x}",true"#)),
        1 => ("eth_getBlockReceipts", format!(r#""{number:#x}""#)),
        _ => {
            let transactions = filled.chain.transactions_of(filled.chain.hash_at(number).unwrap());
            let hash = transactions[which % transactions.len()];
            ("eth_getTransactionByHash", format!(r#""{hash:#x}""#))
        }
    };
    format!(r#"{{"jsonrpc":"2.0","id":{which},"method":"{method}","params":[{params}]}}"#)
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
