//! Warming: an operator loads blocks before clients ask for them.

use std::time::Duration;

use futures_util::future::join_all;
use holdfast::devchain::{Fault, Lie};
use serde_json::{Value, json};

use crate::support::{
    client::{self, Response},
    eventually,
    program::{Program, holdfast, output, text},
    proxy::{self, Proxy},
    upstream::{self, Node},
};

async fn warm(proxy: &Proxy, query: &str) -> Response {
    Response::of(client::at(&proxy.admin_url(&format!("/warm?{query}"))).post()).await
}

async fn outcomes(proxy: &Proxy, query: &str) -> [Value; 2] {
    let warmed = warm(proxy, query).await;
    assert_eq!(warmed.status, 200, "{}", warmed.text());
    ["block", "receipts"].map(|piece| warmed.json()[piece]["outcome"].clone())
}

/// Returns the number of calls for whole blocks and for receipts of blocks.
fn fetches(node: &Node) -> usize {
    let calls = node.calls();
    let is_fetch = |method: &str, params: &str| method == "eth_getBlockReceipts" || params.contains("true");
    calls.iter().filter(|call| is_fetch(&call.method, &call.params)).count()
}

async fn run(proxy: &Proxy, arguments: &[&str]) -> (Option<i32>, String, String) {
    let admin = proxy.app.admin_address().to_string();
    let ran = output(holdfast(&[&["warm", "--admin", &admin], arguments].concat())).await;
    (ran.status.code(), text(&ran.stdout), text(&ran.stderr))
}

#[tokio::test]
async fn each_block_is_warmed_with_one_fetch() {
    let node = upstream::devchain().blocks(30, 2).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    for block in 1..=5 {
        let warmed = warm(&proxy, &format!("block={block}&receipts=true")).await.json();
        assert_eq!(warmed["hash"], json!(node.hash_at(block).unwrap()));
        for piece in ["block", "receipts"] {
            assert_eq!(warmed[piece]["outcome"], "fetched", "{warmed}");
            assert!(warmed[piece]["bytes"].as_u64().unwrap() > 500, "{warmed}");
        }
    }
    assert_eq!(fetches(&node), 10);
    let asked = node.calls_total();
    for block in 1..=5 {
        assert_eq!(outcomes(&proxy, &format!("block={block}&receipts=true")).await, ["present", "present"]);
        assert_eq!(outcomes(&proxy, &format!("block={block:#x}")).await, [json!("present"), Value::Null]);
    }
    assert_eq!(node.calls_total(), asked, "the second time costs nothing");
    let hit = client::http(&proxy).call("eth_getBlockByNumber", json!(["0x5", true])).await;
    assert_eq!(hit.header("cache-status"), Some("holdfast; hit; detail=block"));
    let status = client::http(&proxy).get(&proxy.admin_url("/status")).await.json();
    assert_eq!(
        (&status["calls"], &status["saved"]["follow_calls"]),
        (&json!(1), &json!(10)),
        "warming does not count as calls of clients"
    );
}

#[tokio::test]
async fn equal_warm_requests_share_a_fetch_up_to_a_limit() {
    let node = upstream::devchain().blocks(30, 2).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    warm(&proxy, "block=latest").await;
    let before = fetches(&node);
    node.fail(Fault::Delay(Duration::from_secs(3))).on("eth_getBlockByNumber").always();
    let warmed = join_all((0..20).map(|_| warm(&proxy, "block=3"))).await;
    let (done, turned_away): (Vec<_>, Vec<_>) = warmed.iter().partition(|warmed| warmed.status == 200);
    assert_eq!((done.len(), turned_away.len(), fetches(&node) - before), (16, 4, 1));
    for warmed in turned_away {
        assert_eq!((warmed.status.as_u16(), warmed.header("retry-after")), (503, Some("1")));
    }
}

#[tokio::test]
async fn unwarmed_blocks_are_reported_with_a_reason() {
    let node = upstream::devchain().blocks(30, 2).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let newest = warm(&proxy, "block=latest").await.json();
    assert_eq!((&newest["number"], &newest["block"]["outcome"]), (&json!(30), &json!("fetched")));
    let above = warm(&proxy, "block=31").await.json();
    assert_eq!((&above["block"]["outcome"], &above["block"]["head"]), (&json!("above"), &json!(30)));

    node.fail(Fault::RateLimited { retry_after: Some(7) }).on("eth_getBlockByNumber").once();
    let limited = warm(&proxy, "block=2").await;
    assert_eq!(limited.status, 429, "{}", limited.text());
    assert!(limited.header("retry-after").unwrap().parse::<u64>().unwrap() > 3);

    for query in ["", "block=", "block=soon", "block=1&receipts=yes", "block=0x1234567890123456789"] {
        let refused = warm(&proxy, query).await;
        assert_eq!(refused.status, 400, "{query}");
        assert!(refused.text().contains("expected /warm?block=19000000"), "{}", refused.text());
    }
}

#[tokio::test]
async fn wrong_block_is_not_stored_or_refetched_at_once() {
    // A block with a false state root is wrong only on a listed Ethereum chain; elsewhere it is unprovable.
    for (chain_id, first) in [(7, "the block cannot be proved"), (1, "the answer failed verification")] {
        wrong_is_not_kept(chain_id, first).await;
    }
}

async fn wrong_is_not_kept(chain_id: u64, first: &str) {
    let node = upstream::devchain().config(|config| config.chain_id = chain_id).blocks(30, 2).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    warm(&proxy, "block=latest").await;
    let lie = Lie::Field("stateRoot".to_owned(), json!(format!("0x{}", "77".repeat(32))));
    node.fail(lie).on("eth_getBlockByNumber").always();
    let asked = fetches(&node);
    for why in [first, "less than a minute ago"] {
        let told = warm(&proxy, "block=2&receipts=true").await.json();
        assert_eq!(told["block"]["outcome"], "unkept", "{told}");
        assert!(told["block"]["reason"].as_str().unwrap().contains(why), "{told}");
        assert_eq!(told["receipts"]["reason"], "the block is not cached");
    }
    assert_eq!(fetches(&node), asked + 1);
    assert_eq!(client::http(&proxy).get(&proxy.admin_url("/lookup?q=2")).await.json()["blocks"], json!([]));
    let (code, said, _) = run(&proxy, &["--blocks", "2..2"]).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("not cached: 2 (fetched less than a minute ago"), "{said}");
}

#[tokio::test]
async fn command_warms_a_range_and_skips_present_blocks() {
    let node = upstream::devchain().blocks(40, 2).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let (code, said, error) = run(&proxy, &["--blocks", "1..10", "--receipts"]).await;
    assert_eq!(code, Some(0), "{said}{error}");
    assert!(said.starts_with("blocks: 10 fetched, 0 already cached, 0 failed\nreceipts: fetched for 10 blocks, already cached for 0\n"), "{said}");
    assert_eq!(fetches(&node), 20);

    let (code, said, error) =
        run(&proxy, &["--blocks", "6..latest", "--receipts", "--concurrency", "16"]).await;
    assert_eq!(code, Some(0), "{said}{error}");
    // The command has already made the instance fetch the newest block, to learn its number.
    assert!(said.starts_with("blocks: 29 fetched, 6 already cached, 0 failed\n"), "{said}");
    assert_eq!(fetches(&node), 80);
    let asked = fetches(&node);
    let (_, said, _) = run(&proxy, &["--blocks", "0x1..24"]).await;
    assert!(said.starts_with("blocks: 0 fetched, 24 already cached, 0 failed\n"), "{said}");
    assert_eq!(fetches(&node), asked);

    let (code, said, _) = run(&proxy, &["--blocks", "39..45"]).await;
    assert_eq!(code, Some(1));
    assert!(
        said.contains("stopped early: the chain ends at 40")
            && said.contains("warm --blocks 41..45 --admin "),
        "{said}"
    );
    for (blocks, why) in [("5", "expected A..B, both ends included"), ("5..3", "5 is after 3")] {
        let (code, _, error) = run(&proxy, &["--blocks", blocks]).await;
        assert_eq!(code, Some(64));
        assert!(error.contains(why), "{error}");
    }
}

#[tokio::test]
async fn command_waits_for_limits_and_retries_failures() {
    let node = upstream::devchain().blocks(40, 1).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    warm(&proxy, "block=latest").await;
    node.fail(Fault::RateLimited { retry_after: Some(3) }).on("eth_getBlockByNumber").once();
    let (code, said, error) = run(&proxy, &["--blocks", "1..3"]).await;
    assert_eq!(code, Some(0), "{said}{error}");
    assert!(error.contains("waiting "), "{error}");

    node.fail(Fault::Status(500)).on("eth_getBlockByNumber").times(2);
    let (code, said, error) = run(&proxy, &["--blocks", "4..6", "--concurrency", "1"]).await;
    assert_eq!(code, Some(0), "{said}{error}");
    assert!(said.starts_with("blocks: 3 fetched, 0 already cached, 0 failed\n"), "{said}");
}

#[tokio::test]
async fn interrupted_command_prints_how_to_continue() {
    let node = upstream::devchain().blocks(60, 1).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    warm(&proxy, "block=latest").await;
    node.fail(Fault::Delay(Duration::from_millis(100))).on("eth_getBlockByNumber").always();
    let admin = proxy.app.admin_address().to_string();
    let arguments = ["warm", "--blocks", "1..40", "--concurrency", "2", "--admin", &admin];
    let mut program = Program::start(holdfast(&arguments));
    eventually("some are there", async || fetches(&node) > 6).await;
    program.signal(rustix::process::Signal::INT);
    assert_eq!(program.exit_code().await, Some(130));
    let said = program.said();
    let command =
        said.lines().find(|line| line.starts_with("  holdfast warm ")).unwrap_or_else(|| panic!("{said}"));
    assert!(command.ends_with(&format!("..40 --concurrency 2 --admin {admin}")), "{command}");

    node.clear_faults();
    let before = fetches(&node);
    let ran = output(holdfast(&command.split_whitespace().skip(1).collect::<Vec<_>>())).await;
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    let (_, said, _) = run(&proxy, &["--blocks", "1..40"]).await;
    assert!(said.starts_with("blocks: 0 fetched, 40 already cached, 0 failed\n"), "{said}");
    // The node was asked once for each block, and once for the newest block, which shows where the chain ends.
    assert_eq!(fetches(&node), 41, "{before} before it went on");
}
