//! External tools of the tests, which `tests/run` installs. Without them, tests print that they are left out.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
};

/// Returns the folder into which `tests/run` installs the tools.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-tools")
}

/// Prints that a test is left out, or fails in CI.
fn left_out(test: &str, what: &str) {
    let message = format!("LEFT OUT: {test}: {what} is not installed; `tests/run` installs it\n");
    assert!(std::env::var_os("CI").is_none(), "{message}");
    // Does not use `eprintln!`, because the test harness hides its output if the test passes.
    let _ = io::stderr().write_all(message.as_bytes());
}

fn found(test: &str, what: &str, path: PathBuf) -> Option<PathBuf> {
    if path.exists() {
        return Some(path);
    }
    left_out(test, what);
    None
}

/// Returns the anvil binary itself, because killing its wrapper would leave anvil running.
pub fn anvil(test: &str) -> Option<PathBuf> {
    foundry(test, "anvil")
}

/// Returns the command-line client that the README names.
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

/// Returns a command that runs a script of `tests/clients` with Node and its packages.
pub fn node_script(test: &str, script: &str) -> Option<Command> {
    let script = found(test, "the client libraries for Node", folder().join(script))?;
    let mut command = Command::new("node");
    command.arg(script);
    Some(command)
}

/// Returns a command that runs a script of `tests/clients` with Python and its packages.
pub fn python_script(test: &str, script: &str) -> Option<Command> {
    let python = found(test, "the client library for Python", folder().join("venv/bin/python"))?;
    let mut command = Command::new(python);
    command.arg("-B").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script));
    Some(command)
}

/// Returns a Go program of `tests/clients`.
pub fn go_program(test: &str, name: &str) -> Option<Command> {
    consumer(test, name, folder().join("bin").join(name)).map(Command::new)
}

/// Returns a command that runs Hardhat in a folder with its configuration.
pub fn hardhat(test: &str) -> Option<Command> {
    let hardhat = folder().join("hardhat");
    let script = consumer(test, "Hardhat", hardhat.join("node_modules/hardhat/internal/cli/cli.js"))?;
    let mut command = Command::new("node");
    command.arg(script).current_dir(hardhat).env("HARDHAT_DISABLE_TELEMETRY_PROMPT", "true");
    Some(command)
}

pub fn curl(test: &str) -> Option<PathBuf> {
    on_path(test, "curl")
}

/// Returns the browser, which tests run headless.
pub fn chromium(test: &str) -> Option<PathBuf> {
    on_path(test, "chromium")
}

/// Returns the Prometheus server, which scrapes metrics and raises alerts.
pub fn prometheus(test: &str) -> Option<PathBuf> {
    on_path(test, "prometheus")
}

/// Returns the tool that tests Prometheus rules.
pub fn promtool(test: &str) -> Option<PathBuf> {
    on_path(test, "promtool")
}

/// Returns the Redis server.
pub fn redis_server(test: &str) -> Option<PathBuf> {
    on_path(test, "redis-server")
}

/// Returns a command that runs a script of `tests/clients` that needs only its interpreter.
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

/// Returns whether a program exists that `tests/run` does not install. Prints that the test is left out if not.
pub fn at_hand(test: &str, program: &str) -> bool {
    optional(test, program, found_on_path(program)).is_some()
}

/// Returns a consumer that `tests/run` installs if it can. Unlike other tools, it may be missing even in CI.
fn consumer(test: &str, name: &str, path: PathBuf) -> Option<PathBuf> {
    optional(test, name, Some(path).filter(|path| path.exists()))
}

fn optional(test: &str, what: &str, path: Option<PathBuf>) -> Option<PathBuf> {
    if path.is_none() {
        let _ = writeln!(io::stderr(), "LEFT OUT: {test}: {what} is not installed");
    }
    path
}

/// Returns a checker of deployment files or workflows, which `tests/run` installs if it can. Prints that the test is
/// left out if not, also in CI, because not every machine reaches the sources of these tools.
pub fn checker(test: &str, program: &str) -> Option<PathBuf> {
    let installed = ["bin", "venv/bin"].map(|place| folder().join(place).join(program));
    let found = installed.into_iter().find(|path| path.exists()).or_else(|| found_on_path(program));
    if found.is_none() {
        let _ = writeln!(io::stderr(), "LEFT OUT: {test}: {program} could not be installed");
    }
    found
}

fn found_on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|program| program.exists())
}
