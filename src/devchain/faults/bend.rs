//! Makes one change at any place of a value.

use serde_json::Value;

/// Members that no hash covers, so a verifier cannot detect a change of them.
const UNCOVERED: [&str; 2] = ["size", "totalDifficulty"];

/// A change at one place.
#[derive(Clone, Copy)]
enum Bend {
    /// Replaces the value by another of the same kind.
    Change,
    /// Drops an element.
    Drop(usize),
    /// Duplicates an element.
    Double(usize),
    /// Swaps two adjacent elements.
    Swap(usize),
}

/// Returns `value` with one change, chosen by `choice`; unchanged if no change is possible.
pub(in crate::devchain) fn bend(mut value: Value, choice: u64) -> Value {
    let mut bends = Vec::new();
    collect(&value, &mut Vec::new(), &mut bends);
    let count = bends.len().max(1) as u64;
    if let Some((pointer, bend)) = bends.get(usize::try_from(choice % count).unwrap_or(0))
        && let Some(place) = value.pointer_mut(pointer)
    {
        carry_out(place, *bend, choice / count);
    }
    value
}

/// Collects every possible change of a value, as a JSON pointer and the change.
fn collect(value: &Value, path: &mut Vec<String>, bends: &mut Vec<(String, Bend)>) {
    let pointer = || path.iter().map(|step| format!("/{step}")).collect::<String>();
    match value {
        Value::Object(members) => {
            for (name, member) in members.iter().filter(|(name, _)| !UNCOVERED.contains(&name.as_str())) {
                path.push(name.clone());
                collect(member, path, bends);
                path.pop();
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                bends.push((pointer(), Bend::Drop(index)));
                bends.push((pointer(), Bend::Double(index)));
                if items.get(index + 1).is_some_and(|next| next != item) {
                    bends.push((pointer(), Bend::Swap(index)));
                }
            }
            for (index, item) in items.iter().enumerate() {
                path.push(index.to_string());
                collect(item, path, bends);
                path.pop();
            }
        }
        Value::String(_) | Value::Bool(_) => bends.push((pointer(), Bend::Change)),
        Value::Null | Value::Number(_) => {}
    }
}

fn carry_out(place: &mut Value, bend: Bend, choice: u64) {
    match (place, bend) {
        (Value::Bool(value), Bend::Change) => *value = !*value,
        (Value::String(text), Bend::Change) => *text = changed(text, choice),
        (Value::Array(items), Bend::Drop(index)) => drop(items.remove(index)),
        (Value::Array(items), Bend::Double(index)) => items.insert(index, items[index].clone()),
        (Value::Array(items), Bend::Swap(index)) => items.swap(index, index + 1),
        _ => {}
    }
}

/// Changes one hexadecimal digit, but never the first, so that no quantity starts with zero.
fn changed(text: &str, choice: u64) -> String {
    let digits = text.len().saturating_sub(3) as u64;
    if !text.starts_with("0x") || digits == 0 {
        // The text is not hexadecimal or has at most one digit, so it gets longer instead.
        return if text == "0x" { "0x00".to_owned() } else { format!("{text}1") };
    }
    let at = 3 + usize::try_from(choice % digits).unwrap_or(0);
    let digit = u32::from_str_radix(&text[at..=at], 16).unwrap_or(0);
    let other = char::from_digit((digit + 1) % 16, 16).unwrap_or('0');
    format!("{}{other}{}", &text[..at], &text[at + 1..])
}
