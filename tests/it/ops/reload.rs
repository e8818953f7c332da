//! SIGHUP: settings that change, settings that stay, and configurations that are refused.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use holdfast::devchain::Fault;
use rustix::process::Signal;
use serde_json::json;

use crate::support::{
    client::{self, Raw, post},
    eventually,
    process::{self, reload, reread},
    program::file,
    upstream,
};

#[tokio::test]
async fn reload_changes_policy_and_keeps_connections_and_cache() {
    let node = upstream::devchain().blocks(3, 2).run().await;
    let path = file("holdfast.toml", "[chain]\nmax_staleness = '1h'\n");
    let process = process::serve(&node).file(&path).run().await;
    let mut client = Raw::connect(process.address()).await;
    let block = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByHash","params":["{:#x}",true]}}"#,
        node.hash_at(2).unwrap()
    );
    client.write(post(&block)).await;
    let first = client.response().await;
    assert!(first.header("cache-status").unwrap().contains("stored"), "{first:?}");
    assert!(client.call("eth_gasPrice").await.outcome().is_ok());

    let said =
        reload(&process, &path, "[chain]\nmax_staleness = '1h'\n[methods]\ndeny = ['eth_gas*']\n").await;
    assert!(said.contains(r#"changed=methods.deny"#), "{said}");
    node.clear_calls();
    assert_eq!(client.call("eth_gasPrice").await.code(), Some(-32601));
    client.write(post(&block)).await;
    let again = client.response().await;
    assert!(again.header("cache-status").unwrap().contains("hit"), "{again:?}");
    assert_eq!(again.body, first.body);
    assert_eq!(node.calls_total(), 0);
    assert_eq!(process.metric("holdfast_connections_accepted_total").await, 1);

    let said = reload(&process, &path, "strict = true\n").await;
    assert!(said.contains(r#"changed="chain.max_staleness, methods.deny, strict""#), "{said}");
    assert_eq!(client.call("net_version").await.code(), Some(-32601));
    let said = reload(&process, &path, "").await;
    assert!(said.contains(r#"changed=strict"#), "{said}");
    assert!(client.call("eth_gasPrice").await.outcome().is_ok());
    assert_eq!(process.metric("holdfast_connections_accepted_total").await, 1);
    assert_eq!(process.metric(r#"holdfast_config_reloads_total{outcome="applied"}"#).await, 3);
}

#[tokio::test]
async fn reload_changes_limits() {
    let node = upstream::devchain().config(|config| config.chain_id = 5).run().await;
    let path = file("holdfast.toml", "");
    let process = process::serve(&node).file(&path).run().await;
    let client = process.client();
    let two = format!("[{},{}]", client::call("eth_chainId"), client::call("eth_chainId"));
    let staleness = async || {
        let status = client.get(&format!("{}/status", process.admin_url())).await.json();
        status["canonical_view"]["max_staleness_seconds"].as_f64().unwrap()
    };
    assert_eq!(client.send(two.clone()).await.json().as_array().unwrap().len(), 2);
    assert!(client.ask("eth_blockNumber", json!([])).await.is_ok());
    assert_eq!(staleness().await, 1.0);

    reload(
        &process,
        &path,
        "call_timeout = '500ms'\n[http]\nmax_batch = 1\nmax_body = '1 KiB'\n[chain]\nmax_staleness = '7s'\n",
    )
    .await;
    assert_eq!(client.send(two.clone()).await.code(), Some(-32600));
    assert_eq!(client.send("x".repeat(2000)).await.status, 413);
    assert_eq!(staleness().await, 7.0);
    node.fail(Fault::Delay(Duration::from_secs(5))).on("eth_gasPrice").times(1);
    assert_eq!(client.call("eth_gasPrice", json!([])).await.code(), Some(-32011));

    reload(&process, &path, "[http]\nmax_in_flight = 1\n").await;
    let asked = node.count("eth_gasPrice");
    node.fail(Fault::Delay(Duration::from_secs(4))).on("eth_gasPrice").always();
    let mut waiting = Raw::connect(process.address()).await;
    waiting.write(post(&client::call("eth_gasPrice"))).await;
    eventually("the call arrives", async || node.count("eth_gasPrice") > asked).await;
    assert_eq!(client.call("eth_chainId", json!([])).await.status, 503);
    reload(&process, &path, "").await;
    assert_eq!(client.send(two).await.json().as_array().unwrap().len(), 2);
    assert!(waiting.response().await.outcome().is_ok());
    assert_eq!(staleness().await, 1.0);
}

#[tokio::test]
async fn reload_changes_allowed_origins() {
    let node = upstream::devchain().run().await;
    let path = file("holdfast.toml", "");
    let process = process::serve(&node).file(&path).run().await;
    let page = "https://page.example.org";
    let mut connection = Raw::connect(process.address()).await;
    let mut allowed = async || {
        let body = client::call("eth_chainId");
        connection.write(post(&body).replacen("\r\n", &format!("\r\norigin: {page}\r\n"), 1)).await;
        let answer = connection.response().await;
        assert!(answer.outcome().is_ok());
        answer.header("access-control-allow-origin").map(str::to_owned)
    };
    assert_eq!(allowed().await.as_deref(), Some("*"));
    let said = reload(&process, &path, "[http]\nallowed_origins = []\n").await;
    assert!(said.contains(r#"changed=http.allowed_origins"#), "{said}");
    assert_eq!(allowed().await, None);
    reload(&process, &path, &format!("[http]\nallowed_origins = ['{page}']\n")).await;
    assert_eq!(allowed().await.as_deref(), Some(page));
    // Preflights follow the new list, too.
    let preflight =
        process.client().request(reqwest::Method::OPTIONS).header("origin", "https://other.example.org");
    let answer = client::Response::of(preflight.header("access-control-request-method", "POST")).await;
    assert_eq!(answer.header("access-control-allow-origin"), None);
    reload(&process, &path, "").await;
    assert_eq!(allowed().await.as_deref(), Some("*"));
}

#[tokio::test]
async fn reload_changes_the_log_level() {
    let told = "request answered";
    let node = upstream::devchain().run().await;
    let path = file("holdfast.toml", "");
    let process = process::serve(&node).file(&path).run().await;
    let client = process.client();
    assert!(client.ask("eth_chainId", json!([])).await.is_ok());
    assert!(!process.said().contains(told), "{}", process.said());

    reload(&process, &path, "log.level = 'debug'").await;
    assert!(client.ask("eth_chainId", json!([])).await.is_ok());
    process.says(told).await;

    reload(&process, &path, "log.level = 'info'").await;
    let before = process.said().matches(told).count();
    assert!(client.ask("eth_chainId", json!([])).await.is_ok());
    reread(&process).await;
    assert_eq!(process.said().matches(told).count(), before);
}

#[tokio::test]
async fn reload_switches_compression_off_and_on() {
    let node = upstream::devchain().run().await;
    let path = file("holdfast.toml", "");
    let process = process::serve(&node).file(&path).run().await;
    let client = process.client();
    for (toml, on) in [("", true), ("http.compress = false", false), ("http.compress = true", true)] {
        reload(&process, &path, toml).await;
        // This client accepts gzip. If the server may compress, `vary` says so.
        let response = client.call("eth_chainId", json!([])).await;
        let mut vary = response.headers.get_all("vary").iter();
        assert_eq!(vary.any(|vary| vary == "accept-encoding"), on, "{toml}");
    }
}

#[tokio::test]
async fn a_bad_configuration_is_refused_as_a_whole() {
    let node = upstream::devchain().run().await;
    let path = file("holdfast.toml", "");
    let mut process = process::serve(&node).file(&path).run().await;
    let client = process.client();
    for (toml, problem) in [
        ("strict = true\n[http]\nmax_bodi = 1", "http.max_bodi: unknown key"),
        ("strict = true\n[http]\nmax_batch = 0", "http.max_batch: must be at least 1"),
        ("strict = true\n[methods]\nallow = ['eth_[']", "methods.allow: "),
        ("strict = true\n[log]\nlevel = 'chatty'", "log.level: "),
        ("strict = true\n[tls]\ncert = 'cert.pem'", "tls.cert: the certificate has no key"),
        (
            "strict = true\n[tls]\ncert = 'no/such.pem'\nkey = 'no/such.pem'",
            "tls.cert: cannot read no/such.pem",
        ),
        ("strict = true\n[[upstream.endpoints]]\nurl = 'http://user:SECRET@127.0.0.1\n", "holdfast.toml: "),
    ] {
        let said = reload(&process, &path, toml).await;
        assert!(
            said.contains("refused") && said.contains(problem),
            "for {toml:?}\nexpected {problem}\n{said}"
        );
        assert!(!said.contains("SECRET") && !said.contains("configuration reloaded"), "{said}");
        assert!(client.ask("eth_gasPrice", json!([])).await.is_ok());
    }
    fs::remove_file(&path).unwrap();
    let said = reread(&process).await;
    assert!(said.contains("no such file"), "{said}");
    assert!(client.ask("eth_gasPrice", json!([])).await.is_ok());

    reload(&process, &path, "strict = true").await;
    assert_eq!(client.call("eth_gasPrice", json!([])).await.code(), Some(-32601));
    assert!(process.is_running());
}

#[tokio::test]
async fn settings_that_need_a_restart_are_named() {
    let node = upstream::devchain().run().await;
    let path = file("holdfast.toml", "");
    let process = process::serve(&node).file(&path).run().await;
    let client = process.client();
    let toml = "strict = true\ndrain_delay = '1m'\n[cache]\nsize = '1 MiB'\n[connections]\nmax = 7\n";
    // The program warns at each reload, because the keys still differ from those at the start.
    for _ in 0..2 {
        let said = reload(&process, &path, toml).await;
        let warned = "cache.size, connections.max, drain_delay";
        eventually("a warning", async || process.said().contains(warned)).await;
        assert!(!said.contains("refused"), "{said}");
        assert_eq!(client.call("eth_gasPrice", json!([])).await.code(), Some(-32601));
    }
    eventually("a second warning", async || {
        process.said().matches("these changed keys take effect only after a restart").count() == 2
    })
    .await;
    let said = reload(&process, &path, "").await + &reread(&process).await;
    assert!(!said.contains("take effect"), "{said}");
}

#[tokio::test]
async fn reload_without_a_file_changes_nothing() {
    let node = upstream::devchain().run().await;
    let mut process = process::serve(&node).run().await;
    let said = reread(&process).await;
    assert!(said.contains("no reloadable key changed"), "{said}");
    assert!(process.client().ask("eth_gasPrice", json!([])).await.is_ok());
    assert!(process.is_running());
}

#[tokio::test]
async fn sighup_during_shutdown_does_not_kill_the_program() {
    let node = upstream::devchain().run().await;
    let mut process = process::serve(&node).run().await;
    node.fail(Fault::Delay(Duration::from_millis(500))).on("eth_gasPrice").always();
    let mut client = Raw::connect(process.address()).await;
    client.write(post(&client::call("eth_gasPrice"))).await;
    eventually("the call arrives", async || node.count("eth_gasPrice") == 1).await;
    process.signal(Signal::TERM);
    process.says("shutting down").await;
    process.signal(Signal::HUP);
    assert!(client.response().await.outcome().is_ok());
    assert_eq!(process.exit_code().await, Some(0), "{}", process.said());
}

#[tokio::test]
async fn fifty_reloads_under_load_lose_no_call() {
    let node = upstream::devchain().blocks(3, 2).run().await;
    let path = file("holdfast.toml", "");
    let mut process = process::serve(&node).file(&path).run().await;
    let (done, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (address, done, asked) = (process.address(), done.clone(), asked.clone());
            tokio::spawn(async move {
                let mut client = Raw::connect(address).await;
                while !done.load(Relaxed) {
                    for method in ["eth_blockNumber", "eth_gasPrice", "eth_chainId"] {
                        let answer = client.call(method).await;
                        assert!(answer.outcome().is_ok(), "{answer:?}");
                        asked.fetch_add(1, Relaxed);
                    }
                }
            })
        })
        .collect();
    let configs = [
        "",
        "call_timeout = '20s'\n[http]\nmax_in_flight = 16\nmax_body = '1 MiB'\n[methods]\ndeny = ['eth_sign*']\n",
        "[chain]\nmax_staleness = '0s'\n[http]\nmax_in_flight = 2000\n[log]\nlevel = 'info,holdfast=debug'\n",
        "strict = 'perhaps'\n",
    ];
    for round in 0..50 {
        fs::write(&path, configs[round % configs.len()]).unwrap();
        process.signal(Signal::HUP);
        let before = asked.load(Relaxed);
        eventually("calls go on", async || asked.load(Relaxed) > before).await;
    }
    let reloads = async |outcome: &str| {
        process.metric(&format!(r#"holdfast_config_reloads_total{{outcome="{outcome}"}}"#)).await
    };
    // Signals that arrive together are handled as one, so the number of reloads above depends on the machine's speed.
    // These signals arrive one at a time.
    for (config, outcome) in [(configs[2], "applied"), (configs[3], "refused")] {
        let before = reloads(outcome).await;
        fs::write(&path, config).unwrap();
        process.signal(Signal::HUP);
        eventually("the program has handled the signal", async || reloads(outcome).await > before).await;
    }
    for outcome in ["applied", "refused"] {
        let reloads = reloads(outcome).await;
        assert!((1..=52).contains(&reloads), "{outcome}: {reloads}");
    }
    done.store(true, Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    assert!(process.is_running());
    assert_eq!(process.metric("holdfast_connections_accepted_total").await, 8);
}
