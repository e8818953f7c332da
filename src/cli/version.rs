//! Version, commit and features of this build.

use std::sync::LazyLock;

/// Commit that the build script found, in release builds from a Git checkout, or that `BUILD_COMMIT` named.
const COMMIT: Option<&str> = option_env!("BUILD_COMMIT");

const FEATURES: &[&str] = if cfg!(feature = "otlp") { &["otlp"] } else { &[] };

/// Text of `--version`.
pub(super) static LONG_VERSION: LazyLock<String> = LazyLock::new(|| describe(COMMIT, FEATURES));

fn describe(commit: Option<&str>, features: &[&str]) -> String {
    let commit = commit.filter(|commit| !commit.is_empty()).unwrap_or("unknown");
    let features = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
    format!("{} (commit {commit}, features: {features})", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_has_commit_and_features() {
        let number = env!("CARGO_PKG_VERSION");
        let full = format!("{number} (commit 0123456789ab, features: otlp, x)");
        assert_eq!(describe(Some("0123456789ab"), &["otlp", "x"]), full);
        assert_eq!(describe(None, &[]), format!("{number} (commit unknown, features: none)"));
        assert_eq!(describe(Some(""), &[]), describe(None, &[]));
    }
}
