//! External tools of the tests, which `tests/run` installs. A test without its tool is skipped, and says so.

use std::{
    env,
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
};

/// Names of tools, separated by spaces, that `tests/run` could not get from their registry. Their tests may be skipped
/// everywhere.
const UNAVAILABLE: &str = "HOLDFAST_UNAVAILABLE";

/// Source of a tool.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// A registry of packages. `tests/run` installs them under `target`.
    Registry,
    /// A Debian package of this name. `tests/run` installs it if it runs as root.
    Debian(&'static str),
    /// The machine. `tests/run` does not install it.
    Machine,
}

/// Reports that a test is skipped, on standard error. In CI, and in `tests/run --all`, fails instead.
pub fn skip(test: &str, reason: &str) {
    assert!(env::var("CI").as_deref() != Ok("true"), "{test} cannot run, and CI may not skip it: {reason}");
    report(test, reason);
}

fn report(test: &str, reason: &str) {
    // Does not use `eprintln!`, because the test harness hides its output if the test passes.
    let _ = io::stderr().write_all(format!("SKIPPED {test}: {reason}\n").as_bytes());
}

// === impl Source ===

impl Source {
    /// Returns `path`. If it is `None`, reports that the test is skipped, and how to get the tool.
    fn found(self, test: &str, tool: &str, path: Option<PathBuf>) -> Option<PathBuf> {
        if path.is_none() {
            let remedy = match self {
                Self::Registry => "tests/run or tests/run --all installs it".to_owned(),
                Self::Debian(package) => {
                    format!("install the Debian package {package}, as tests/run does for root")
                }
                Self::Machine => "install it".to_owned(),
            };
            let reason = format!("{tool} is missing; {remedy}");
            let unavailable = env::var(UNAVAILABLE).unwrap_or_default();
            let skip = if unavailable.split(' ').any(|name| name == tool) { report } else { skip };
            skip(test, &reason);
        }
        path
    }
}

/// Returns the folder into which `tests/run` installs the tools.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-tools")
}

fn installed(test: &str, tool: &str, path: &str) -> Option<PathBuf> {
    Source::Registry.found(test, tool, Some(folder().join(path)).filter(|path| path.exists()))
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
    let platform = match (env::consts::OS, env::consts::ARCH) {
        ("macos", "aarch64") => "darwin-arm64",
        ("macos", _) => "darwin-amd64",
        (_, "aarch64") => "linux-arm64",
        _ => "linux-amd64",
    };
    installed(test, tool, &format!("node_modules/@foundry-rs/{tool}-{platform}/bin/{tool}"))
}

/// Returns a command that runs a script of `tests/clients` with Node and this package.
pub fn node_script(test: &str, package: &str, script: &str) -> Option<Command> {
    let node = Source::Debian("nodejs").found(test, "node", on_path("node"))?;
    installed(test, package, &format!("node_modules/{package}"))?;
    let mut command = Command::new(node);
    command.arg(folder().join(script));
    Some(command)
}

/// Returns a command that runs a script of `tests/clients` with Python and its packages.
pub fn python_script(test: &str, script: &str) -> Option<Command> {
    let python = installed(test, "web3.py", "venv/bin/python")?;
    let mut command = Command::new(python);
    command.arg("-B").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script));
    Some(command)
}

/// Returns a Go program of `tests/clients`.
pub fn go_program(test: &str, name: &str) -> Option<Command> {
    installed(test, name, &format!("bin/{name}")).map(Command::new)
}

/// Returns a command that runs Hardhat in a folder with its configuration.
pub fn hardhat(test: &str) -> Option<Command> {
    let script = installed(test, "hardhat", "hardhat/node_modules/hardhat/internal/cli/cli.js")?;
    let mut command = Command::new("node");
    command.arg(script).current_dir(folder().join("hardhat")).env("HARDHAT_DISABLE_TELEMETRY_PROMPT", "true");
    Some(command)
}

pub fn curl(test: &str) -> Option<PathBuf> {
    Source::Debian("curl").found(test, "curl", on_path("curl"))
}

/// Returns the browser, which tests run headless.
pub fn chromium(test: &str) -> Option<PathBuf> {
    Source::Debian("chromium").found(test, "chromium", on_path("chromium"))
}

/// Returns the Prometheus server, which scrapes metrics and raises alerts.
pub fn prometheus(test: &str) -> Option<PathBuf> {
    Source::Debian("prometheus").found(test, "prometheus", on_path("prometheus"))
}

/// Returns the tool that tests Prometheus rules.
pub fn promtool(test: &str) -> Option<PathBuf> {
    Source::Debian("prometheus").found(test, "promtool", on_path("promtool"))
}

/// Returns the Redis server.
pub fn redis_server(test: &str) -> Option<PathBuf> {
    Source::Debian("redis-server").found(test, "redis-server", on_path("redis-server"))
}

/// Returns the checker of systemd units.
pub fn systemd_analyze(test: &str) -> Option<PathBuf> {
    Source::Debian("systemd").found(test, "systemd-analyze", on_path("systemd-analyze"))
}

/// Returns a command that runs a script of `tests/clients` that needs only its interpreter.
pub fn bare_script(test: &str, runner: &[&str], script: &str) -> Option<Command> {
    let mut command = Command::new(Source::Machine.found(test, runner[0], on_path(runner[0]))?);
    command.args(&runner[1..]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script));
    Some(command)
}

/// Returns a checker of deployment files or workflows.
pub fn checker(test: &str, program: &str) -> Option<PathBuf> {
    let installed = ["bin", "venv/bin"].map(|place| folder().join(place).join(program));
    let path = installed.into_iter().find(|path| path.exists()).or_else(|| on_path(program));
    Source::Registry.found(test, program, path)
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|folder| folder.join(program)).find(|program| program.exists())
}
