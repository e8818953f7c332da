//! A bad day of an operator, and the log that it leaves: the provider limits the rate, the subscription breaks, the
//! disk fills, Redis restarts, the node reorganizes, and a certificate is renewed.

use std::{cell::Cell, fs, path::Path};

use holdfast::devchain::Fault;
use rustix::process::Signal;
use serde_json::json;

use crate::support::{
    authority::Authority,
    client, eventually,
    method::{BLOCK_BY_NUMBER, RECEIPTS},
    mounted::Mounted,
    process::{self, Process},
    program::file,
    redis::redis,
    tiers::{directory, number},
    upstream,
};

/// The name of the endpoint, as in the log.
const PROVIDER: &str = "endpoint=provider";

/// A log line: its level, and its text without the time.
#[derive(Debug)]
struct Line {
    level: String,
    text: String,
}

/// Returns the lines of the log.
fn lines(log: &str) -> Vec<Line> {
    let line = |line: &str| {
        let (_time, rest) = line.split_once(' ').unwrap();
        let (level, text) = rest.trim_start().split_once(' ').unwrap();
        Line { level: level.to_owned(), text: text.trim_start().to_owned() }
    };
    log.lines().map(line).collect()
}

/// Asserts that docs/operating.md has an entry for this message: in a table, or among the lines of the start.
fn is_in_the_runbook(line: &Line) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operating.md");
    let page = fs::read_to_string(path).unwrap();
    let begins = |entry: &str| line.text.starts_with(entry.trim_end_matches('…'));
    let entries = page.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0));
    let start = page.lines().filter_map(|line| Some(line.strip_prefix("INFO ")?.split_once('=')?.0));
    assert!(entries.chain(start).any(begins), "not in the runbook: {}", line.text);
}

/// Waits for the end of an outage, and asserts that the line has a length.
async fn ends(process: &Process, begin: &str, end: &str) {
    process.line(begin).await;
    let line = process.line(end).await;
    let seconds = line.split_whitespace().find_map(|word| word.strip_prefix("outage_seconds="));
    assert!(seconds.unwrap().parse::<f64>().unwrap() > 0.0, "{line}");
}

#[tokio::test]
async fn bad_day_leaves_a_log_that_the_runbook_explains() {
    let test = "bad_day_leaves_a_log_that_the_runbook_explains";
    let Some(mounted) = Mounted::new(test, directory()) else { return };
    let Some(redis) = redis(test) else { return };
    let mut redis = redis.run().await;
    let node = upstream::devchain().blocks(900, 6).run().await;
    let authority = Authority::new();
    let pair = authority.pair();
    let config = format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nchain = {{ follow = 'blocks' }}\n\
         tls = {{ cert = '{}', key = '{}' }}\n\
         cache = {{ disk = {{ path = '{}' }}, redis = {{ url = '{}' }} }}\n\
         [[upstream.endpoints]]\nname = 'provider'\nurl = '{}'\nws = '{}'\n",
        pair.cert.display(),
        pair.key.display(),
        mounted.folder().display(),
        redis.url(),
        node.url(),
        node.ws_url(),
    );
    let mut process = process::serve_file(&file("holdfast.toml", &config)).run().await;
    let client = client::https(process.address(), &authority);
    process.line("upstream identified").await;
    let start = lines(&process.said());
    let begins = ["holdfast ", "status page is up url=", "cache is ready memory=", "upstream identified "];
    assert_eq!(start.len(), begins.len(), "{start:?}");
    for begin in begins {
        assert!(start.iter().any(|line| line.level == "INFO" && line.text.starts_with(begin)), "{start:?}");
    }

    // The provider limits the rate.
    node.fail(Fault::RateLimited { retry_after: None }).always();
    eventually("the limit", async || {
        client.call("eth_gasPrice", json!([])).await;
        process.said().contains("upstream limits the rate of our calls")
    })
    .await;
    node.clear_faults();
    eventually("an answer", async || client.ask("eth_gasPrice", json!([])).await.is_ok()).await;
    ends(&process, "too many requests", "upstream answers again").await;

    // The subscription breaks.
    let refused = Fault::Error { code: -32000, message: "too many subscriptions".to_owned() };
    node.fail(refused).on("eth_subscribe").times(2);
    node.cut_sockets();
    process.line("newHeads subscription unavailable").await;
    eventually("the subscription", async || {
        node.mine(1);
        process.said().contains("newHeads subscription restored")
    })
    .await;
    ends(&process, "newHeads subscription unavailable", "newHeads subscription restored").await;

    // The disk fills, and then has room again.
    let next = Cell::new(1);
    let read = async || {
        let at = number(next.replace(next.get() + 1));
        client.ask(BLOCK_BY_NUMBER, json!([at, true])).await.unwrap();
        client.ask(RECEIPTS, json!([at])).await.unwrap();
    };
    eventually("the disk is full", async || {
        read().await;
        process.said().contains("tier=disk")
    })
    .await;
    let full = process.line("tier=disk").await;
    assert!(full.contains("operation=write error=\"") && full.contains("No space left on device"), "{full}");
    mounted.remount("size=64m").await;
    eventually("the disk is written", async || {
        read().await;
        process.said().contains("cache tier works again tier=disk operation=write")
    })
    .await;
    ends(&process, "No space left on device", "cache tier works again tier=disk").await;

    // Redis restarts.
    redis.kill();
    eventually("the loss of redis", async || {
        read().await;
        process.said().contains("redis unreachable")
    })
    .await;
    redis.start().await;
    ends(&process, "redis unreachable", "redis reconnected").await;

    // The node reorganizes.
    let head = node.reorg(2, 3);
    process.line("chain reorganized").await;
    let block = client.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await.unwrap();
    assert!(block.contains(&format!("{:#x}", head.hash)), "{block}");

    // A certificate is renewed, at first with a fault.
    let certificate = fs::read(&pair.cert).unwrap();
    fs::write(&pair.cert, "nothing of the kind").unwrap();
    process.signal(Signal::HUP);
    process.line("configuration reload refused").await;
    fs::write(&pair.cert, certificate).unwrap();
    authority.renew(&pair);
    process.signal(Signal::HUP);
    process.line("new_certificate=true").await;
    assert!(client.ask("eth_gasPrice", json!([])).await.is_ok());

    process.signal(Signal::TERM);
    assert_eq!(process.exit_code().await, Some(0));
    let log = process.said();
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("bad-day.log"), &log).unwrap();
    let lines = lines(&log);
    lines.iter().for_each(is_in_the_runbook);
    for line in lines
        .iter()
        .filter(|line| line.text.contains("upstream limits") || line.text.contains("upstream answers"))
    {
        assert!(line.text.contains(PROVIDER), "{line:?}");
    }
}
