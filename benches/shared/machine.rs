//! The machine that it is measured on, and the program that is.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::docs;

/// The program as it ships, in this folder.
pub fn build(folder: &Path) -> PathBuf {
    // Cargo has built the program for us already, but with the features that tests want of its dependencies.
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--release", "--quiet"]).current_dir(docs::at(""));
    // What Cargo tells a benchmark of its package would make build scripts run again, here and at the next build.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"]
            .iter()
            .any(|it| text.starts_with(it))
        {
            build.env_remove(&name);
        }
    }
    assert!(build.status().unwrap().success(), "the program cannot be built");
    // A copy: somebody may build it anew meanwhile.
    let binary = folder.join("holdfast");
    fs::copy(docs::at("target/release/holdfast"), &binary).unwrap();
    binary
}

/// Keeps this process, and what it starts from here on, on one core.
pub fn pin(core: usize) {
    let id = std::process::id().to_string();
    let done = Command::new("taskset").args(["-a", "-c", "-p", &core.to_string(), &id]).output().unwrap();
    assert!(done.status.success(), "cannot be pinned to core {core}: it takes two cores to measure");
}

/// User and system time of all threads of a process.
pub fn process_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name in parentheses may hold anything.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// The machine, as far as it matters.
pub fn description() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = cpu.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.trim().split('-').next().unwrap_or_default().to_owned();
    format!("{}, {cores} cores, Linux {kernel}.", model.map_or("unknown processor", |(_, model)| model))
}
