//! Writes a configuration as TOML.

use serde_json::Value;

use super::keys::Config;
use crate::secret;

/// Returns the configuration as TOML: a line for each key that has a value, with secrets masked.
pub fn toml(config: &Config) -> String {
    let values = secret::masked(|| config.values());
    let lines: Vec<_> = values.iter().map(|(key, value)| format!("{key} = {}", toml_value(value))).collect();
    lines.join("\n")
}

fn toml_value(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(toml_value).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let member =
                |(key, value): (&String, &Value)| format!("{} = {}", toml_key(key), toml_value(value));
            let members: Vec<_> = members.iter().map(member).collect();
            format!("{{ {} }}", members.join(", "))
        }
        // TOML writes numbers, booleans and text as JSON does.
        value => value.to_string(),
    }
}

fn toml_key(key: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if key.bytes().all(is_bare) { key.to_owned() } else { Value::from(key).to_string() }
}
