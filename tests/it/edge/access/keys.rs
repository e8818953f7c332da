//! Keys: where clients send them, and which methods they allow. The program never logs or returns a key.

use holdfast::http::{KeyConfig, KeyHash};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use super::{KEY, OTHER, batch, chain_id, key, refused, status};
use crate::support::{
    client::{self, Client, Raw, Response},
    program::{Program, file, holdfast, output, text},
    proxy::{self, Proxy},
    tools, upstream,
};

const WRONG: &str = "hf_WRONG5d41402abc4b2a76b9719d911017c5925d41402abc4b2a76b9719d9110";

/// Returns one call for each place that a key can be in.
fn with_key(client: &Client, proxy: &Proxy, key: &str) -> [RequestBuilder; 3] {
    let in_path = client::at(&format!("{}/k/{key}", proxy.url()));
    [
        chain_id(client.post()).header("authorization", format!("Bearer {key}")),
        chain_id(client.post()).header("x-api-key", key),
        chain_id(in_path.post()),
    ]
}

#[tokio::test]
async fn key_is_accepted_in_each_of_its_places() {
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
        // A gateway in front may use `authorization` for itself.
        let both = chain_id(client.post()).header("authorization", "Bearer gateway").header("x-api-key", KEY);
        assert_eq!(status(both).await, 200);
    }
}

#[tokio::test]
async fn key_must_match_the_whole_hash() {
    let hash = KeyHash::of(KEY.as_bytes()).to_string();
    let nearly = |at: usize| {
        let digit = if &hash[at..=at] == "0" { "1" } else { "0" };
        let sha256 = [&hash[..at], digit, &hash[at + 1..]].concat().parse().unwrap();
        KeyConfig { sha256, ..key(&format!("nearly-{at}"), KEY) }
    };
    let node = upstream::devchain().run().await;
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| config.http.keys = (0..hash.len()).map(nearly).collect())
        .run()
        .await;
    for request in with_key(&client::http(&proxy), &proxy, KEY) {
        assert_eq!(status(request).await, StatusCode::UNAUTHORIZED);
    }
}

/// curl 7.88 reports a framing error if the answer arrives before it has sent the body.
#[tokio::test]
async fn curl_sees_every_refusal_over_http2() {
    let Some(curl) = tools::curl("curl_sees_every_refusal_over_http2") else { return };
    let node = upstream::devchain().run().await;
    let proxy =
        proxy::new().upstream(&node).config(|config| config.http.keys = vec![key("wallet", KEY)]).run().await;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[],"x":"{}"}}"#,
        "x".repeat(2000)
    );
    for round in 0..60 {
        let mut command = std::process::Command::new(&curl);
        command.args(["--http2-prior-knowledge", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-m", "10"]);
        command.args(["-H", "content-type: application/json", "--data-binary", &body, &proxy.url()]);
        let ran = output(command).await;
        // An address may send 60 requests a minute without a key. Further requests get 429.
        assert!(
            matches!(&text(&ran.stdout)[..], "401" | "429"),
            "round {round}: {} {:?}",
            text(&ran.stdout),
            ran.status
        );
    }
}

/// A client without a key cannot hold a request open by sending its body slowly.
#[tokio::test]
async fn refusal_does_not_wait_for_a_slow_or_large_body() {
    let node = upstream::devchain().run().await;
    let proxy =
        proxy::new().upstream(&node).config(|config| config.http.keys = vec![key("wallet", KEY)]).run().await;
    for head in [client::post_head(1000), client::post_head(1 << 20)] {
        let mut slow = Raw::connect(proxy.address()).await;
        slow.write(head).await;
        let read = tokio::time::timeout(std::time::Duration::from_secs(5), slow.read_to_end()).await.unwrap();
        assert!(read.starts_with("HTTP/1.1 401"), "{read}");
    }
}

#[tokio::test]
async fn request_without_a_valid_key_is_refused_without_echo() {
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
    assert!(bodies[2..].iter().all(|body| body.contains("unknown key")), "{bodies:?}");
    assert_eq!(proxy.metric(&refused("no_key")).await, 2);
    assert_eq!(proxy.metric(&refused("bad_key")).await, 6);
    assert_eq!(node.calls_total(), 0);

    // A web page can read the refusal, and its preflight allows it to send a key.
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
async fn key_may_call_the_methods_of_its_policy() {
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
        // The proxy does not serve this method at all, and a key cannot allow more than the global policy.
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
    command.args(["--log-level", "trace,holdfast=trace", "--log-format", "json"]);
    let mut program = Program::start(command);
    program.says("upstream identified").await;
    let url = format!("http://{}", program.rpc_address().await);
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
    let mut raw = Raw::connect(program.rpc_address().await).await;
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
async fn new_key_works_as_printed() {
    let node = upstream::devchain().run().await;
    let made = output(holdfast(&["key", "new", "--name", "wallet"])).await;
    assert!(made.status.success(), "{}", text(&made.stderr));
    let (lines, words) = (text(&made.stdout), text(&made.stderr));
    let key = words.split_whitespace().find(|word| word.starts_with("hf_")).unwrap();
    assert!(lines.contains("name = \"wallet\"") && !lines.contains("hf_"), "{lines}");

    // Printed entries can be appended to a file one after another.
    let unnamed = output(holdfast(&["key", "new"])).await;
    let (more, words) = (text(&unnamed.stdout), text(&unnamed.stderr));
    let other = words.split_whitespace().find(|word| word.starts_with("hf_")).unwrap();
    assert_ne!(key, other);
    let config = format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n[http]\nmax_batch = 10\n[upstream]\nendpoints = [{{ url = '{}' }}]{lines}{more}",
        node.url()
    );
    let config = file("holdfast.toml", &config);
    let program = Program::start(holdfast(&["serve", "--config", config.to_str().unwrap()]));
    program.says("upstream identified").await;
    let listen = program.rpc_address().await;
    for (path, expected) in [(format!("/k/{key}"), 200), (format!("/k/{other}/"), 200), (String::new(), 401)]
    {
        let answer = client::at(&format!("http://{listen}{path}")).call("eth_chainId", json!([])).await;
        assert_eq!(answer.status, expected);
    }

    let bad = output(holdfast(&["key", "new", "--name", "a\"b"])).await;
    assert_eq!(bad.status.code(), Some(64));
    assert!(text(&bad.stderr).contains("expected a name of"), "{}", text(&bad.stderr));
}
