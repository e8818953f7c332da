//! The workflows are valid, versions agree, and releases get their notes from the changelog.

use std::process::Command;

use super::deploy::{CHART, SIDECAR, STANDALONE, path, read, value};
use crate::support::{
    program::{output, text},
    tools,
};

const VERSION: &str = env!("CARGO_PKG_VERSION");

const WORKFLOWS: [&str; 3] =
    [".github/workflows/test.yml", ".github/workflows/nightly.yml", ".github/workflows/release.yml"];

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn workflows_are_valid() {
    let Some(actionlint) = tools::checker("workflows_are_valid", "actionlint") else { return };
    let mut lint = Command::new(actionlint);
    lint.args(WORKFLOWS.map(path));
    let ran = output(lint).await;
    assert!(ran.status.success(), "{}{}", text(&ran.stdout), text(&ran.stderr));
}

#[test]
fn scripts_of_workflows_exist() {
    let workflows = WORKFLOWS.map(read).concat();
    let scripts = [
        ".ci/run",
        ".github/release-notes",
        "docker/package",
        "docker/test",
        "docker/Dockerfile",
        "tests/run",
    ];
    for script in scripts {
        assert!(workflows.contains(script) && path(script).is_file(), "{script}");
    }
    let rust = env!("CARGO_PKG_RUST_VERSION");
    assert_eq!(workflows.matches("image: rust:").count(), 2);
    assert_eq!(workflows.matches(&format!("image: rust:{rust}-bookworm\n")).count(), 2);
}

#[test]
fn versions_agree() {
    let image = format!("holdfast:{VERSION}");
    for (file, key, expected) in [
        ("docker/Dockerfile", "ARG VERSION=", VERSION.to_owned()),
        ("docker/compose.base.yaml", "image: ${IMAGE:-", format!("{image}}}")),
        (&format!("{CHART}/Chart.yaml"), "version: ", VERSION.to_owned()),
        (&format!("{CHART}/Chart.yaml"), "appVersion: ", VERSION.to_owned()),
        (SIDECAR, "image: registry.example/holdfast", format!(":{VERSION}")),
        (STANDALONE, "image: registry.example/holdfast", format!(":{VERSION}")),
    ] {
        assert_eq!(value(&read(file), key), expected, "{file}: {key}");
    }
    let docs = read("README.md") + &read("docs/deploying.md");
    for arch in ["x86_64", "aarch64"] {
        let archive = format!("holdfast-{VERSION}-{arch}-unknown-linux-musl.tar.gz");
        assert!(docs.contains(&archive), "{archive}");
    }
    assert!(docs.contains(&format!("ghcr.io/OWNER/{image}")));
}

#[tokio::test]
async fn release_notes_come_from_the_changelog() {
    let notes = |version: &str| {
        let mut command = Command::new(path(".github/release-notes"));
        command.arg(version);
        output(command)
    };
    let ran = notes("0.1.0").await;
    let said = text(&ran.stdout);
    assert!(ran.status.success() && said.contains("### Added"), "{said}{}", text(&ran.stderr));
    assert!(!said.contains("\n## "), "{said}");
    let changelog = read("CHANGELOG.md");
    assert!(changelog.contains(&format!("\n## [{VERSION}] - ")));
    // A version without a date cannot become a release.
    let is_dated = !changelog.contains(&format!("\n## [{VERSION}] - Unreleased"));
    assert_eq!(notes(VERSION).await.status.success(), is_dated);
    assert!(!notes("9.9.9").await.status.success());
}
