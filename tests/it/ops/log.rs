//! The log as programs read it.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{process, upstream};

/// Returns whether a text looks like a duration with a unit, such as `1.5ms`.
fn is_duration(text: &str) -> bool {
    let number = text.trim_end_matches(|char: char| char.is_alphabetic());
    let unit = &text[number.len()..];
    ["ns", "µs", "ms", "s", "m"].contains(&unit) && number.trim().parse::<f64>().is_ok()
}

/// Asserts that durations are numbers, and collects the names of their fields.
fn collect_durations(value: &Value, timed: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if name.ends_with("_seconds") {
                    assert!(value.is_f64(), "{name}: {value}");
                    timed.push(name.clone());
                }
                collect_durations(value, timed);
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| collect_durations(element, timed)),
        Value::String(text) => assert!(!is_duration(text), "{text}"),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[tokio::test]
async fn json_log_has_durations_as_numbers() {
    let node = upstream::devchain().blocks(3, 1).run().await;
    let process = process::serve(&node)
        .set("LOG__FORMAT", "json")
        .set("LOG__LEVEL", "debug")
        .set("DRAIN_DELAY", "10ms");
    let mut process = process.run().await;
    for _ in 0..2 {
        process.client().ask("eth_getBlockByNumber", json!(["0x1", true])).await.unwrap();
    }
    process.signal(Signal::TERM);
    assert_eq!(process.exit_code().await, Some(0));
    let mut timed = Vec::new();
    for line in process.said().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line.get("span"), None, "the last of the spans is repeated");
        collect_durations(&line, &mut timed);
    }
    for name in ["elapsed_seconds", "drain_delay_seconds"] {
        assert!(timed.iter().any(|timed| timed == name), "no {name}");
    }
}

#[tokio::test]
async fn debug_log_has_no_lines_of_libraries() {
    let node = upstream::devchain().blocks(3, 1).run().await;
    for (level, has_libraries) in [("trace", false), ("trace,holdfast=trace", true)] {
        let process = process::serve(&node).set("LOG__FORMAT", "json").set("LOG__LEVEL", level);
        let mut process = process.run().await;
        process.client().ask("eth_gasPrice", json!([])).await.unwrap();
        process.signal(Signal::TERM);
        assert_eq!(process.exit_code().await, Some(0));
        let said = process.said();
        let is_foreign = |line: &str| !line.contains(r#""target":"holdfast"#);
        assert_eq!(said.lines().any(is_foreign), has_libraries, "{level}: {said}");
    }
}
