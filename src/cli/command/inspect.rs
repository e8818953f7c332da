//! `holdfast inspect` and `holdfast purge`

use std::time::Duration;

use bytesize::ByteSize;
use clap::Args;
use serde_json::Value;

use crate::cli::{admin::AdminTarget, failure::Failure, output::say, runtime::run};
use crate::{config::LogConfig, display::RoughDuration, proxy::Subject};

/// Time limit of a request. It is long because a search through a large cache takes some time.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Show the entries that a running instance has cached for a block or a transaction.
///
/// Shows the kind, size, verification level, source endpoint and age of each entry; and whether the block is canonical:
/// final, on the tracked branch, confirmed by the upstream a moment ago, orphaned, or unknown. Makes no upstream call.
#[derive(Debug, Args)]
#[command(after_help = INSPECT_EXAMPLES)]
pub(in crate::cli) struct InspectArgs {
    /// The hash of a block or a transaction, or the number of a block
    #[arg(value_name = "HASH|NUMBER", value_parser = subject)]
    subject: Subject,

    /// Print the JSON of /lookup
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: AdminTarget,
}

const INSPECT_EXAMPLES: &str = "\
Examples:
  holdfast inspect 19000000           a block by its number
  holdfast inspect 0x8d5d…21d3        a block or a transaction by its whole hash
  holdfast inspect 19000000 --json    the same as JSON, for programs";

/// Remove a block or a transaction from the cache of a running instance.
///
/// Removes it from memory, disk and Redis, so that the next call for it asks the node again. For a transaction,
/// removes all entries that contain it: its block and the receipts of that block. Holdfast's view of the canonical
/// chain does not change.
///
/// If the instance requires a token (admin_token), set the environment variable HOLDFAST_ADMIN_TOKEN.
#[derive(Debug, Args)]
#[command(after_help = PURGE_EXAMPLES)]
pub(in crate::cli) struct PurgeArgs {
    /// The hash of a block or a transaction
    #[arg(value_name = "HASH", value_parser = hash)]
    hash: Subject,

    #[command(flatten)]
    target: AdminTarget,
}

const PURGE_EXAMPLES: &str = "\
Examples:
  holdfast purge 0x8d5d…21d3
  HOLDFAST_ADMIN_TOKEN=hf_… holdfast purge 0x8d5d…21d3 --admin 10.0.0.5:8556";

// === impl InspectArgs ===

impl InspectArgs {
    pub(in crate::cli) fn run(self) -> Result<(), Failure> {
        run(&LogConfig::default(), async move {
            let path = format!("/lookup?q={}", written(self.subject));
            let reply = self.target.client(TIMEOUT)?.get(&path).await.map_err(Failure::Other)?;
            let found = reply.value(&path).map_err(|why| at(&self.target, &why))?;
            if self.json { say(format_args!("{found:#}")) } else { say(told(self.subject, &found)) }
        })
    }
}

// === impl PurgeArgs ===

impl PurgeArgs {
    pub(in crate::cli) fn run(self) -> Result<(), Failure> {
        run(&LogConfig::default(), async move {
            let path = format!("/purge?q={}", written(self.hash));
            let reply = self.target.client(TIMEOUT)?.post(&path).await.map_err(Failure::Other)?;
            let purged = reply.value(&path).map_err(|why| at(&self.target, &why))?;
            let entries: Vec<_> = purged["purged"].as_array().into_iter().flatten().collect();
            for entry in &entries {
                say(format_args!("removed: {}", entry_line(entry)))?;
            }
            let bytes = ByteSize(purged["bytes"].as_u64().unwrap_or_default());
            match entries.len() {
                0 => say("nothing was cached in memory")?,
                all => say(format_args!("{all} in all, {bytes}"))?,
            }
            let left_in: Vec<_> =
                purged["left_in"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            if left_in.is_empty() {
                return Ok(());
            }
            let tiers = left_in.join(" and ");
            Err(at(&self.target, &format!("entries may still be in {tiers}, which fails or is slow; retry")))
        })
    }
}

fn at(target: &AdminTarget, why: &str) -> Failure {
    Failure::Other(format!("{}: {why}", target.address()))
}

fn subject(text: &str) -> Result<Subject, String> {
    text.parse().map_err(|error: crate::proxy::SubjectError| error.to_string())
}

fn hash(text: &str) -> Result<Subject, String> {
    match subject(text)? {
        hash @ Subject::Hash(_) => Ok(hash),
        Subject::Number(_) => Err(
            "expected the hash of a block or a transaction; `holdfast inspect` shows the hash at a number"
                .to_owned(),
        ),
    }
}

fn written(subject: Subject) -> String {
    match subject {
        Subject::Hash(hash) => format!("{hash:#x}"),
        Subject::Number(number) => number.0.to_string(),
    }
}

/// Formats the result of a lookup in a few lines.
fn told(subject: Subject, found: &Value) -> String {
    let mut lines = Vec::new();
    for block in found["blocks"].as_array().into_iter().flatten() {
        let number = block["number"].as_u64().map_or_else(|| "?".to_owned(), |number| number.to_string());
        lines.push(format!("block {number}  {}", text(&block["hash"])));
        lines.push(format!("  {}", canonicity(&block["canonicity"])));
        lines.extend(held(block, "no entries in memory"));
    }
    for place in found["transactions"].as_array().into_iter().flatten() {
        lines.push(format!("transaction {}", text(&place["hash"])));
        lines.push(format!(
            "  at index {} of block {}  {}",
            place["index"],
            place["number"],
            text(&place["block"])
        ));
        lines.push(format!("  {}", canonicity(&place["canonicity"])));
        lines.extend(held(place, "no entries in memory"));
    }
    if lines.is_empty() {
        lines.push(format!("nothing is known about {}", written(subject)));
        if let (Subject::Number(number), Some(head)) = (subject, found["head"].as_u64()) {
            let above = if number.0 > head { ", below this number" } else { "" };
            lines.push(format!("  the head is at {head}{above}"));
        }
    }
    lines.join("\n")
}

fn held(of: &Value, nothing: &str) -> Vec<String> {
    let entries = of["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
    if entries.is_empty() {
        return vec![format!("  {nothing}")];
    }
    entries.iter().map(|entry| format!("  {}", entry_line(entry))).collect()
}

fn entry_line(entry: &Value) -> String {
    let mut line = format!(
        "{:<17} {:>10}",
        kind(text(&entry["kind"])),
        ByteSize(entry["bytes"].as_u64().unwrap_or_default()).to_string()
    );
    if let Some(verified) = entry["verified"].as_str() {
        line.push_str(&format!("  {verified:<10}"));
    }
    if let Some(endpoint) = entry["endpoint"].as_str() {
        line.push_str(&format!("  from {endpoint}"));
    }
    if let Some(age) = entry["age_seconds"].as_u64() {
        line.push_str(&format!(", {} ago", RoughDuration(Duration::from_secs(age))));
    }
    line.trim_end().to_owned()
}

fn kind(kind: &str) -> &str {
    match kind {
        "block" => "whole block",
        "block_hashes" => "block with hashes",
        "receipts" => "all receipts",
        "transaction" => "single transaction",
        "receipt" => "single receipt",
        "deflated" => "deflated form",
        "log_index" => "log index",
        kind => kind,
    }
}

fn canonicity(canonicity: &Value) -> &str {
    match text(canonicity) {
        "final" => "final",
        "tracked" => "on the tracked branch",
        "asked" => "canonical: the upstream confirmed it a moment ago",
        "orphaned" => "orphaned: not canonical",
        "unknown" => "not known to be canonical: a call by number asks the upstream",
        canonicity => canonicity,
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
