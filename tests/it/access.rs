//! Who may come in, and what they may do: keys, rates, hosts, proxies.

use std::{num::NonZeroU32, time::Duration};

use futures_util::future::join_all;
use holdfast::{
    config::{Config, Sources},
    http::{KeyConfig, KeyHash},
    proxy::Policy,
};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::time;

use crate::support::{
    client::{self, Client, Raw, Response},
    in_memory, process,
    program::{Program, file, holdfast, output, text},
    proxy::{self, Proxy},
    upstream,
};

const KEY: &str = "hf_5d41402abc4b2a76b9719d911017c5925d41402abc4b2a76b9719d911017c592";
const OTHER: &str = "hf_7d793037a0760186574b0282f2f435e77d793037a0760186574b0282f2f435e7";
const WRONG: &str = "hf_WRONG5d41402abc4b2a76b9719d911017c5925d41402abc4b2a76b9719d9110";

fn key(name: &str, key: &str) -> KeyConfig {
    KeyConfig {
        name: name.to_owned(),
        sha256: KeyHash::of(key.as_bytes()),
        allow: None,
        deny: Vec::new(),
        rate: None,
        burst: None,
    }
}

fn chain_id(request: RequestBuilder) -> RequestBuilder {
    request.header("content-type", "application/json").body(client::call("eth_chainId"))
}

/// A call in each of the places that a key can be in.
fn with_key(client: &Client, proxy: &Proxy, key: &str) -> [RequestBuilder; 3] {
    let in_path = client::at(&format!("{}/k/{key}", proxy.url()));
    [
        chain_id(client.post()).header("authorization", format!("Bearer {key}")),
        chain_id(client.post()).header("x-api-key", key),
        chain_id(in_path.post()),
    ]
}

async fn status(request: RequestBuilder) -> StatusCode {
    Response::of(request).await.status
}

fn refused(reason: &str) -> String {
    format!(r#"holdfast_requests_refused_total{{reason="{reason}"}}"#)
}

fn batch(methods: &[&str]) -> String {
    let calls = methods.iter().zip(0..);
    let calls: Vec<_> = calls
        .map(|(method, id)| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": [] }))
        .collect();
    json!(calls).to_string()
}

// ## Keys

#[tokio::test]
async fn a_key_is_taken_in_each_of_its_places() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| config.http.keys = vec![key("other", OTHER), key("wallet", KEY)])
        .run()
        .await;
    for client in [client::http(&proxy), client::http2(&proxy)] {
        for request in with_key(&client, &proxy, KEY).into_iter().chain(with_key(&client, &proxy, OTHER)) {
            let answer = Response::of(request).await;
            assert_eq!((answer.status, answer.outcome().is_ok()), (StatusCode::OK, true));
        }
        // A gateway may want one of the places for itself.
        let both = chain_id(client.post()).header("authorization", "Bearer gateway").header("x-api-key", KEY);
        assert_eq!(status(both).await, 200);
    }
}

#[tokio::test]
async fn without_a_key_nobody_comes_in_and_the_key_is_not_echoed() {
    let node = upstream::devchain().run().await;
    let proxy =
        proxy::new().upstream(&node).config(|config| config.http.keys = vec![key("wallet", KEY)]).run().await;
    let client = client::http(&proxy);
    node.clear_calls();

    let half = &KEY[..KEY.len() - 1];
    let none = [chain_id(client.post()), chain_id(client.post()).header("authorization", "Basic eDp5")];
    let mut bodies = Vec::new();
    for request in
        none.into_iter().chain(with_key(&client, &proxy, WRONG)).chain(with_key(&client, &proxy, half))
    {
        let answer = Response::of(request).await;
        assert_eq!((answer.status, answer.code()), (StatusCode::UNAUTHORIZED, Some(-32600)));
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        assert_eq!(answer.json()["id"], Value::Null);
        assert!(!answer.text().contains("hf_"), "{}", answer.text());
        bodies.push(answer.message());
    }
    assert!(bodies[0].contains("a key is needed") && bodies[1] == bodies[0], "{bodies:?}");
    assert!(bodies[2..].iter().all(|body| body.contains("the key is not known")), "{bodies:?}");
    assert_eq!(proxy.metric(&refused("no_key")).await, 2);
    assert_eq!(proxy.metric(&refused("bad_key")).await, 6);
    assert_eq!(node.calls_total(), 0);

    // A page can read that, and ask whether it may send a key.
    let answer = Response::of(chain_id(client.post()).header("origin", "https://page.example.org")).await;
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    let preflight = client.request(Method::OPTIONS).header("origin", "https://page.example.org");
    let preflight = preflight
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization");
    let answer = Response::of(preflight).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("access-control-allow-headers"), Some("authorization"));
}

#[tokio::test]
async fn a_key_may_call_what_its_policy_allows() {
    let node = upstream::devchain().run().await;
    let narrow = KeyConfig {
        allow: Some(vec!["eth_*".to_owned(), "debug_*".to_owned()]),
        deny: vec!["eth_gasPrice".to_owned()],
        ..key("narrow", KEY)
    };
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| config.http.keys = vec![narrow, key("wide", OTHER)])
        .run()
        .await;
    let ask = async |key: &str, method: &str| {
        let answer = client::at(&format!("{}/k/{key}", proxy.url())).call(method, json!([])).await;
        assert_eq!(answer.status, 200);
        answer.code()
    };
    for (method, narrow, wide) in [
        ("eth_chainId", None, None),
        ("eth_gasPrice", Some(-32601), None),
        ("net_version", Some(-32601), None),
        // Not served at all: no key gets more than everybody.
        ("debug_traceTransaction", Some(-32601), Some(-32601)),
    ] {
        assert_eq!((ask(KEY, method).await, ask(OTHER, method).await), (narrow, wide), "{method}");
    }
    let narrow = client::at(&format!("{}/k/{KEY}", proxy.url()));
    let answers = narrow.send(batch(&["eth_chainId", "net_version"])).await.json();
    assert!(answers[0]["result"].is_string() && answers[1]["error"]["code"] == -32601, "{answers}");
}

#[tokio::test]
async fn no_key_is_logged_at_any_level() {
    let node = upstream::devchain().run().await;
    let config = format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n[http]\nrate = '1/h'\nburst = 8\n[[http.keys]]\nname = 'wallet'\n\
         sha256 = '{}'\n[[upstream.endpoints]]\nurl = '{}'\n",
        KeyHash::of(KEY.as_bytes()),
        node.url()
    );
    let config = file("holdfast.toml", &config);
    let mut command = holdfast(&["serve", "--config", config.to_str().unwrap()]);
    command.args(["--log-level", "trace", "--log-format", "json"]);
    let mut program = Program::start(command);
    program.says("upstream identified").await;
    let line: Value = serde_json::from_str(&program.line("is listening").await).unwrap();
    let url = format!("http://{}", line["listen"].as_str().unwrap());
    for key in [KEY, WRONG] {
        let in_path = format!("{url}/k/{key}");
        for client in [client::at(&in_path), client::http2_at(&in_path)] {
            let answers = [
                client.call("eth_blockNumber", json!([])).await,
                Response::of(chain_id(client.post()).header("x-api-key", key)).await,
                Response::of(chain_id(client.post()).header("authorization", format!("Bearer {key}"))).await,
                Response::of(client.request(Method::GET)).await,
                Response::of(chain_id(client.post()).header("host", "evil.example.org")).await,
            ];
            assert_eq!(answers[0].status, if key == KEY { 200 } else { 401 });
            assert!(answers.iter().all(|answer| !answer.text().contains("hf_")));
        }
    }
    let mut raw = Raw::connect(line["listen"].as_str().unwrap().parse().unwrap()).await;
    raw.write(format!("POST /k/{KEY} HTTP/1.1\r\nhost: localhost\r\nbad header {KEY}\r\n\r\n")).await;
    let _ = raw.read_to_end().await;
    program.signal(rustix::process::Signal::TERM);
    assert_eq!(program.exit_code().await, Some(0));

    let log = program.said();
    assert!(log.contains("request refused") && log.contains("request admitted"), "{log}");
    for line in log.lines() {
        assert!(!line.contains("hf_") && !line.contains(&KEY[8..24]) && !line.contains("/k/"), "{line}");
    }
}

#[tokio::test]
async fn a_new_key_works_as_it_is_printed() {
    let node = upstream::devchain().run().await;
    let made = output(holdfast(&["key", "new", "--name", "wallet"])).await;
    assert!(made.status.success(), "{}", text(&made.stderr));
    let (lines, words) = (text(&made.stdout), text(&made.stderr));
    let key = words.split_whitespace().find(|word| word.starts_with("hf_")).unwrap();
    assert!(lines.contains("name = \"wallet\"") && !lines.contains("hf_"), "{lines}");

    // Added at the end of a file, one after another.
    let unnamed = output(holdfast(&["key", "new"])).await;
    let (more, words) = (text(&unnamed.stdout), text(&unnamed.stderr));
    let other = words.split_whitespace().find(|word| word.starts_with("hf_")).unwrap();
    assert_ne!(key, other);
    let config = format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n[http]\nmax_batch = 10\n[upstream]\nendpoints = [{{ url = '{}' }}]\n{lines}{more}",
        node.url()
    );
    let config = file("holdfast.toml", &config);
    let program = Program::start(holdfast(&["serve", "--config", config.to_str().unwrap()]));
    program.says("upstream identified").await;
    let line = program.line("is listening").await;
    let listen = line.split_whitespace().find_map(|word| word.strip_prefix("listen=")).unwrap();
    for (path, expected) in [(format!("/k/{key}"), 200), (format!("/k/{other}/"), 200), (String::new(), 401)]
    {
        let answer = client::at(&format!("http://{listen}{path}")).call("eth_chainId", json!([])).await;
        assert_eq!(answer.status, expected);
    }

    let bad = output(holdfast(&["key", "new", "--name", "a\"b"])).await;
    assert_eq!(bad.status.code(), Some(64));
    assert!(text(&bad.stderr).contains("expected a name of"), "{}", text(&bad.stderr));
}

// ## Rates

#[tokio::test(start_paused = true)]
async fn a_client_may_call_as_often_as_its_rate_says() {
    let chain = upstream::devchain().chain();
    let mut config = in_memory::consistent();
    config.http.rate = "2/s".parse().ok();
    config.http.burst = NonZeroU32::new(3);
    config.http.keys = vec![key("one", KEY), key("two", OTHER)];
    let program = in_memory::program(&chain, &config);
    let [one, two] = [KEY, OTHER].map(|key| program.clone().with_key(key));
    time::advance(Duration::from_secs(60)).await;

    for _ in 0..3 {
        assert_eq!(one.call("eth_chainId", json!([])).await.0, 200);
    }
    let limited = one.response(client::call("eth_chainId")).await;
    assert_eq!(limited.0, 429);
    assert_eq!(limited.1["retry-after"], "1");
    assert_eq!(limited.2["error"]["code"], -32005);
    assert_eq!(limited.2["id"], 1);
    assert_eq!(limited.2["error"]["message"], "too many calls; come back in 500 ms");
    // Nobody pays for another.
    assert_eq!(two.call("eth_chainId", json!([])).await.0, 200);

    time::advance(Duration::from_millis(499)).await;
    assert_eq!(one.call("eth_chainId", json!([])).await.0, 429);
    time::advance(Duration::from_millis(1)).await;
    assert_eq!(one.call("eth_chainId", json!([])).await.0, 200);
    assert_eq!(one.call("eth_chainId", json!([])).await.0, 429);
    time::advance(Duration::from_secs(3600)).await;
    let after = join_all((0..10).map(|_| one.call("eth_chainId", json!([])))).await;
    assert_eq!(after.iter().filter(|(status, _)| *status == 200).count(), 3);
    assert_eq!(program.metric(r#"calls_total{method="eth_chainId",outcome="limited"}"#), 10);
}

#[tokio::test(start_paused = true)]
async fn a_batch_costs_as_many_as_it_has_calls_and_only_what_is_over_is_refused() {
    let chain = upstream::devchain().chain();
    let mut config = in_memory::consistent();
    config.http.keys = vec![KeyConfig { rate: "100/m".parse().ok(), ..key("one", KEY) }];
    let program = in_memory::program(&chain, &config).with_key(KEY);
    time::advance(Duration::from_secs(60)).await;

    let (status, headers, answers) = program.response(batch(&["eth_chainId"; 60])).await;
    assert_eq!((status, headers.contains_key("retry-after")), (200, false));
    assert!(answers.as_array().unwrap().iter().all(|answer| answer["result"].is_string()), "{answers}");

    // Forty are left. Refused ones, from memory, forwarded: a call is a call; what is none costs nothing.
    let mut calls: Vec<_> = ["eth_chainId", "net_version", "eth_gasPrice", "debug_evil"].repeat(15);
    calls.truncate(50);
    let mut body: Value = serde_json::from_str(&batch(&calls)).unwrap();
    body.as_array_mut().unwrap().insert(0, json!("nonsense"));
    let (status, _, answers) = program.response(body.to_string()).await;
    let answers = answers.as_array().unwrap();
    assert_eq!((status, answers.len()), (200, 51));
    assert_eq!(answers[0]["error"]["code"], -32600);
    let codes = answers[1..].iter().map(|answer| answer["error"]["code"].as_i64());
    let limited: Vec<_> =
        codes.enumerate().filter(|(_, code)| *code == Some(-32005)).map(|(at, _)| at).collect();
    assert_eq!(limited, (40..50).collect::<Vec<_>>());
    assert!(answers[1]["result"].is_string() && answers[4]["error"]["code"] == -32601);
    assert!(answers[1..].iter().zip(0..).all(|(answer, id)| answer["id"] == id));

    // What a notification would write is not written either.
    let (raw, _) = chain_sendable(&chain);
    let write = json!({ "jsonrpc": "2.0", "method": "eth_sendRawTransaction", "params": [raw] }).to_string();
    assert_eq!(program.send(write.clone()).await.0, 204);
    assert!(chain.mempool().is_empty());
    time::advance(Duration::from_secs(60)).await;
    assert_eq!(program.send(write).await.0, 204);
    assert_eq!(chain.mempool().len(), 1);
}

fn chain_sendable(chain: &holdfast::devchain::DevChain) -> (String, String) {
    use alloy_eips::Encodable2718;
    let transaction = chain.generate(1).remove(0);
    let raw = alloy_primitives::hex::encode_prefixed(transaction.encoded_2718());
    (raw, format!("{:#x}", transaction.tx_hash()))
}

#[tokio::test]
async fn without_keys_clients_are_told_apart_by_address() {
    let node = upstream::devchain().run().await;
    let process = process::serve(&node).set("HTTP__RATE", "3/h").run().await;
    let client = process.client();
    let mut answers = Vec::new();
    for _ in 0..5 {
        answers.push(client.call("eth_chainId", json!([])).await);
    }
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status.as_u16()).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    let wait: u64 = answers[3].header("retry-after").unwrap().parse().unwrap();
    assert!((1100..=1200).contains(&wait), "{wait}");
    // The header is anybody's to write, so it makes nobody somebody else.
    let forwarded = chain_id(client.post()).header("x-forwarded-for", "1.2.3.4");
    assert_eq!(status(forwarded).await, 429);
    // Another connection is the same client; another address is another.
    assert_eq!(process.client().call("eth_chainId", json!([])).await.status, 429);
    let other = client::from("127.0.0.9".parse().unwrap(), &format!("http://{}", process.address()));
    assert_eq!(other.call("eth_chainId", json!([])).await.status, 200);
    let limited = r#"holdfast_calls_total{method="eth_chainId",outcome="limited"}"#;
    assert_eq!(process.metric(limited).await, 4);
    // Without a rate there is no limit.
    let free = proxy::new().upstream(&node).run().await;
    let calls = client::http(&free).send(batch(&["eth_chainId"; 1000])).await.json();
    assert!(calls.as_array().unwrap().iter().all(|answer| answer["result"].is_string()));
}

#[tokio::test]
async fn a_real_clock_gives_back_what_was_taken() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| {
            config.http.rate = "20/s".parse().ok();
            config.http.burst = NonZeroU32::new(1);
        })
        .run()
        .await;
    let client = client::http(&proxy);
    crate::support::eventually("a refusal", async || {
        client.call("eth_chainId", json!([])).await.status == 429
    })
    .await;
    crate::support::eventually("recovery", async || {
        client.call("eth_chainId", json!([])).await.status == 200
    })
    .await;
}

#[tokio::test]
async fn a_trusted_proxy_says_who_its_clients_are() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| {
            config.http.rate = "1/h".parse().ok();
            config.http.trusted_proxies = vec!["127.0.0.1".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        })
        .run()
        .await;
    let client = client::http(&proxy);
    let from = async |forwarded: &str| {
        status(chain_id(client.post()).header("x-forwarded-for", forwarded)).await.as_u16()
    };
    assert_eq!((from("1.1.1.1").await, from("1.1.1.1").await), (200, 429));
    assert_eq!(from("2.2.2.2").await, 200);
    // What the client wrote itself stands to the left, and counts for nothing.
    assert_eq!(from("9.9.9.9, 1.1.1.1").await, 429);
    assert_eq!(from("8.8.8.8, 2.2.2.2, 10.1.2.3").await, 429);
    assert_eq!(from("[2001:db8::1]:1234").await, 200);
    assert_eq!(from("2001:db8::2").await, 429);
    assert_eq!(from("2001:db8:0:1::1").await, 200);
    // Without the header the proxy itself is the client.
    assert_eq!(status(chain_id(client.post())).await, 200);
    assert_eq!(status(chain_id(client.post())).await, 429);
    // Another peer is not believed.
    let other = client::from("127.0.0.9".parse().unwrap(), &proxy.url());
    let from_other = |forwarded: &str| chain_id(other.post()).header("x-forwarded-for", forwarded);
    assert_eq!(status(from_other("3.3.3.3")).await, 200);
    assert_eq!(status(from_other("4.4.4.4")).await, 429);
}

// ## Hosts

#[tokio::test]
async fn on_loopback_only_names_of_loopback_are_served() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| config.http.allowed_hosts = vec!["Box.internal".parse().unwrap()])
        .run()
        .await;
    let ready = proxy.admin_url("/ready");
    for (host, served) in [
        ("localhost", true),
        ("localhost:8555", true),
        ("127.0.0.1:8555", true),
        ("127.9.9.9", true),
        ("[::1]:8555", true),
        ("[::1]", true),
        ("box.internal:99", true),
        ("rebound.example.org", false),
        ("rebound.example.org:8555", false),
        ("localhost.example.org", false),
        ("192.168.1.7:8555", false),
        ("[2001:db8::1]:8555", false),
    ] {
        let answer = Response::of(chain_id(client::http(&proxy).post()).header("host", host)).await;
        assert_eq!(answer.status, if served { 200 } else { 403 }, "{host}");
        let admin = Response::of(client::at(&ready).request(Method::GET).header("host", host)).await;
        assert_eq!(admin.status, if served { 200 } else { 403 }, "{host} on the admin listener");
        if !served {
            assert_eq!(answer.code(), Some(-32600));
            assert!(answer.message().contains("http.allowed_hosts"), "{}", answer.message());
            assert!(admin.text().contains("http.allowed_hosts"), "{}", admin.text());
        }
    }
    assert_eq!(proxy.metric(&refused("host")).await, 5);
    // The target of a request counts too, and so does every host it names.
    for head in [
        "POST http://rebound.example.org/ HTTP/1.1\r\nhost: localhost",
        "POST / HTTP/1.1\r\nhost: localhost\r\nhost: rebound.example.org",
    ] {
        let mut raw = Raw::connect(proxy.address()).await;
        let body = client::call("eth_chainId");
        let length = body.len();
        raw.write(format!(
            "{head}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        ))
        .await;
        assert_eq!(raw.response().await.status, 403, "{head}");
    }
}

#[tokio::test]
async fn http_2_names_its_host_in_the_authority() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    for (address, path) in [(proxy.address(), "/"), (proxy.app.admin_address(), "/live")] {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        for (authority, served) in [
            ("localhost:1", true),
            ("127.0.0.1", true),
            ("[::1]:8555", true),
            ("rebound.example.org", false),
            ("rebound.example.org:8555", false),
        ] {
            let method = if path == "/" { Method::POST } else { Method::GET };
            let request = ::http::Request::builder()
                .method(method)
                .uri(format!("http://{authority}{path}"))
                .header("content-type", "application/json")
                .body(())
                .unwrap();
            sender = sender.ready().await.unwrap();
            let (response, mut body) = sender.send_request(request, false).unwrap();
            body.send_data(client::call("eth_chainId").into(), true).unwrap();
            let expected = if served { 200 } else { 403 };
            assert_eq!(response.await.unwrap().status(), expected, "{authority}{path}");
        }
    }
}

#[tokio::test]
async fn elsewhere_hosts_are_asked_for_only_if_some_are_listed() {
    let node = upstream::devchain().run().await;
    for (listed, served) in [(vec![], true), (vec!["rpc.example.org".parse().unwrap()], false)] {
        let proxy = proxy::new()
            .upstream(&node)
            .config(|config| {
                config.listen = "0.0.0.0:0".parse().unwrap();
                config.http.allowed_hosts = listed;
            })
            .run()
            .await;
        let client = client::at(&format!("http://127.0.0.1:{}", proxy.address().port()));
        let at = async |host: &str| status(chain_id(client.post()).header("host", host)).await == 200;
        assert!(at("rpc.example.org").await && at("127.0.0.1").await && at("10.2.3.4:8555").await);
        assert_eq!(at("other.example.org").await, served);
    }
}

// ## Changes while it serves

#[tokio::test]
async fn the_rules_can_be_replaced_under_a_connection() {
    let node = upstream::devchain().run().await;
    let mut config = Config::default();
    config.http.rate = "2/h".parse().ok();
    let rules = config.http.clone();
    let proxy = proxy::new().upstream(&node).config(|config| config.http = rules).run().await;
    let replace = |config: &Config| {
        proxy.app.access().replace(&config.http, Policy::new(&config.proxy()));
    };
    let mut connection = Raw::connect(proxy.address()).await;
    assert_eq!(connection.call("eth_chainId").await.status, 200);

    // The same rate: what was used is used.
    replace(&config);
    assert_eq!(connection.call("eth_chainId").await.status, 200);
    assert_eq!(connection.call("eth_chainId").await.status, 429);
    // Another rate, a key, another policy.
    config.http.rate = "100/s".parse().ok();
    replace(&config);
    assert_eq!(connection.call("eth_gasPrice").await.outcome().is_ok(), true);
    config.methods.deny = vec!["eth_gasPrice".to_owned()];
    replace(&config);
    assert_eq!(connection.call("eth_gasPrice").await.code(), Some(-32601));
    config.http.keys = vec![key("wallet", KEY)];
    replace(&config);
    assert_eq!(connection.call("eth_chainId").await.status, 401);
    let with_key = client::at(&format!("{}/k/{KEY}", proxy.url()));
    assert_eq!(with_key.call("eth_chainId", json!([])).await.status, 200);
    config.http.keys.clear();
    config.http.allowed_hosts = vec!["rpc.example.org".parse().unwrap()];
    replace(&config);
    assert_eq!(connection.call("eth_chainId").await.status, 200);
    let client = client::http(&proxy);
    assert_eq!(status(chain_id(client.post()).header("host", "rpc.example.org")).await, 200);
    assert_eq!(proxy.metric("holdfast_connections_accepted_total").await, 3);
}

#[tokio::test]
async fn bad_rules_are_refused_with_the_key_and_what_would_be_right() {
    for (toml, expected) in [
        ("[http]\nrate = '0/s'", "http.rate: \"0/s\" is no rate"),
        ("[http]\ntrusted_proxies = ['10.0.0.0/40']", "http.trusted_proxies.0: \"10.0.0.0/40\" is neither"),
        ("[[http.keys]]\nname = 'a'\nsha256 = 'hf_SECRET'", "http.keys.0.sha256: expected the SHA-256"),
    ] {
        let config = file("holdfast.toml", toml);
        let error = Sources::none().with_file(Some(config)).load().unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains("SECRET"), "{error}");
    }
    let config = file("holdfast.toml", "[[http.keys]]\nname = 'a'\nsha256 = 'hf_SECRET'\n");
    let ran = output(holdfast(&["serve", "--config", config.to_str().unwrap()])).await;
    assert_eq!(ran.status.code(), Some(64));
    assert!(!text(&ran.stderr).contains("SECRET"), "{}", text(&ran.stderr));
}
