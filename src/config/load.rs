//! Loads the configuration from file, environment and flags; each source overrides those before it.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use figment::{
    Figment,
    providers::{Env, Format, Serialized, Toml},
    value::{Dict, Value},
};
use serde::Serialize;

use super::{
    error::{ConfigError, ENV_PREFIX, Problem},
    keys::{Config, ENV_IMAGE},
    shell,
};
use crate::upstream::{EndpointConfig, check_endpoint};

/// Environment variables that are not named after a key.
const ENV_CONFIG: &str = "HOLDFAST_CONFIG";
const ENV_UPSTREAM_URL: &str = "HOLDFAST_UPSTREAM_URL";

/// The admin token in plain text, for commands that call a running instance; the configuration has only its hash.
pub(crate) const ENV_ADMIN_TOKEN: &str = "HOLDFAST_ADMIN_TOKEN";

/// The variable with the API key that `holdfast warm` sends.
pub(crate) const ENV_KEY: &str = "HOLDFAST_KEY";

const FLAG_UPSTREAM: &str = "--upstream";

/// Sources of a configuration: a file, the environment and flags.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    file: Option<PathBuf>,
    environment: bool,
    flags: Vec<(&'static str, Value)>,
    upstreams: Vec<String>,
}

/// Checks that the file can be read, because figment's own errors about unreadable files are less clear.
fn can_be_read(path: &Path) -> Result<(), ConfigError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => ConfigError::NoFile { path: path.to_owned() },
        _ => ConfigError::Unread { path: path.to_owned(), source },
    };
    let kind = fs::metadata(path).map_err(failed)?.file_type();
    if kind.is_dir() {
        return Err(ConfigError::Directory { path: path.to_owned() });
    }
    // A pipe can be read only once, so this check opens regular files only.
    if kind.is_file() {
        fs::File::open(path).map_err(failed)?;
    }
    Ok(())
}

// === impl Sources ===

impl Sources {
    /// Returns no sources: only the defaults apply.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads `file`, if it is given.
    pub fn with_file(self, file: Option<PathBuf>) -> Self {
        Self { file, ..self }
    }

    /// Reads the variables `HOLDFAST_*`: `HOLDFAST_HTTP__MAX_BATCH` sets `http.max_batch`, `HOLDFAST_CONFIG` names
    /// the file, and `HOLDFAST_UPSTREAM_URL` names the node. If one of the latter two is empty, it counts as unset.
    pub fn with_environment(self) -> Self {
        let named = env::var_os(ENV_CONFIG).filter(|path| !path.is_empty()).map(PathBuf::from);
        let file = self.file.or(named);
        Self { file, environment: true, ..self }
    }

    /// Sets a key, if there is a value.
    ///
    /// # Panics
    /// If the value cannot be serialised. The values of all flags can.
    #[must_use]
    pub fn with_flag(mut self, key: &'static str, value: Option<impl Serialize>) -> Self {
        if let Some(value) = value {
            self.flags.push((key, Value::serialize(value).expect("flags are text, numbers and booleans")));
        }
        self
    }

    /// Uses these nodes, if there are any, instead of those in the file or the environment.
    #[must_use]
    pub fn with_upstreams(self, upstreams: Vec<String>) -> Self {
        Self { upstreams, ..self }
    }

    /// Merges the sources and checks the result.
    ///
    /// # Errors
    /// If a source cannot be read or is invalid. The error names the source, the key and a valid value.
    pub fn load(self) -> Result<Config, ConfigError> {
        let mut figment = Figment::new();
        if let Some(path) = &self.file {
            can_be_read(path)?;
            figment = figment.merge(Toml::file_exact(path));
        }
        let (mut upstreams, mut named_by) = (self.upstreams, FLAG_UPSTREAM);
        if self.environment {
            let beside = [ENV_CONFIG, ENV_UPSTREAM_URL, ENV_ADMIN_TOKEN, ENV_KEY, ENV_IMAGE]
                .map(|name| &name[ENV_PREFIX.len()..]);
            let set = Env::prefixed(ENV_PREFIX).ignore(&beside).filter(|key| !is_service_link(key.as_str()));
            figment = figment.merge(set.split("__"));
            let url = env::var(ENV_UPSTREAM_URL).ok().filter(|url| !url.trim().is_empty());
            if let (true, Some(url)) = (upstreams.is_empty(), url) {
                upstreams.push(url);
                named_by = ENV_UPSTREAM_URL;
            }
        }
        for (key, value) in self.flags {
            figment = figment.merge(Serialized::default(key, value));
        }
        let sourced = |problem: Problem| {
            // A source sets a list as a whole, so figment has metadata for the list, but not for its elements.
            let parts = problem.key.split('.').take_while(|part| part.parse::<usize>().is_err());
            let set_by = figment.find_metadata(&parts.collect::<Vec<_>>().join("."));
            problem.set_by(set_by)
        };
        let values: Dict = figment.extract().map_err(ConfigError::of::<Dict>)?;
        shell::check(&values).map_err(sourced)?;
        let mut config: Config = figment.extract().map_err(ConfigError::of::<Config>)?;
        config.check().map_err(sourced)?;
        if upstreams.is_empty() {
            let set_by = figment.find_metadata("upstream.endpoints");
            for (at, endpoint) in config.upstream.endpoints.iter().enumerate() {
                let problem = |error| Problem::new(format!("upstream.endpoints.{at}"), error);
                check_endpoint(endpoint).map_err(|error| problem(error).set_by(set_by))?;
            }
        } else {
            upstreams.iter().try_for_each(|url| shell::check_upstream(named_by, url))?;
            config.upstream.endpoints = upstreams.into_iter().map(EndpointConfig::at).collect();
            for endpoint in &config.upstream.endpoints {
                check_endpoint(endpoint).map_err(|error| Problem::new(named_by, error))?;
            }
        }
        Ok(config)
    }
}

/// Returns whether Kubernetes sets this variable in the pods of a namespace that has a service named `holdfast`
/// (`HOLDFAST_PORT=tcp://…`, `HOLDFAST_SERVICE_HOST`, `HOLDFAST_PORT_8555_TCP_ADDR`). No key of Holdfast has such a
/// name.
fn is_service_link(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    !key.contains("__") && ["service_", "port_"].iter().any(|part| key.contains(part))
        || key == "port"
        || key.ends_with("_port")
}
