//! Tells release builds their commit.
//!
//! Debug builds do not record it: each commit would rebuild the whole crate.

use std::{env, path::Path, process::Command};

/// Environment variable with the commit, for builds without Git, such as the container image.
const COMMIT: &str = "BUILD_COMMIT";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={COMMIT}");
    let named = env::var(COMMIT).ok().filter(|commit| !commit.is_empty());
    if named.is_some() || env::var("PROFILE").as_deref() != Ok("release") || !Path::new(".git").exists() {
        return;
    }
    // This file changes at each commit and checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists()) {
        println!("cargo::rerun-if-changed={log}");
    }
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env={COMMIT}={commit}");
    }
}

/// Returns the first line of Git's output; `None` if Git is not installed or fails.
fn git(arguments: &[&str]) -> Option<String> {
    let ran = Command::new("git").args(arguments).output().ok().filter(|ran| ran.status.success())?;
    String::from_utf8(ran.stdout).ok().map(|text| text.trim().to_owned())
}
