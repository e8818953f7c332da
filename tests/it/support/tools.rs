//! What tests use that is not Rust: installed by `tests/run`, left out visibly where it is absent.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
};

/// Where `tests/run` puts them.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-tools")
}

/// Says that a test is left out; in CI that is a failure.
fn left_out(test: &str, what: &str) {
    let message = format!("LEFT OUT: {test}: {what} is not there; `tests/run` installs it\n");
    assert!(std::env::var_os("CI").is_none(), "{message}");
    // Not by a macro: what those print is kept from everybody's eyes if the test passes, as it will.
    let _ = io::stderr().write_all(message.as_bytes());
}

fn found(test: &str, what: &str, path: PathBuf) -> Option<PathBuf> {
    if path.exists() {
        return Some(path);
    }
    left_out(test, what);
    None
}

/// The anvil binary itself, not its wrapper, which would leave it behind when killed.
pub fn anvil(test: &str) -> Option<PathBuf> {
    foundry(test, "anvil")
}

/// The command-line client that the README names.
pub fn cast(test: &str) -> Option<PathBuf> {
    foundry(test, "cast")
}

fn foundry(test: &str, tool: &str) -> Option<PathBuf> {
    let platform = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("macos", "aarch64") => "darwin-arm64",
        ("macos", _) => "darwin-amd64",
        (_, "aarch64") => "linux-arm64",
        _ => "linux-amd64",
    };
    found(test, tool, folder().join(format!("node_modules/@foundry-rs/{tool}-{platform}/bin/{tool}")))
}

/// A script of `tests/clients`, to be run by Node beside its packages.
pub fn node_script(test: &str, script: &str) -> Option<Command> {
    let script = found(test, "the client libraries for Node", folder().join(script))?;
    let mut command = Command::new("node");
    command.arg(script);
    Some(command)
}

/// A script of `tests/clients`, to be run by Python with its packages.
pub fn python_script(test: &str, script: &str) -> Option<Command> {
    let python = found(test, "the client library for Python", folder().join("venv/bin/python"))?;
    let mut command = Command::new(python);
    command.arg("-B").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script));
    Some(command)
}

pub fn curl(test: &str) -> Option<PathBuf> {
    on_path(test, "curl")
}

/// A browser without a screen.
pub fn chromium(test: &str) -> Option<PathBuf> {
    on_path(test, "chromium")
}

/// What looks at metrics, and alerts.
pub fn prometheus(test: &str) -> Option<PathBuf> {
    on_path(test, "prometheus")
}

/// What tries its rules.
pub fn promtool(test: &str) -> Option<PathBuf> {
    on_path(test, "promtool")
}

/// What a fleet shares.
pub fn redis_server(test: &str) -> Option<PathBuf> {
    on_path(test, "redis-server")
}

/// A script of `tests/clients` that needs nothing but what runs it.
pub fn bare_script(test: &str, runner: &[&str], script: &str) -> Option<Command> {
    let mut command = Command::new(on_path(test, runner[0])?);
    command.args(&runner[1..]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script));
    Some(command)
}

fn on_path(test: &str, program: &str) -> Option<PathBuf> {
    let path = found_on_path(program);
    if path.is_none() {
        left_out(test, program);
    }
    path
}

/// Where a program is that `tests/run` does not install; said, if it is not there.
pub fn at_hand(test: &str, program: &str) -> bool {
    let is_there = found_on_path(program).is_some();
    if !is_there {
        let _ = writeln!(io::stderr(), "LEFT OUT: {test}: {program} is not at hand");
    }
    is_there
}

fn found_on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|program| program.exists())
}
