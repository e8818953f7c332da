//! The machine, and the build of the program that users run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::docs;

/// Builds the program with the profile `dist`, and copies it into this folder.
pub fn build(folder: &Path) -> PathBuf {
    // Cargo has already built the program, but with dependency features that only tests need.
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--profile", "dist", "--quiet"]).current_dir(docs::at(""));
    // The variables that Cargo sets for a benchmark would make build scripts run again, here and in the next build.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"]
            .iter()
            .any(|it| text.starts_with(it))
        {
            build.env_remove(&name);
        }
    }
    assert!(build.status().unwrap().success(), "the build failed");
    // A copy, because another build may replace the binary in the meantime.
    let binary = folder.join("holdfast");
    fs::copy(docs::at("target/dist/holdfast"), &binary).unwrap();
    binary
}

/// Pins this process and its future children to one core.
pub fn pin(core: usize) {
    let id = std::process::id().to_string();
    let done = Command::new("taskset").args(["-a", "-c", "-p", &core.to_string(), &id]).output().unwrap();
    assert!(done.status.success(), "cannot pin to core {core}: the benchmark needs two cores");
}

/// Returns the user and system time of all threads of a process, in ticks.
pub fn process_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name in parentheses may contain spaces and parentheses.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Describes the processor, the cores and the kernel.
pub fn description() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = cpu.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.trim().split('-').next().unwrap_or_default().to_owned();
    format!("{}, {cores} cores, Linux {kernel}.", model.map_or("unknown processor", |(_, model)| model))
}
