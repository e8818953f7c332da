//! The keys of a configuration type and their choices, learned from the errors of its `Deserialize`.

use figment::{Figment, error::Kind, providers::Serialized};
use serde::{Serialize, de::DeserializeOwned};

/// A name that no key and no choice has.
const NO_NAME: &str = "?";

/// Returns the error that `value` causes at the dotted `key`.
fn refusal<T: DeserializeOwned>(key: &str, value: impl Serialize) -> Option<Kind> {
    Figment::from(Serialized::default(key, value)).extract::<T>().err().map(|error| error.kind)
}

/// Returns the dotted names of all keys. A list is one key.
fn keys<T: DeserializeOwned>() -> Vec<String> {
    fn collect<T: DeserializeOwned>(table: &str, keys: &mut Vec<String>) {
        match refusal::<T>(&format!("{table}{NO_NAME}"), 0) {
            Some(Kind::UnknownField(_, fields)) => {
                fields.iter().for_each(|field| collect::<T>(&format!("{table}{field}."), keys));
            }
            _ => keys.push(table.trim_end_matches('.').to_owned()),
        }
    }
    let mut all = Vec::new();
    collect::<T>("", &mut all);
    all
}

/// Returns the values that a key takes, if they are a fixed list of words.
pub(super) fn choices<T: DeserializeOwned>(key: &str) -> Option<&'static [&'static str]> {
    match refusal::<T>(key, NO_NAME) {
        Some(Kind::UnknownVariant(_, choices)) => Some(choices),
        _ => None,
    }
}

/// Returns the key whose name is closest to the unknown `path`, unless all are too different. `siblings` are the valid
/// keys in the same table.
pub(super) fn similar<T: DeserializeOwned>(path: &[String], siblings: &[&str]) -> Option<String> {
    // Ignores separators, so that `log_level` is as good as `log.level`.
    let letters = |key: &str| key.replace(['.', '_'], "").to_ascii_lowercase();
    let unknown = letters(&path.join("."));
    let table = path.split_last().map_or(&[][..], |(_, table)| table);
    let beside = siblings.iter().map(|sibling| {
        let parts: Vec<_> = table.iter().map(String::as_str).chain([*sibling]).collect();
        parts.join(".")
    });
    let distance = |key: &String| strsim::osa_distance(&letters(key), &unknown);
    let nearest = beside.chain(keys::<T>()).min_by_key(distance)?;
    (distance(&nearest) <= (unknown.len() / 4).max(1)).then_some(nearest)
}
