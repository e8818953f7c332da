//! CPU time and memory of a process, and results of a load.

use std::{fs, process::Command, thread, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{cases::Load, folder, machine, servers::Server};

/// Length of a tick. The kernel reports hundredths of a second, independently of its own tick.
const TICK_MICROS: f64 = 10_000.0;

/// Share of a core that other processes may use before a round counts as disturbed.
const TOLERATED: f64 = 0.04;

/// Results of one round of one server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Round {
    /// User and system time of the server process per request.
    pub cpu_us: f64,
    pub requests_per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Resident memory at the end of the round.
    pub rss_mib: f64,
    pub upstream_per_1000: f64,
    /// Bytes on the wire, including response heads.
    pub bytes_per_response: f64,
    pub failed: u64,
    /// Share of the server's core that other processes used, or other virtual machines on the same host.
    pub others: f64,
    /// Number of involuntary context switches of the server.
    pub involuntary: u64,
}

/// Result line of `load.lua`.
#[derive(Debug, Deserialize)]
struct Said {
    micros: f64,
    requests: f64,
    bytes: f64,
    p50: f64,
    p99: f64,
    failed: u64,
}

/// Counters of a process and its core.
struct Used {
    own: u64,
    core: u64,
    involuntary: u64,
}

// === impl Round ===

impl Round {
    /// Returns whether other processes used too much of the core.
    pub fn is_disturbed(&self) -> bool {
        self.others > TOLERATED
    }
}

/// Runs a load against a server and returns the results. The load runs on the core of this process.
pub fn round(
    server: &Server,
    load: &Load,
    seconds: u32,
    seed: u32,
    upstream_calls: impl Fn() -> u64,
) -> Round {
    let idle = server.idle_connections(load.idle);
    let (used, calls) = (Used::now(server.pid, server.core), upstream_calls());
    let said = wrk(server, load, seconds, seed);
    let (after, calls_after) = (Used::now(server.pid, server.core), upstream_calls());
    drop(idle);
    let own = (after.own - used.own) as f64 * TICK_MICROS;
    let core = (after.core - used.core) as f64 * TICK_MICROS;
    let requests = said.requests.max(1.0);
    Round {
        cpu_us: own / requests,
        requests_per_second: said.requests / said.micros * 1e6,
        p50_us: said.p50,
        p99_us: said.p99,
        rss_mib: rss_mib(server.pid),
        upstream_per_1000: (calls_after - calls) as f64 / requests * 1000.0,
        bytes_per_response: said.bytes / requests,
        failed: said.failed,
        others: ((core - own) / said.micros).max(0.0),
        involuntary: after.involuntary - used.involuntary,
    }
}

/// Does the same as [`round()`], but without the cost of connecting: reads Holdfast's own counter of requests and the
/// CPU time only after all connections are open.
pub fn steady_round(server: &Server, load: &Load, seconds: u32, seed: u32) -> Round {
    let lead = if load.connections > 1000 { 5 } else { 1 };
    thread::scope(|scope| {
        // The load runs one second longer, so that all connections stay open until the last reading.
        let loading = scope.spawn(|| wrk(server, load, lead + seconds + 1, seed));
        thread::sleep(Duration::from_secs(lead.into()));
        let (used, calls) = (Used::now(server.pid, server.core), server.calls());
        thread::sleep(Duration::from_secs(seconds.into()));
        let (after, calls_after) = (Used::now(server.pid, server.core), server.calls());
        let said = loading.join().unwrap();
        let requests = (calls_after - calls).max(1.0);
        let own = (after.own - used.own) as f64 * TICK_MICROS;
        let core = (after.core - used.core) as f64 * TICK_MICROS;
        let micros = f64::from(seconds) * 1e6;
        Round {
            cpu_us: own / requests,
            requests_per_second: requests / f64::from(seconds),
            p50_us: said.p50,
            p99_us: said.p99,
            rss_mib: rss_mib(server.pid),
            upstream_per_1000: 0.0,
            bytes_per_response: said.bytes / said.requests.max(1.0),
            failed: said.failed,
            others: ((core - own) / micros).max(0.0),
            involuntary: after.involuntary - used.involuntary,
        }
    })
}

fn wrk(server: &Server, load: &Load, seconds: u32, seed: u32) -> Said {
    let mut command = Command::new("wrk");
    command
        .args(["-t1", &format!("-c{}", load.connections), &format!("-d{seconds}s"), "--timeout", "30s"])
        .args(["-s", concat!(env!("CARGO_MANIFEST_DIR"), "/benches/e2e/load.lua")])
        .arg(server.url())
        .args(["--", load.mode, &seed.to_string(), load.header.unwrap_or("-")])
        .arg(folder().join(load.file("bodies")));
    if load.others.is_some() {
        command.arg(folder().join(load.file("others")));
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let result = text.lines().find_map(|line| line.strip_prefix("RESULT "));
    let result = result.unwrap_or_else(|| {
        panic!("wrk failed: {text}{}", String::from_utf8_lossy(&output.stderr));
    });
    serde_json::from_str(result).unwrap()
}

// === impl Used ===

impl Used {
    fn now(pid: u32, core: usize) -> Self {
        Self { own: machine::process_ticks(pid), core: core_ticks(core), involuntary: involuntary(pid) }
    }
}

/// Returns the time that a core spent on processes, plus stolen time. Excludes interrupts, which belong to no process.
fn core_ticks(core: usize) -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let line = stat.lines().find_map(|line| line.strip_prefix(&format!("cpu{core} "))).unwrap();
    let ticks: Vec<u64> = line.split_whitespace().map(|ticks| ticks.parse().unwrap()).collect();
    let [user, nice, system, .., steal] = ticks[..8] else { return 0 };
    user + nice + system + steal
}

fn involuntary(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads
        .flatten()
        .filter_map(|thread| status(&thread.path().join("status"), "nonvoluntary_ctxt_switches:"))
        .sum()
}

/// Returns the resident memory of a process.
pub fn rss_mib(pid: u32) -> f64 {
    status(format!("/proc/{pid}/status").as_ref(), "VmRSS:").unwrap_or(0) as f64 / 1024.0
}

fn status(path: &std::path::Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}
