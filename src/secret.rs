//! Secrets, which must not be printed. Each is written in the configuration, or read from an environment variable or
//! a file.

use std::{cell::Cell, env, fmt, fs, io, path::PathBuf};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, Visitor},
};

const EXPECTED: &str = r#"text, { env = "NAME" } or { file = "PATH" }"#;

/// A secret as the configuration gives it: the text itself, `{ env = "NAME" }` or `{ file = "PATH" }`.
///
/// `Debug` shows its source, never its value.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The value itself, written in the configuration.
    Plain(String),
    /// The value of an environment variable.
    Env(String),
    /// The content of a file, without trailing line ends.
    File(PathBuf),
}

/// A secret that cannot be read from its source.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The variable is not set, or its value is not UTF-8.
    #[error("the environment variable {name} is not set, or not UTF-8")]
    Env {
        /// The variable's name.
        name: String,
        /// Why the variable cannot be read.
        #[source]
        source: env::VarError,
    },
    /// The file is missing or cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file's path.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
}

// === impl Secret ===

impl Secret {
    /// Reads the value from its source.
    ///
    /// # Errors
    /// If the variable is not set or the file cannot be read.
    pub fn resolve(&self) -> Result<String, SecretError> {
        match self {
            Self::Plain(value) => Ok(value.clone()),
            Self::Env(name) => {
                env::var(name).map_err(|source| SecretError::Env { name: name.clone(), source })
            }
            Self::File(path) => fs::read_to_string(path)
                .map(|value| value.trim_end_matches(['\r', '\n']).to_owned())
                .map_err(|source| SecretError::File { path: path.clone(), source }),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(_) => f.write_str(MASK),
            Self::Env(name) => write!(f, "(secret from ${name})"),
            Self::File(path) => write!(f, "(secret from {})", path.display()),
        }
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SecretVisitor)
    }
}

/// Parses a secret. It is implemented by hand, because the errors of a derived `Deserialize` show the value.
struct SecretVisitor;

impl<'de> Visitor<'de> for SecretVisitor {
    type Value = Secret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Secret, E> {
        Ok(Secret::Plain(value.to_owned()))
    }

    // Serde's own message would show the number, which may be a key without quotes.
    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Secret, E> {
        Err(E::custom(format_args!("expected {EXPECTED}")))
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Secret, E> {
        Err(E::custom(format_args!("expected {EXPECTED}")))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Secret, E> {
        Err(E::custom(format_args!("expected {EXPECTED}")))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Secret, A::Error> {
        let wrong = || de::Error::custom(format_args!("expected {EXPECTED}"));
        let (place, name) = map.next_entry::<String, String>().map_err(|_| wrong())?.ok_or_else(wrong)?;
        let secret = match place.as_str() {
            "env" => Secret::Env(name),
            "file" => Secret::File(name.into()),
            _ => return Err(wrong()),
        };
        match map.next_key::<String>()? {
            None => Ok(secret),
            Some(_) => Err(wrong()),
        }
    }
}

thread_local! {
    static IS_MASKED: Cell<bool> = const { Cell::new(false) };
}

/// Text in place of a secret.
const MASK: &str = "(secret)";

/// Runs `serialize`, in which every secret that the configuration holds as text becomes `(secret)`.
pub fn masked<T>(serialize: impl FnOnce() -> T) -> T {
    let before = IS_MASKED.replace(true);
    let serialized = serialize();
    IS_MASKED.set(before);
    serialized
}

/// Serializes the value in memory only, for example to compare two configurations. The result is never written
/// anywhere, except within [`masked`].
impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        match self {
            Self::Plain(value) => serializer.serialize_str(if IS_MASKED.get() { MASK } else { value }),
            Self::Env(name) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("env", name)?;
                map.end()
            }
            Self::File(path) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("file", path)?;
                map.end()
            }
        }
    }
}
