//! Finds shell variables in values, which Holdfast does not expand.

use figment::value::{Dict, Value};

use super::error::{Problem, variable_of};

/// Returns a problem for the first value that contains `${NAME}`, or that should be a URL and is `$NAME`, with advice on
/// how to write it.
pub(super) fn check(values: &Dict) -> Result<(), Problem> {
    values.iter().try_for_each(|(key, value)| check_value(key, value))
}

/// Returns a problem if the URL of a node from a flag or a variable contains `${NAME}`, or is `$NAME`.
pub(super) fn check_upstream(named_by: &str, url: &str) -> Result<(), Problem> {
    let Some((name, _)) = braced(url).or_else(|| bare(url)) else { return Ok(()) };
    let message = format!("Holdfast does not expand ${{{name}}}; give the whole URL");
    Err(Problem::new(named_by, message))
}

fn check_value(key: &str, value: &Value) -> Result<(), Problem> {
    match value {
        Value::Dict(_, members) => {
            members.iter().try_for_each(|(member, value)| check_value(&format!("{key}.{member}"), value))
        }
        Value::Array(_, items) => {
            items.iter().enumerate().try_for_each(|(at, item)| check_value(&format!("{key}.{at}"), item))
        }
        Value::String(_, text) => match braced(text).or_else(|| bare(text).filter(|_| is_url(key))) {
            Some((name, is_whole)) => Err(Problem::new(key, advice(key, name, is_whole))),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Returns whether the key holds the URL of a node, a collector or a Redis.
fn is_url(key: &str) -> bool {
    matches!(key.rsplit('.').next(), Some("url" | "ws" | "otlp"))
}

fn advice(key: &str, name: &str, is_whole: bool) -> String {
    let is_secret = is_url(key) || key.rsplit('.').nth(1) == Some("headers");
    let fix = match (is_secret, is_whole) {
        (true, true) => format!("write {{ env = \"{name}\" }}"),
        (true, false) => format!("write {{ env = \"{name}\" }} and set {name} to the whole value"),
        (false, _) => {
            let parts: Vec<_> = key.split('.').take_while(|part| part.parse::<usize>().is_err()).collect();
            format!("leave the key out and set {}", variable_of(&parts.join(".")))
        }
    };
    format!("Holdfast does not expand ${{{name}}}; {fix}")
}

/// Returns the name in the first `${NAME…}`, and whether `text` is nothing else.
fn braced(text: &str) -> Option<(&str, bool)> {
    let (before, rest) = text.split_once("${")?;
    let end = rest.find('}')?;
    Some((name(rest)?, before.is_empty() && end + 1 == rest.len()))
}

/// Returns the name if `text` is `$NAME`. Other values than URLs, such as passwords, may look so.
fn bare(text: &str) -> Option<(&str, bool)> {
    let rest = text.strip_prefix('$')?;
    name(rest).filter(|name| *name == rest).map(|name| (name, true))
}

/// Returns the name of a variable at the start of `text`.
fn name(text: &str) -> Option<&str> {
    let is_end = |character: char| !character.is_ascii_alphanumeric() && character != '_';
    let name = &text[..text.find(is_end).unwrap_or(text.len())];
    (!name.is_empty() && !name.starts_with(|first: char| first.is_ascii_digit())).then_some(name)
}
