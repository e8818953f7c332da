//! Warming: an operator loads blocks before clients ask for them.

use std::time::Duration;

use holdfast::{
    devchain::{Fault, Lie},
    verify::OnMismatch,
};
use serde_json::json;

use crate::support::{
    client, eventually,
    method::BLOCK_BY_NUMBER,
    program::{Program, holdfast, output, text},
    proxy::{self, Proxy, key},
    upstream::{self, Node},
};

/// Returns the number of calls for whole blocks and for receipts of blocks.
fn fetches(node: &Node) -> usize {
    let calls = node.calls();
    let is_fetch = |method: &str, params: &str| method == "eth_getBlockReceipts" || params.contains("true");
    calls.iter().filter(|call| is_fetch(&call.method, &call.params)).count()
}

async fn run(proxy: &Proxy, arguments: &[&str]) -> (Option<i32>, String, String) {
    let (url, admin) = (proxy.url(), proxy.app.admin_address().to_string());
    let ran = output(holdfast(&[&["warm", "--url", &url, "--admin", &admin], arguments].concat())).await;
    (ran.status.code(), text(&ran.stdout), text(&ran.stderr))
}

/// Reads the head in full, so that faults of the node meet only the calls of the command.
async fn know_the_head(proxy: &Proxy) {
    client::http(proxy).ask(BLOCK_BY_NUMBER, json!(["latest", true])).await.unwrap();
    client::http(proxy).ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await.unwrap();
}

#[tokio::test]
async fn wrong_block_is_reported_with_a_reason() {
    // A block with a false state root is wrong on a listed Ethereum chain, and unprovable elsewhere.
    for (chain_id, rejects, why) in [
        (7, false, "the answer cannot be verified"),
        (1, false, "cannot be verified"),
        (1, true, "failed verification"),
    ] {
        let node = upstream::devchain().config(|config| config.chain_id = chain_id).blocks(30, 2).run().await;
        let proxy = proxy::new().upstream(&node).config(|config| {
            config.verify.on_mismatch = if rejects { OnMismatch::Reject } else { OnMismatch::Pass };
        });
        let proxy = proxy.run().await;
        know_the_head(&proxy).await;
        let lie = Lie::Field("stateRoot".to_owned(), json!(format!("0x{}", "77".repeat(32))));
        node.fail(lie).on(r#"eth_getBlockByNumber["0x2",true]"#).always();
        let (code, said, _) = run(&proxy, &["--blocks", "2..2", "--receipts"]).await;
        assert_eq!(code, Some(1));
        assert!(said.starts_with("blocks: 0 fetched, 0 already cached, 0 failed\n"), "{said}");
        assert!(said.contains("not cached: 2 (") && said.contains(why), "{said}");
        assert_eq!(
            client::http(&proxy).get(&proxy.admin_url("/lookup?q=2")).await.json()["blocks"],
            json!([])
        );
    }
}

#[tokio::test]
async fn command_sends_its_key_and_shows_no_secret() {
    let node = upstream::devchain().blocks(9, 1).run().await;
    let keyed = proxy::new()
        .upstream(&node)
        .config(|config| config.http.keys = vec![key("warm", "SECRETKEY")])
        .run()
        .await;
    let (url, admin) = (keyed.url(), keyed.app.admin_address().to_string());
    let secret = format!("{url}/k/SECRETKEY");
    for (url, key, is_allowed) in [
        (&url, None, false),
        (&url, Some("SECRETKEY"), true),
        (&url, Some("OTHER"), false),
        (&secret, None, true),
    ] {
        let mut command = holdfast(&["warm", "--blocks", "1..20", "--url", url, "--admin", &admin]);
        if let Some(key) = key {
            command.env("HOLDFAST_KEY", key);
        }
        let ran = output(command).await;
        let said = format!("{}{}", text(&ran.stdout), text(&ran.stderr));
        assert_eq!(said.contains("key"), !is_allowed, "{said}");
        assert_eq!(said.contains("the chain ends at 9"), is_allowed, "{said}");
        assert!(!said.contains("SECRET"), "{said}");
    }
    for (url, why) in [
        ("127.0.0.1:SECRET", "--url: "),
        ("ftp://127.0.0.1/SECRET", "the scheme must be http or https"),
        (&format!("http://{admin}/SECRET"), "answers with HTTP status 405"),
        (&format!("{}/", node.url()), "the answer has no cache-status"),
    ] {
        let ran = output(holdfast(&["warm", "--blocks", "1..2", "--url", url, "--admin", &admin])).await;
        let said = format!("{}{}", text(&ran.stdout), text(&ran.stderr));
        assert_eq!(ran.status.code(), Some(1), "{said}");
        assert!(said.contains(why) && !said.contains("SECRET"), "{said}");
    }
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
    assert!(said.starts_with("blocks: 30 fetched, 5 already cached, 0 failed\n"), "{said}");
    assert_eq!(fetches(&node), 80);
    let asked = fetches(&node);
    let (_, said, _) = run(&proxy, &["--blocks", "0x1..24"]).await;
    assert!(said.starts_with("blocks: 0 fetched, 24 already cached, 0 failed\n"), "{said}");
    assert_eq!(fetches(&node), asked);

    let (code, said, _) = run(&proxy, &["--blocks", "39..45"]).await;
    assert_eq!(code, Some(1));
    assert!(
        said.contains("stopped early: the chain ends at 40") && said.contains("warm --blocks 41..45 --url "),
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
    know_the_head(&proxy).await;
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
    know_the_head(&proxy).await;
    node.fail(Fault::Delay(Duration::from_millis(100))).on("eth_getBlockByNumber").always();
    let admin = proxy.app.admin_address().to_string();
    let url = proxy.url();
    let arguments = ["warm", "--blocks", "1..40", "--concurrency", "2", "--url", &url, "--admin", &admin];
    let mut program = Program::start(holdfast(&arguments));
    eventually("some are there", async || fetches(&node) > 6).await;
    program.signal(rustix::process::Signal::INT);
    assert_eq!(program.exit_code().await, Some(130));
    let said = program.said();
    let command =
        said.lines().find(|line| line.starts_with("  holdfast warm ")).unwrap_or_else(|| panic!("{said}"));
    assert!(command.ends_with(&format!("..40 --concurrency 2 --url {url} --admin {admin}")), "{command}");

    node.clear_faults();
    let before = fetches(&node);
    let ran = output(holdfast(&command.split_whitespace().skip(1).collect::<Vec<_>>())).await;
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    let (_, said, _) = run(&proxy, &["--blocks", "1..40"]).await;
    assert!(said.starts_with("blocks: 0 fetched, 40 already cached, 0 failed\n"), "{said}");
    // The node was asked once for each block, and once for the newest block, which shows where the chain ends.
    assert_eq!(fetches(&node), 41, "{before} before it went on");
}
