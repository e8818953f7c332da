//! Drops one member at any place of a value, or makes it null.

use serde_json::{Map, Value};

/// How the member is omitted.
#[derive(Clone, Copy)]
pub(in crate::devchain) enum Omission {
    Dropped,
    Nulled,
}

/// Members that no hash covers. An honest node may leave them out.
const UNCOVERED: [&str; 2] = ["size", "totalDifficulty"];

/// Returns `value` with one member dropped or made null, chosen by `choice`; unchanged if no member can be omitted.
///
/// Members that honest nodes leave out, and members that are `null`, are never dropped, because dropping them would
/// not be a lie.
pub(in crate::devchain) fn omit(mut value: Value, omission: Omission, choice: u64) -> Value {
    let mut members = Vec::new();
    collect(&value, omission, "", &mut members);
    let count = members.len().max(1) as u64;
    if let Some((object, name)) = members.get(usize::try_from(choice % count).unwrap_or(0))
        && let Some(Value::Object(object)) = value.pointer_mut(object)
    {
        match omission {
            Omission::Dropped => drop(object.remove(name)),
            Omission::Nulled => drop(object.insert(name.clone(), Value::Null)),
        }
    }
    value
}

/// Collects every member that can be omitted, as the JSON pointer of its object and its name.
fn collect(value: &Value, omission: Omission, pointer: &str, members: &mut Vec<(String, String)>) {
    match value {
        Value::Object(object) => {
            for (name, member) in object {
                let honest = match omission {
                    Omission::Dropped => may_be_missing(object, name),
                    Omission::Nulled => UNCOVERED.contains(&name.as_str()),
                };
                if !honest && !member.is_null() {
                    members.push((pointer.to_owned(), name.clone()));
                }
                collect(member, omission, &format!("{pointer}/{name}"), members);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, omission, &format!("{pointer}/{index}"), members);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns whether honest nodes leave out this member of a block, transaction, receipt or log.
fn may_be_missing(object: &Map<String, Value>, name: &str) -> bool {
    let is_transaction = object.contains_key("input");
    let kind = object.get("type").and_then(Value::as_str);
    match name {
        "blockTimestamp" => true,
        name if UNCOVERED.contains(&name) => true,
        "chainId" => is_transaction && kind == Some("0x0"),
        "yParity" => is_transaction,
        "v" => is_transaction && kind != Some("0x0"),
        "gasPrice" => is_transaction && !matches!(kind, Some("0x0" | "0x1")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_required_member_is_omitted() {
        let receipt =
            json!({ "type": "0x2", "to": null, "blockTimestamp": "0x1", "logs": [{ "removed": false }] });
        let dropped: Vec<_> = (0..3).map(|choice| omit(receipt.clone(), Omission::Dropped, choice)).collect();
        for without in ["/type", "/logs", "/logs/0/removed"] {
            assert!(dropped.iter().any(|value| value.pointer(without).is_none()), "{without}");
        }
        assert!(
            dropped.iter().all(|value| value.get("to").is_some() && value.get("blockTimestamp").is_some())
        );
        let nulled: Vec<_> = (0..4).map(|choice| omit(receipt.clone(), Omission::Nulled, choice)).collect();
        assert!(
            nulled.iter().any(|value| value["blockTimestamp"].is_null()),
            "absent is honest, null is not"
        );
    }

    #[test]
    fn optional_members_depend_on_the_transaction_type() {
        let transaction =
            |kind| json!({ "type": kind, "input": "0x", "gasPrice": "0x1", "v": "0x0", "chainId": "0x1" });
        let droppable = |kind| {
            let mut members = Vec::new();
            collect(&transaction(kind), Omission::Dropped, "", &mut members);
            members.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
        };
        assert_eq!(droppable("0x0"), ["gasPrice", "input", "type", "v"]);
        assert_eq!(droppable("0x1"), ["chainId", "gasPrice", "input", "type"]);
        assert_eq!(droppable("0x2"), ["chainId", "input", "type"]);
    }
}
