//! The lines of the demo, each of at most 100 columns.

use std::net::SocketAddr;

use serde_json::Value;

use crate::{
    app::{Exchange, Score, StagedReorg},
    cli::live_line::SEPARATOR,
    display::Latency,
};

/// Number of characters of a hash that are shown, `0x` included. They tell the blocks of a demo apart.
const HASH_SHOWN: usize = 10;

/// Returns the lines about the same call, made twice.
pub(super) fn miss_and_hit(first: &Exchange, second: &Exchange) -> Vec<String> {
    let row = |name: &str, exchange: &Exchange| {
        let took = Latency(exchange.took).to_string();
        format!("     {name}   {took:<7}   {}", status(exchange))
    };
    vec![
        "1. A miss, then a hit: the same call twice".to_owned(),
        String::new(),
        format!("   {}", call(first)),
        row("first ", first),
        row("second", second),
    ]
}

/// Returns the lines about a reorg, with the answers before and after it.
pub(super) fn staged(reorg: &StagedReorg) -> Vec<String> {
    let StagedReorg { depth, block, receipt, orphan, stale } = reorg;
    let mut lines = vec![
        format!("2. A reorg: the development chain replaces its last {}", blocks(*depth)),
        String::new(),
    ];
    lines.push(format!("   {}", call(&block[0])));
    for (name, answer) in ["before", "after "].iter().zip(block) {
        lines.push(format!("     {name}   hash {:<26}   {}", hash(answer, "hash"), status(answer)));
    }
    if let Some(receipt) = receipt {
        lines.push(format!("   {}", call(&receipt[0])));
        for (name, answer) in ["before", "after "].iter().zip(receipt) {
            let place = format!("block {}, {}", number(answer, "blockNumber"), hash(answer, "blockHash"));
            lines.push(format!("     {name}   in {place:<28}   {}", status(answer)));
        }
    }
    lines.push(format!(
        "   Calls got the old answer for {}; chain.max_staleness allows 1 s.",
        Latency(*stale)
    ));
    if orphan.text("hash").is_some() {
        lines.push("   The old block stays readable by its hash:".to_owned());
        lines.push(format!("   {}", call(orphan)));
        lines.push(format!("     now      hash {:<26}   {}", hash(orphan, "hash"), status(orphan)));
    }
    lines
}

/// Returns the line about a later reorg.
pub(super) fn announcement(reorg: &StagedReorg) -> String {
    let [before, after] = &reorg.block;
    format!(
        "reorg of {}: block {} was {}, is {} (old answer for {})",
        blocks(reorg.depth),
        number(before, "number"),
        hash(before, "hash"),
        hash(after, "hash"),
        Latency(reorg.stale),
    )
}

/// Returns the lines that show how to get a miss and a hit by hand.
pub(super) fn try_it(rpc: SocketAddr, number: u64) -> Vec<String> {
    let call = format!(r#""method":"eth_getBlockByNumber","params":["{number:#x}",true]"#);
    vec![
        "Try it twice in another terminal: the first answer comes from the node, the second from the cache."
            .to_owned(),
        String::new(),
        format!("   curl -si http://{rpc} -H 'content-type: application/json' \\"),
        format!(r#"     -d '{{"jsonrpc":"2.0","id":1,{call}}}' \"#),
        "     | grep cache-status".to_owned(),
        String::new(),
    ]
}

/// Returns the score in one line.
pub(super) fn score(score: &Score) -> String {
    let Score { head, calls, hits, saved, hit_time, miss_time } = score;
    let percent = if *calls == 0 { 0 } else { hits * 100 / calls };
    let mut parts = Vec::new();
    parts.extend(head.map(|head| format!("block {head}")));
    parts.push(format!("{calls} calls"));
    parts.push(format!("{hits} hits ({percent} %)"));
    parts.push(format!("{saved} upstream calls saved"));
    if let (Some(hit), Some(miss)) = (hit_time, miss_time) {
        parts.push(format!("hits {}, misses {}", Latency(*hit), Latency(*miss)));
    }
    parts.join(SEPARATOR)
}

/// Returns the method and the parameters, with shortened hashes.
fn call(exchange: &Exchange) -> String {
    let shown =
        |param: &Value| param.as_str().map_or_else(|| param.to_string(), |text| format!("{:?}", short(text)));
    let params: Vec<_> = exchange.params.as_array().into_iter().flatten().map(shown).collect();
    format!("{} [{}]", exchange.method, params.join(", "))
}

fn status(exchange: &Exchange) -> String {
    format!("cache-status: {}", exchange.cache_status)
}

fn blocks(depth: u64) -> String {
    if depth == 1 { "block".to_owned() } else { format!("{depth} blocks") }
}

fn hash(exchange: &Exchange, member: &str) -> String {
    exchange.text(member).map_or_else(|| exchange.result[member].to_string(), short)
}

fn number(exchange: &Exchange, member: &str) -> String {
    exchange.number(member).map_or_else(|| exchange.result[member].to_string(), |number| number.to_string())
}

/// Shortens a hash; shorter texts stay.
fn short(text: &str) -> String {
    match text.char_indices().nth(HASH_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    /// The longest value of `cache-status` for a call about content.
    const LONGEST_STATUS: &str = "holdfast; hit; detail=block_hashes";

    fn exchange(method: &'static str, params: Value) -> Exchange {
        let hash = format!("0x{}", "ab".repeat(32));
        Exchange {
            method,
            params,
            cache_status: LONGEST_STATUS.to_owned(),
            took: Duration::from_micros(999),
            result: json!({ "hash": hash, "number": "0x98967f", "blockHash": hash, "blockNumber": "0x98967f" }),
        }
    }

    fn reorg() -> StagedReorg {
        let hash = format!("0x{}", "cd".repeat(32));
        let block = exchange("eth_getBlockByNumber", json!(["0x98967f", false]));
        let receipt = exchange("eth_getTransactionReceipt", json!([hash]));
        StagedReorg {
            depth: 3,
            block: [block.clone(), block],
            receipt: Some([receipt.clone(), receipt]),
            orphan: exchange("eth_getBlockByHash", json!([hash, false])),
            stale: Duration::from_millis(999),
        }
    }

    fn longest_score() -> Score {
        Score {
            head: Some(9_999_999),
            calls: 9_999_999,
            hits: 9_999_999,
            saved: -9_999_999,
            hit_time: Some(Duration::from_micros(999)),
            miss_time: Some(Duration::from_millis(999)),
        }
    }

    #[test]
    fn no_line_has_more_than_100_columns() {
        let one = exchange("eth_getBlockByNumber", json!(["0x98967f", true]));
        let rpc = "255.255.255.255:65535".parse().unwrap();
        let mut lines = miss_and_hit(&one, &one);
        lines.extend(staged(&reorg()));
        lines.extend(try_it(rpc, 9_999_999));
        lines.push(announcement(&reorg()));
        for line in lines {
            assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        }
    }

    #[test]
    fn lines_show_the_received_values() {
        let mut reorg = reorg();
        reorg.block[1].result = json!({ "hash": "0x0123456789abcdef", "number": "0x10" });
        reorg.block[1].cache_status = "holdfast; hit; detail=block".to_owned();
        let told = staged(&reorg).join("\n");
        assert!(told.contains("after    hash 0x01234567…"), "{told}");
        assert!(told.contains("cache-status: holdfast; hit; detail=block\n"), "{told}");
        let announced = announcement(&reorg);
        assert_eq!(
            announced,
            "reorg of 3 blocks: block 9999999 was 0xabababab…, is 0x01234567… (old answer for 999 ms)"
        );
        // A missing block is shown as the `null` that the client received.
        reorg.block[1].result = Value::Null;
        assert!(announcement(&reorg).contains(", is null ("));
        reorg.orphan.result = Value::Null;
        assert!(!staged(&reorg).join("\n").contains("stays readable"));
    }

    #[test]
    fn score_is_one_line_with_its_parts_in_order_of_importance() {
        let small = Score { head: Some(43), calls: 472, hits: 335, saved: 310, ..longest_score() };
        assert_eq!(
            score(&small),
            "block 43 · 472 calls · 335 hits (70 %) · 310 upstream calls saved · hits 999 µs, misses 999 ms"
        );
        assert_eq!(score(&Score::default()), "0 calls · 0 hits (0 %) · 0 upstream calls saved");
        let negative = Score { calls: 1, saved: -3, ..Score::default() };
        assert_eq!(score(&negative), "1 calls · 0 hits (0 %) · -3 upstream calls saved");
    }
}
