//! Lookups and purges by operators.

use std::time::Duration;

use holdfast::http::KeyHash;
use serde_json::{Value, json};

use crate::support::{
    client::{self, Response},
    eventually,
    program::{holdfast, output, text},
    proxy::{self, Proxy},
    upstream,
};

async fn look_up(proxy: &Proxy, query: impl std::fmt::Display) -> Value {
    let found = client::http(proxy).get(&proxy.admin_url(&format!("/lookup?q={query}"))).await;
    assert_eq!((found.status.as_u16(), found.header("content-type")), (200, Some("application/json")));
    found.json()
}

async fn post(proxy: &Proxy, path: &str, headers: &[(&str, &str)]) -> Response {
    let request = client::at(&proxy.admin_url(path)).post();
    Response::of(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await
}

/// Returns the kinds of the cached entries and their verification levels.
fn held(found: &Value) -> Vec<(String, Value)> {
    let held = found["entries"].as_array().unwrap().iter();
    held.map(|held| (held["kind"].as_str().unwrap().to_owned(), held["verified"].clone())).collect()
}

fn kinds(expected: &[(&str, &str)]) -> Vec<(String, Value)> {
    expected.iter().map(|(kind, verified)| ((*kind).to_owned(), json!(verified))).collect()
}

#[tokio::test]
async fn lookup_finds_each_kind_of_entry() {
    let node = upstream::devchain().config(|config| config.slot_seconds = 3600).blocks(20, 3).run().await;
    let hour = Duration::from_secs(3600);
    let proxy = proxy::new().upstream(&node).config(|config| config.chain.max_staleness = hour).run().await;
    let client = client::http(&proxy);
    let hash = |number| node.hash_at(number).unwrap();
    let transaction = |number, at: usize| node.transactions_of(hash(number))[at];
    client.call("eth_getBlockByNumber", json!(["0x3", true])).await;
    client.call("eth_getTransactionByHash", json!([transaction(5, 1)])).await;
    client.call("eth_getTransactionReceipt", json!([transaction(6, 2)])).await;
    client.call("eth_getBlockReceipts", json!([hash(7)])).await;
    client.call("eth_getBlockByNumber", json!(["latest", false])).await;
    let asked = node.calls_total();

    // Looks up a whole block by its number, by its hash, and by one of its transactions.
    let by_number = look_up(&proxy, 3).await;
    let block = &by_number["blocks"][0];
    assert_eq!(
        (&block["hash"], &block["number"], &block["canonicity"]),
        (&json!(hash(3)), &json!(3), &json!("final"))
    );
    assert_eq!(held(block), kinds(&[("block", "proved")]));
    assert_eq!(block["entries"][0]["endpoint"], node.url());
    assert!(block["entries"][0]["age_seconds"].as_u64().unwrap() < 60, "{block}");
    assert!(block["bytes"].as_u64().unwrap() > 1000, "{block}");
    assert_eq!(
        (&block["transactions"], &block["timestamp"]),
        (&json!(3), &json!(node.config().genesis_time + 3 * 3600))
    );
    assert_eq!(by_number["head"], 20);
    assert_eq!(look_up(&proxy, "0x3").await["blocks"], by_number["blocks"]);
    assert_eq!(look_up(&proxy, hash(3)).await["blocks"], by_number["blocks"]);
    let found = look_up(&proxy, transaction(3, 2)).await;
    assert_eq!(found["blocks"], json!([]));
    let place = &found["transactions"][0];
    assert_eq!((&place["block"], &place["number"], &place["index"]), (&json!(hash(3)), &json!(3), &json!(2)));
    assert_eq!((&place["canonicity"], held(place)), (&json!("final"), kinds(&[("block", "proved")])));

    // Looks up single entries, and receipts without the block that proves them.
    for (number, index, expected, standing) in [
        (5, Some(1), ("transaction", "partial"), "asked"),
        (6, Some(2), ("receipt", "structural"), "asked"),
        // Receipts do not show which block is canonical at their number.
        (7, None, ("receipts", "structural"), "unknown"),
    ] {
        let of = look_up(&proxy, number).await;
        assert_eq!(held(&of["blocks"][0]), kinds(&[expected]), "{of}");
        assert_eq!(of["blocks"][0]["entries"][0]["index"], json!(index), "{of}");
        let found = look_up(&proxy, transaction(number, index.unwrap_or(0))).await;
        let place = &found["transactions"][0];
        assert_eq!((&place["canonicity"], held(place)), (&json!(standing), kinds(&[expected])), "{found}");
    }

    // The head came with a refresh of the canonical view.
    let head = look_up(&proxy, 20).await["blocks"][0].clone();
    assert_eq!(
        (&head["canonicity"], held(&head)),
        (&json!("tracked"), kinds(&[("block_hashes", "partial")]))
    );
    assert_eq!(head["transactions"], 3);
    assert_eq!(
        look_up(&proxy, 7).await["blocks"][0]["timestamp"],
        Value::Null,
        "only its receipts are cached"
    );
    let nothing = look_up(&proxy, 21).await;
    assert_eq!((&nothing["blocks"], &nothing["head"]), (&json!([]), &json!(20)));
    assert_eq!(look_up(&proxy, format!("0x{}", "77".repeat(32))).await["transactions"], json!([]));
    assert_eq!(node.calls_total(), asked, "a lookup makes no upstream call");
}

#[tokio::test]
async fn lookup_distinguishes_orphans_from_canonical_blocks() {
    let node = upstream::devchain().blocks(20, 2).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    let old = node.head().hash;
    let transaction = node.transactions_of(old)[0];
    client.call("eth_getBlockByNumber", json!(["0x14", true])).await;
    assert_eq!(look_up(&proxy, old).await["blocks"][0]["canonicity"], "tracked");
    assert_eq!(look_up(&proxy, transaction).await["transactions"][0]["canonicity"], "tracked");

    node.reorg(1, 2);
    eventually("the other branch is seen", async || {
        client.call("eth_getBlockByNumber", json!(["latest", false])).await;
        look_up(&proxy, old).await["blocks"][0]["canonicity"] == "orphaned"
    })
    .await;
    client.call("eth_getBlockByNumber", json!(["0x14", true])).await;
    let at = look_up(&proxy, 20).await["blocks"].clone();
    let found: Vec<_> =
        at.as_array().unwrap().iter().map(|block| (&block["hash"], &block["canonicity"])).collect();
    let new = json!(node.hash_at(20).unwrap());
    assert_eq!(found.len(), 2, "{at}");
    assert_eq!((found[0].0, found[1]), (&new, (&json!(old), &json!("orphaned"))));
    assert!(found[0].1 == "tracked" || found[0].1 == "asked", "{at}");
    let places = look_up(&proxy, transaction).await["transactions"].clone();
    let orphaned = places.as_array().unwrap().iter().find(|place| place["block"] == json!(old)).unwrap();
    assert_eq!((&orphaned["canonicity"], &orphaned["index"]), (&json!("orphaned"), &json!(0)));
}

#[tokio::test]
async fn purged_entries_are_fetched_again() {
    let node = upstream::devchain().blocks(30, 3).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    let hash = node.hash_at(3).unwrap();
    let transaction = node.transactions_of(hash)[1];
    let status =
        async |method, params| client.call(method, params).await.header("cache-status").unwrap().to_owned();
    let block = async || status("eth_getBlockByNumber", json!(["0x3", true])).await;
    let receipt = async || status("eth_getTransactionReceipt", json!([transaction])).await;

    block().await;
    client.call("eth_getBlockReceipts", json!(["0x3"])).await;
    assert!(block().await.contains("hit") && receipt().await.contains("hit"));
    let purged = post(&proxy, &format!("/purge?q={hash}"), &[]).await.json();
    let kinds: Vec<_> = purged["purged"].as_array().unwrap().iter().map(|held| &held["kind"]).collect();
    assert!(kinds.contains(&&json!("block")) && kinds.contains(&&json!("receipts")), "{purged}");
    assert!(purged["bytes"].as_u64().unwrap() > 1000, "{purged}");
    let found = look_up(&proxy, 3).await["blocks"][0].clone();
    assert_eq!((&found["canonicity"], &found["entries"]), (&json!("final"), &json!([])), "canonicity stays");
    assert!(block().await.contains("fwd=miss"));
    assert!(receipt().await.contains("fwd=miss"));
    assert!(block().await.contains("hit") && receipt().await.contains("hit"));

    // A purge by transaction removes every entry that contains it.
    let purged = post(&proxy, &format!("/purge?q={transaction}"), &[]).await.json();
    assert_ne!(purged["purged"], json!([]));
    assert!(receipt().await.contains("fwd=miss"));
    assert!(block().await.contains("fwd=miss"));

    let nothing = post(&proxy, &format!("/purge?q=0x{}", "77".repeat(32)), &[]).await.json();
    assert_eq!((&nothing["purged"], &nothing["bytes"]), (&json!([]), &json!(0)));
}

#[tokio::test]
async fn invalid_lookup_is_refused_with_a_hint() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    for (query, said) in [
        ("", "name a block or a transaction by its hash"),
        ("?q=", "name a block or a transaction by its hash"),
        ("?q=latest", "expected the hash of a block or a transaction (0x and 64 hex digits)"),
        ("?q=0x1234567890123456789", "a hash has 64 hex digits after 0x"),
        ("?q=99999999999999999999", "the block number does not fit into 64 bits"),
        (&format!("?q={}", "9".repeat(1000)), "longer than any hash or number"),
    ] {
        let refused = client.get(&proxy.admin_url(&format!("/lookup{query}"))).await;
        assert_eq!(refused.status, 400, "{query}");
        let error = refused.json()["error"].as_str().unwrap().to_owned();
        assert!(error.contains(said), "{query}: {error}");
    }
    let refused = post(&proxy, "/purge?q=3", &[]).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("/lookup?q=3 lists"), "{}", refused.text());
}

#[tokio::test]
async fn only_the_same_origin_may_change_state() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let own = proxy.admin_url("");
    let path = format!("/purge?q=0x{}", "77".repeat(32));
    for (headers, status) in [
        (vec![("origin", own.as_str()), ("sec-fetch-site", "same-origin")], 200),
        (vec![("origin", "http://evil.example.org")], 403),
        (vec![("origin", "null")], 403),
        (vec![("sec-fetch-site", "cross-site")], 403),
        // The request comes from a page on another port of this machine.
        (vec![("origin", "http://127.0.0.1:1"), ("sec-fetch-site", "same-site")], 403),
        (vec![("host", "evil.example.org")], 403),
    ] {
        assert_eq!(post(&proxy, &path, &headers).await.status, status, "{path} {headers:?}");
    }
    let got = client::http(&proxy).get(&proxy.admin_url(&path)).await;
    assert_eq!((got.status.as_u16(), got.header("allow")), (405, Some("POST")));
}

#[tokio::test]
async fn public_admin_listener_requires_a_token() {
    let node = upstream::devchain().blocks(3, 1).run().await;
    let everywhere = "0.0.0.0:0".parse().unwrap();
    let open = proxy::new().upstream(&node).config(|config| config.admin = everywhere).run().await;
    let at =
        |proxy: &Proxy, path: &str| format!("http://127.0.0.1:{}{path}", proxy.app.admin_address().port());
    let none = format!("/purge?q=0x{}", "77".repeat(32));
    let ask = async |proxy: &Proxy, token: Option<&str>| {
        let request = client::at(&at(proxy, &none)).post();
        let request = token.into_iter().fold(request, |request, token| request.bearer_auth(token));
        Response::of(request).await
    };
    let refused = ask(&open, Some("hf_token")).await;
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("admin_token is not set"), "{}", refused.text());
    // A lookup needs no token.
    assert_eq!(client::http(&open).get(&at(&open, "/lookup?q=1")).await.status, 200);

    let token = Some(KeyHash::of(b"hf_token"));
    let closed = proxy::new().upstream(&node).config(|config| {
        config.admin = everywhere;
        config.admin_token = token;
    });
    let closed = closed.run().await;
    for (token, status) in [(None, 401), (Some("hf_other"), 401), (Some("hf_token"), 200)] {
        let answered = ask(&closed, token).await;
        assert_eq!(answered.status, status, "{token:?}: {}", answered.text());
        assert_eq!(answered.header("www-authenticate").is_some(), status == 401);
    }

    let admin = format!("127.0.0.1:{}", closed.app.admin_address().port());
    let rpc = client::http(&closed);
    rpc.ask("eth_getBlockByNumber", json!(["0x1", true])).await.unwrap();
    let hash = format!("{:#x}", node.hash_at(1).unwrap());
    let purge = || holdfast(&["purge", &hash, "--admin", &admin]);
    let ran = output(purge()).await;
    assert_eq!(ran.status.code(), Some(1));
    assert!(text(&ran.stderr).contains("HOLDFAST_ADMIN_TOKEN"), "{}", text(&ran.stderr));
    let mut with_token = purge();
    with_token.env("HOLDFAST_ADMIN_TOKEN", "hf_token");
    let ran = output(with_token).await;
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    assert!(text(&ran.stdout).contains("removed: whole block"), "{}", text(&ran.stdout));
    // The variable is not a configuration key. The configuration has only the token's hash.
    let mut check = holdfast(&["check", "--upstream", &node.url()]);
    check.env("HOLDFAST_ADMIN_TOKEN", "hf_token");
    assert_eq!(output(check).await.status.code(), Some(0));
}

#[tokio::test]
async fn inspect_and_purge_print_short_reports() {
    let node = upstream::devchain().blocks(20, 3).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let admin = proxy.app.admin_address().to_string();
    client::http(&proxy).call("eth_getBlockByNumber", json!(["0x3", true])).await;
    let hash = node.hash_at(3).unwrap();
    let transaction = format!("{:#x}", node.transactions_of(hash)[2]);

    let run = async |arguments: &[&str]| {
        let ran = output(holdfast(&[arguments, &["--admin", &admin]].concat())).await;
        (ran.status.code(), text(&ran.stdout), text(&ran.stderr))
    };
    let (code, said, _) = run(&["inspect", "3"]).await;
    assert_eq!(code, Some(0));
    for part in
        [format!("block 3  {hash:#x}\n  final\n  whole block"), format!("proved      from {}", node.url())]
    {
        assert!(said.contains(&part), "{part} is not in\n{said}");
    }
    let (_, said, _) = run(&["inspect", &transaction]).await;
    assert!(said.contains(&format!("at index 2 of block 3  {hash:#x}\n  final\n")), "{said}");
    let (_, said, _) = run(&["inspect", "99"]).await;
    assert_eq!(said, "nothing is known about 99\n  the head is at 20, below this number\n");
    let (_, said, _) = run(&["inspect", "3", "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), look_up(&proxy, 3).await);

    let (code, said, _) = run(&["purge", &transaction]).await;
    assert_eq!(code, Some(0));
    assert!(said.starts_with("removed: whole block ") && said.contains("1 in all, "), "{said}");
    assert_eq!(run(&["purge", &transaction]).await.1, "nothing was cached in memory\n");

    for (arguments, said) in [
        (vec!["inspect", "latest"], "expected the hash of a block or a transaction"),
        (vec!["purge", "3"], "`holdfast inspect` shows the hash at a number"),
    ] {
        let (code, _, error) = run(&arguments).await;
        assert_eq!(code, Some(64), "{arguments:?}");
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
    let rpc = proxy.address().to_string();
    let ran = output(holdfast(&["inspect", "3", "--admin", &rpc])).await;
    assert_eq!(ran.status.code(), Some(1));
    assert!(text(&ran.stderr).contains("this is not the admin listener"), "{}", text(&ran.stderr));
}
