//! Which methods are served, and how long a call may take.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::policy::{Glob, GlobError};

/// How calls are treated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The chain that the upstream must serve; whatever it serves, if `None`.
    pub chain_id: Option<u64>,
    /// Serve the six operations and nothing else.
    pub strict: bool,
    /// For one call, whatever it waits for.
    pub call_timeout: Duration,
    /// Which methods are let through.
    pub methods: MethodsConfig,
}

/// Which methods are let through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MethodsConfig {
    /// Globs of the methods that are forwarded.
    pub allow: Vec<String>,
    /// Globs of those that are not, allowed or not.
    pub deny: Vec<String>,
    /// Web pages that may call the methods that sign: `https://app.example.org`, say.
    pub trusted_origins: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            chain_id: None,
            strict: false,
            call_timeout: Duration::from_secs(30),
            methods: MethodsConfig::default(),
        }
    }
}

impl Default for MethodsConfig {
    fn default() -> Self {
        let globs = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect();
        Self { allow: globs(&["eth_*", "net_*", "web3_*"]), deny: Vec::new(), trusted_origins: Vec::new() }
    }
}

// === impl MethodsConfig ===

impl MethodsConfig {
    /// Are all its globs globs?
    ///
    /// # Errors
    /// Names the list and the glob that is not.
    pub fn check(&self) -> Result<(), (&'static str, GlobError)> {
        for (key, globs) in [("allow", &self.allow), ("deny", &self.deny)] {
            for glob in globs {
                Glob::try_new(glob).map_err(|error| (key, error))?;
            }
        }
        Ok(())
    }
}
