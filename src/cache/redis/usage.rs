//! Usage of the whole Redis server, as Redis reports it. The report includes keys of other applications.

use std::time::Duration;

use parking_lot::Mutex;
use redis::{Cmd, Value};
use tokio::time::Instant;

use crate::cache::tier::Usage;

/// Age after which Holdfast asks Redis for a new report, so that not every call sends a query.
const AGE: Duration = Duration::from_secs(5);

/// The last usage report.
#[derive(Default)]
pub(super) struct Told(Mutex<State>);

#[derive(Default)]
struct State {
    usage: Usage,
    asked: Option<Instant>,
}

// === impl Told ===

impl Told {
    /// Returns the last report, and whether the caller should ask Redis for a new one.
    pub(super) fn last(&self) -> (Usage, bool) {
        let mut state = self.0.lock();
        let is_due = state.asked.is_none_or(|asked| asked.elapsed() >= AGE);
        if is_due {
            state.asked = Some(Instant::now());
        }
        (state.usage, is_due)
    }

    /// Stores the usage from the replies to the commands of [`questions`].
    pub(super) fn take(&self, said: &[Value]) {
        let text: String = said.iter().filter_map(text).collect();
        self.0.lock().usage = read(&text);
    }
}

/// Returns one `INFO` command per section, because `INFO` with several sections needs Redis 7.
pub(super) fn questions() -> [Cmd; 2] {
    ["memory", "stats"].map(|section| {
        let mut question = redis::cmd("INFO");
        question.arg(section);
        question
    })
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(text) => std::str::from_utf8(text).ok(),
        Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

fn read(text: &str) -> Usage {
    let figure = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(of, _)| *of == name)?.1.trim().parse().ok()
    };
    Usage {
        bytes: figure("used_memory"),
        // Redis reports 0 if there is no limit.
        capacity: figure("maxmemory").filter(|bytes| *bytes > 0),
        blocks: None,
        evictions: figure("evicted_keys").unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_reply_is_parsed_and_garbage_ignored() {
        let said = "# Memory\r\nused_memory:1048576\r\nused_memory_human:1.00M\r\nmaxmemory:2097152\r\n\r\n\
                    # Stats\r\nevicted_keys:7\r\n";
        let usage = Usage { bytes: Some(1 << 20), capacity: Some(2 << 20), blocks: None, evictions: 7 };
        assert_eq!(read(said), usage);
        assert_eq!(read("maxmemory:0\r\nused_memory:-3\r\nevicted_keys:many"), Usage::default());
        let told = Told::default();
        told.take(&[Value::Nil, Value::BulkString(b"used_memory:5".into()), Value::Int(3)]);
        assert_eq!(told.last().0.bytes, Some(5));
        assert!(!told.last().1, "the last query was just now");
    }
}
