//! Configuration errors, which name the source, the key and a valid value.

use std::{fmt, io, path::PathBuf};

use figment::{
    Metadata, Source,
    error::{Actual, Error, Kind, OneOf},
};

use serde::de::DeserializeOwned;

use super::schema;

/// Prefix of the environment variables that set keys.
pub(super) const ENV_PREFIX: &str = "HOLDFAST_";

/// Returns the environment variable that sets a key.
pub(super) fn variable_of(key: &str) -> String {
    format!("{ENV_PREFIX}{}", key.replace('.', "__").to_uppercase())
}

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

impl ConfigError {
    /// Describes an error from reading a `T`.
    pub(super) fn of<T: DeserializeOwned>(error: Error) -> Self {
        let mut problems: Vec<_> = error.into_iter().map(|error| Problem::of::<T>(&error)).collect();
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

    fn of<T: DeserializeOwned>(error: &Error) -> Self {
        let mut path = error.path.clone();
        let message = match &error.kind {
            Kind::UnknownField(name, expected) => {
                if path.last().is_none_or(|last| last != name) {
                    path.push(name.clone());
                }
                let similar = schema::similar::<T>(&path, expected);
                let similar = similar.map_or_else(String::new, |key| {
                    let is_variable = is_environment(error.metadata.as_ref());
                    let name = if is_variable { variable_of(&key) } else { key };
                    format!("; did you mean {name}?")
                });
                format!("unknown key; valid keys here are {}{similar}", listed(expected))
            }
            Kind::UnknownVariant(found, expected) => {
                let found = if is_url(found) { "this".to_owned() } else { format!("{found:?}") };
                format!("{found} is not one of {}", listed(expected))
            }
            Kind::InvalidType(..) if path == ["upstream"] => NO_TABLE.to_owned(),
            Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
                let choices = schema::choices::<T>(&path.join(".")).map(listed);
                let expected = choices.unwrap_or_else(|| in_plain_words(expected).to_owned());
                let hint = in_decimal(found) + &in_brackets(found, &path);
                format!("expected {expected}, found {}{hint}", shown(found, &path))
            }
            Kind::MissingField(name) => {
                path.push(name.to_string());
                "is missing".to_owned()
            }
            Kind::Message(message) => {
                let message = without_excerpt(message);
                let hint = if message.contains("table header: duplicate key") { IN_BRACKETS } else { "" };
                message + hint
            }
            other => other.to_string(),
        };
        Self { source: String::new(), key: path.join("."), message }.set_by(error.metadata.as_ref())
    }

    /// Adds the source that set the key.
    pub(super) fn set_by(self, metadata: Option<&Metadata>) -> Self {
        let source = metadata.map(|metadata| match &metadata.source {
            Some(Source::File(path)) => path.display().to_string(),
            _ if is_environment(Some(metadata)) => format!("the environment ({ENV_PREFIX}…)"),
            _ => "the flags".to_owned(),
        });
        Self { source: source.unwrap_or_default(), ..self }
    }
}

fn is_environment(metadata: Option<&Metadata>) -> bool {
    metadata.is_some_and(|metadata| metadata.name.contains("environment"))
}

/// Lists the valid values. Strips the words "one of", which `OneOf` adds to three values or more.
fn listed(expected: &'static [&'static str]) -> String {
    let listed = OneOf(expected).to_string();
    listed.strip_prefix("one of ").map_or(listed.clone(), str::to_owned)
}

/// Error for `upstream = "URL"`, a common mistake in a first configuration.
const NO_TABLE: &str = "expected a table; to name a node, use --upstream, HOLDFAST_UPSTREAM_URL, or url in \
                        [[upstream.endpoints]]";

/// Hint for a table that occurs twice.
const IN_BRACKETS: &str = "; begin each of several with two brackets, as in [[upstream.endpoints]]";

/// Translates serde's names of types into words for users.
fn in_plain_words(expected: &str) -> &str {
    match expected {
        "usize" | "u64" | "u32" | "u16" => "a whole number",
        "a nonzero u32" => "a whole number from 1 on",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "string" => "text",
        "path string" => "a path",
        "parsable string" => "a size such as \"5 MiB\"",
        "a duration" => "a time such as \"500ms\", \"10s\" or \"1m 30s\"",
        "a sequence" => "a list",
        "a map" => "a table",
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
        Actual::Str(text) => format!("{text:?}"),
        Actual::Bool(value) => value.to_string(),
        Actual::Unsigned(number) => format!("the number {number}"),
        Actual::Signed(number) => format!("the number {number}"),
        Actual::Float(number) => format!("the number {number}"),
        Actual::Map => "a table".to_owned(),
        Actual::Seq => "a list".to_owned(),
        _ => "another kind of value".to_owned(),
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
