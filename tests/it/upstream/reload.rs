//! SIGHUP and endpoints: unchanged endpoints keep their state, others change, and clients do not notice.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use holdfast::{devchain::Fault, http::KeyHash};
use serde_json::{Value, json};

use crate::support::{
    authority::{Authority, Pair},
    client::Raw,
    eventually,
    method::BALANCE,
    nodes::somebody,
    process::{self, reload, reread},
    program::file,
    upstream,
};

const KEYS: [&str; 2] = ["hf_ONE", "hf_TWO"];

fn node() -> upstream::Builder {
    upstream::devchain().config(|config| config.chain_id = 5).blocks(5, 2)
}

#[tokio::test]
async fn endpoint_with_unchanged_secrets_survives_a_reload() {
    let node = node().run().await;
    let (url, token) = (file("url", &format!("{}/KEY\n", node.url())), file("token", "TOKEN"));
    let toml = |more: &str| {
        format!(
            "{more}\n[[upstream.endpoints]]\nurl = {{ file = '{}' }}\nheaders = {{ x-token = {{ file = '{}' }} }}\n",
            url.display(),
            token.display()
        )
    };
    let path = file("holdfast.toml", &toml(""));
    let process = process::serve_file(&path).run().await;
    let client = process.client();
    let filter = client.ask("eth_newBlockFilter", json!([])).await.unwrap();
    let asked = node.count("eth_chainId");
    node.fail(Fault::RateLimited { retry_after: Some(30) }).on(BALANCE).once();
    assert_eq!(client.call(BALANCE, somebody()).await.status, 429);
    reread(&process).await;
    reload(&process, &path, &toml("[upstream]\ntimeout = '3s'")).await;
    let status = client.get(&format!("{}/status", process.admin_url())).await.json();
    assert_eq!(status["endpoints"][0]["state"], "rate_limited", "{status}");
    assert_eq!(node.count("eth_chainId"), asked, "it is identified already");
    // With another token the program identifies the node again, and shows neither token.
    fs::write(&token, "OTHER-TOKEN").unwrap();
    reread(&process).await;
    eventually("it is identified again", async || node.count("eth_chainId") > asked).await;
    assert!(client.ask(BALANCE, somebody()).await.is_ok());
    // The filters are the node's own and still exist.
    assert!(client.ask("eth_getFilterChanges", json!([filter.trim_matches('"')])).await.is_ok());
    let metrics = client.get(&format!("{}/metrics", process.admin_url())).await;
    for shown in [process.said(), metrics.text().to_owned(), status.to_string()] {
        assert!(!shown.contains("KEY") && !shown.contains("TOKEN"), "{shown}");
    }
    let counted = metrics.text().lines().filter_map(|line| line.split_once("endpoint=\"")?.1.split_once('"'));
    let counted: BTreeSet<_> = counted.map(|(endpoint, _)| endpoint).collect();
    assert_eq!(counted.len(), 1, "{counted:?}");
}

#[tokio::test]
async fn newheads_subscription_follows_the_configuration() {
    let (first, second) = (node().run().await, node().run().await);
    let toml = |ws: Option<&upstream::Node>| {
        let ws = ws.map_or_else(String::new, |node| format!("ws = '{}'\n", node.ws_url()));
        let chain = "[chain]\nfollow = 'heads'\n[log]\nlevel = 'info,holdfast::proxy=debug'\n";
        format!("{chain}[[upstream.endpoints]]\nurl = '{}'\n{ws}", first.url())
    };
    let path = file("holdfast.toml", &toml(Some(&first)));
    let process = process::serve_file(&path).run().await;
    let told = async |times: usize| {
        eventually("a subscription", async || {
            process.said().matches("newHeads subscription established").count() >= times
        })
        .await;
    };
    let heads = || first.calls().iter().filter(|call| call.params.contains("latest")).count();
    told(1).await;
    for (ws, times) in [(Some(&second), 2), (None, 2), (Some(&first), 3)] {
        let said = reload(&process, &path, &toml(ws)).await;
        assert!(said.contains("upstream.endpoints"), "{said}");
        told(times).await;
        let Some(ws) = ws else { continue };
        // The refresh that follows a subscription is over when the head is known.
        eventually("the head", async || heads() > 0).await;
        let before = heads();
        ws.mine(1);
        eventually("the proxy fetches the new head", async || heads() > before).await;
    }
    // Reading the same file again does not close the subscription.
    reread(&process).await;
    assert_eq!(process.said().matches("newHeads subscription established").count(), 3);
}

/// Returns a configuration with these endpoints in this order, and both keys.
fn toml(nodes: &[&upstream::Node], pair: &Pair, keys: [&str; 2]) -> String {
    let mut toml = format!("[tls]\ncert = '{}'\nkey = '{}'\n", pair.cert.display(), pair.key.display());
    for (priority, node) in nodes.iter().enumerate() {
        toml += &format!("[[upstream.endpoints]]\nurl = '{}'\npriority = {priority}\n", node.url());
    }
    for key in keys {
        let sha256 = json!(KeyHash::of(key.as_bytes()));
        toml +=
            &format!("[[http.keys]]\nname = '{}'\nsha256 = {sha256}\n", key.to_lowercase().replace('_', "-"));
    }
    toml
}

fn post(key: &str, method: &str, params: &Value) -> String {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let length = body.len();
    format!(
        "POST / HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_notice_no_reload_of_nodes_keys_or_certificate() {
    let (first, second) = (node().run().await, node().run().await);
    let (authority, path) = (Arc::new(Authority::new()), file("holdfast.toml", ""));
    let pair = authority.pair();
    fs::write(&path, toml(&[&first], &pair, KEYS)).unwrap();
    let process = process::serve_file(&path).run().await;
    let kept = json!([format!("{:#x}", first.hash_at(3).unwrap()), true]);
    let mut client = authority.connect(process.address(), &[]).await.unwrap();
    client.write(post(KEYS[0], "eth_getBlockByHash", &kept)).await;
    let before = client.response().await;
    assert!(before.header("cache-status").unwrap().contains("stored"), "{before:?}");
    let fetched = || first.count("eth_getBlockByHash") + second.count("eth_getBlockByHash");
    assert_eq!(fetched(), 1);

    let (done, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..6)
        .map(|number| {
            let (address, authority) = (process.address(), authority.clone());
            let (done, asked, kept, body) = (done.clone(), asked.clone(), kept.clone(), before.body.clone());
            tokio::spawn(async move {
                let mut client: Raw<_> = authority.connect(address, &[]).await.unwrap();
                while !done.load(Relaxed) {
                    let calls = [
                        (BALANCE, somebody()),
                        ("eth_blockNumber", json!([])),
                        ("eth_getBlockByHash", kept.clone()),
                    ];
                    for (method, params) in calls {
                        client.write(post(KEYS[number % 2], method, &params)).await;
                        let answer = client.response().await;
                        assert!(answer.outcome().is_ok(), "{method}: {answer:?}");
                        assert!(params != kept || answer.body == body, "{answer:?}");
                        asked.fetch_add(1, Relaxed);
                    }
                }
            })
        })
        .collect();
    let orders: [&[&upstream::Node]; 4] = [&[&first, &second], &[&second], &[&second, &first], &[&first]];
    for round in 0..24 {
        authority.renew(&pair);
        let keys = if round % 2 == 0 { [KEYS[1], KEYS[0]] } else { KEYS };
        let said = reload(&process, &path, &toml(orders[round % orders.len()], &pair, keys)).await;
        assert!(said.contains("new_certificate=true") && said.contains("upstream.endpoints"), "{said}");
        let before = asked.load(Relaxed);
        eventually("calls go on", async || asked.load(Relaxed) > before + 20).await;
    }
    done.store(true, Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(fetched(), 1, "cached blocks stay cached");
    assert!(first.count(BALANCE) > 0 && second.count(BALANCE) > 0);
    assert_eq!(process.metric("holdfast_connections_accepted_total").await, 7);
    assert_eq!(process.metric(r#"holdfast_config_reloads_total{outcome="applied"}"#).await, 24);
    // The metrics no longer name the removed endpoint.
    eventually("the second to be forgotten", async || {
        let metrics = process.client().get(&format!("{}/metrics", process.admin_url())).await;
        !metrics.text().contains(&format!("{:?}", second.url()))
            && metrics.text().contains(&format!("{:?}", first.url()))
    })
    .await;
    tokio::time::timeout(Duration::from_secs(20), shows_the_newest(&process, &authority, &pair))
        .await
        .unwrap();
}

async fn shows_the_newest(process: &process::Process, authority: &Authority, pair: &Pair) {
    let shown = authority.connect(process.address(), &[]).await.unwrap().certificate();
    assert_eq!(shown, pair.certificate());
}
