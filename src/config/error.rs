//! Configuration errors, which name the source, the key and a valid value.

use std::{fmt, io, path::PathBuf};

use figment::{
    Metadata, Source,
    error::{Actual, Error, Kind, OneOf},
};

use super::removed;

/// Prefix of the environment variables that set keys.
pub(super) const ENV_PREFIX: &str = "HOLDFAST_";

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The named file does not exist.
    #[error("{}: no such file", path.display())]
    NoFile {
        /// Path of the file.
        path: PathBuf,
    },
    /// The path names a directory.
    #[error("{}: this is a directory; name the file in it", path.display())]
    Directory {
        /// Path of the directory.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unread {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// One key is invalid.
    #[error("{0}")]
    Problem(Problem),
    /// Several keys are invalid.
    #[error("{}", lines(.0))]
    Problems(Vec<Problem>),
}

/// A problem with one key: where it was set, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, the environment or the flags; empty if unknown.
    pub source: String,
    /// Dotted name of the key.
    pub key: String,
    /// The fault, and a valid value.
    pub message: String,
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

// === impl ConfigError ===

impl From<Error> for ConfigError {
    fn from(error: Error) -> Self {
        let mut problems: Vec<_> = error.into_iter().map(|error| Problem::of(&error)).collect();
        match problems.len() {
            1 => Self::Problem(problems.remove(0)),
            _ => Self::Problems(problems),
        }
    }
}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

// === impl Problem ===

impl Problem {
    /// Creates a problem with `key` whose source is not known.
    pub fn new(key: impl Into<String>, message: impl fmt::Display) -> Self {
        Self { source: String::new(), key: key.into(), message: format!("{message}") }
    }

    fn of(error: &Error) -> Self {
        let mut path = error.path.clone();
        let message = match &error.kind {
            Kind::UnknownField(name, expected) => {
                if path.last().is_none_or(|last| last != name) {
                    path.push(name.clone());
                }
                match removed::advice(&path.join(".")) {
                    Some(advice) => format!("this key was removed: {advice}"),
                    None => format!("unknown key; valid keys here are {}", listed(expected)),
                }
            }
            Kind::UnknownVariant(found, expected) => {
                let found = if is_url(found) { "this".to_owned() } else { format!("{found:?}") };
                format!("{found} is not one of {}", listed(expected))
            }
            Kind::InvalidType(..) if path == ["upstream"] => NO_TABLE.to_owned(),
            Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
                let expected = in_plain_words(expected);
                let hint = in_decimal(found) + &in_brackets(found, &path);
                format!("expected {expected}, found {}{hint}", shown(found, &path))
            }
            Kind::MissingField(name) => {
                path.push(name.to_string());
                "is missing".to_owned()
            }
            // For these two keys, the only error of this kind is text that is not a socket address.
            Kind::Message(_) if path == ["listen"] || path == ["admin"] => format!("expected {AN_ADDRESS}"),
            Kind::Message(message) => without_excerpt(message),
            other => other.to_string(),
        };
        Self { source: String::new(), key: path.join("."), message }.set_by(error.metadata.as_ref())
    }

    /// Adds the source that set the key.
    pub(super) fn set_by(self, metadata: Option<&Metadata>) -> Self {
        let source = metadata.map(|metadata| match &metadata.source {
            Some(Source::File(path)) => path.display().to_string(),
            _ if metadata.name.contains("environment") => format!("the environment ({ENV_PREFIX}…)"),
            _ => "the flags".to_owned(),
        });
        Self { source: source.unwrap_or_default(), ..self }
    }
}

/// Lists the valid values. Strips the words "one of", which `OneOf` adds to three values or more.
fn listed(expected: &'static [&'static str]) -> String {
    let listed = OneOf(expected).to_string();
    listed.strip_prefix("one of ").map_or(listed.clone(), str::to_owned)
}

/// Error for `upstream = "URL"`, a common mistake in a first configuration.
const NO_TABLE: &str = "expected a table; to name a node, use --upstream, HOLDFAST_UPSTREAM_URL, or url in \
                        [[upstream.endpoints]]";

/// Expected form of a listener's address.
pub(crate) const AN_ADDRESS: &str = "an address and a port, such as 127.0.0.1:8555 or [::1]:8555";

/// Translates serde's names of types into words for users.
fn in_plain_words(expected: &str) -> &str {
    match expected {
        "usize" | "u64" | "u32" => "a whole number",
        "a nonzero u32" => "a whole number from 1 on",
        "parsable string" => "a size such as \"5 MiB\"",
        "a duration" => "a time such as \"500ms\", \"10s\" or \"1m 30s\"",
        "a sequence" => "a list",
        "socket address" => AN_ADDRESS,
        table if table.starts_with("struct ") => "a table",
        other => other,
    }
}

/// Returns a hint with the decimal value of a hexadecimal number such as `0x2a`.
fn in_decimal(found: &Actual) -> String {
    let Actual::Str(text) = found else { return String::new() };
    let number = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    number.map_or_else(String::new, |number| format!("; that is {number}"))
}

/// Returns a hint about `[[…]]` if one table was found in place of a list of tables.
fn in_brackets(found: &Actual, path: &[String]) -> String {
    let path = path.join(".");
    match found {
        Actual::Map if path == "upstream.endpoints" || path == "http.keys" => {
            format!("; begin each with [[{path}]], in two brackets")
        }
        _ => String::new(),
    }
}

fn is_url(text: &str) -> bool {
    text.contains("://")
}

/// Returns the value for display. Hides URLs, and text below keys that may hold a secret.
fn shown(found: &Actual, path: &[String]) -> String {
    let is_secret = |key: &String| ["upstream", "tracing", "keys", "redis"].contains(&key.as_str());
    match found {
        Actual::Str(text) if is_url(text) || path.iter().any(is_secret) => "text".to_owned(),
        found => found.to_string(),
    }
}

/// Removes the line of source that TOML errors quote, which may hold a secret.
fn without_excerpt(message: &str) -> String {
    let is_excerpt = |line: &str| {
        line.split_once('|')
            .is_some_and(|(left, _)| left.trim().chars().all(|character| character.is_ascii_digit()))
    };
    let lines = message.lines().filter(|line| !is_excerpt(line)).map(str::trim);
    let kept: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    kept.join(": ")
}

impl std::error::Error for Problem {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [self.source.as_str(), self.key.as_str(), self.message.as_str()];
        let said: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        f.write_str(&said.join(": "))
    }
}
