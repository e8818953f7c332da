//! Secrets reach the node and appear nowhere else.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use holdfast::{secret::Secret, upstream::EndpointConfig};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::AbortHandle,
};

use crate::support::{
    client,
    program::{Program, file, holdfast},
    proxy, upstream,
};

/// A relay that records the bytes of the requests and passes them on to a real node, until it is stopped.
async fn noting(behind: SocketAddr) -> (SocketAddr, Arc<Mutex<String>>, AbortHandle) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let noted = Arc::new(Mutex::new(String::new()));
    let notes = noted.clone();
    let accepting = tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let notes = notes.clone();
            tokio::spawn(async move {
                let mut far = tokio::net::TcpStream::connect(behind).await.unwrap();
                let (mut out, mut back) = (vec![0; 65536], vec![0; 65536]);
                loop {
                    tokio::select! {
                        read = near.read(&mut out) => match read {
                            Ok(count) if count > 0 => {
                                notes.lock().unwrap().push_str(&String::from_utf8_lossy(&out[..count]));
                                far.write_all(&out[..count]).await.unwrap();
                            }
                            _ => return,
                        },
                        read = far.read(&mut back) => match read {
                            Ok(count) if count > 0 => near.write_all(&back[..count]).await.unwrap(),
                            _ => return,
                        },
                    }
                }
            });
        }
    });
    (address, noted, accepting.abort_handle())
}

fn endpoint(url: &str) -> EndpointConfig {
    let file = file("secret", "SECRET-FILE\n");
    let headers = BTreeMap::from([
        ("authorization".to_owned(), Secret::Plain("Bearer SECRET-HEADER".to_owned())),
        ("x-file".to_owned(), Secret::File(file)),
        ("x-env".to_owned(), Secret::Env("CARGO_PKG_NAME".to_owned())),
    ]);
    EndpointConfig { headers, ..EndpointConfig::at(url) }
}

#[tokio::test]
async fn headers_and_path_reach_the_node_and_no_client() {
    let node = upstream::devchain().run().await;
    let (address, noted, _) = noting(node.address()).await;
    let url = format!("http://{address}/v3/SECRET-PATH?key=SECRET-QUERY");
    let proxy = proxy::new().config(|config| config.upstream.endpoints = vec![endpoint(&url)]).run().await;
    let client = client::http(&proxy);
    assert!(client.ask("eth_blockNumber", json!([])).await.is_ok());

    let heads = noted.lock().unwrap().clone();
    for expected in [
        "POST /v3/SECRET-PATH?key=SECRET-QUERY HTTP/1.1",
        "authorization: Bearer SECRET-HEADER",
        "x-file: SECRET-FILE\r",
        "x-env: ",
        "content-type: application/json",
        "accept-encoding: ",
    ] {
        assert!(heads.contains(expected), "{expected} is not in {heads}");
    }
    assert!(heads.contains("gzip") && heads.contains("zstd"), "{heads}");

    for path in ["/status", "/metrics", "/ready", "/"] {
        let shown = client.get(&proxy.admin_url(path)).await;
        assert!(!shown.text().contains("SECRET"), "{path}: {}", shown.text());
    }
    let status = client.get(&proxy.admin_url("/status")).await.json();
    let shown = status["endpoints"][0]["url"].as_str().unwrap();
    assert!(shown.starts_with("http://127.0.0.1:") && shown.ends_with("/…"), "{shown}");

    drop(node);
    for _ in 0..3 {
        let failed = client.call("eth_gasPrice", json!([])).await;
        assert!(failed.code() == Some(-32010) && !failed.text().contains("SECRET"), "{}", failed.text());
    }
}

#[tokio::test]
async fn nothing_secret_is_logged_at_any_level() {
    let node = upstream::devchain().run().await;
    let (address, _, _) = noting(node.address()).await;
    let url = format!("http://user:SECRET-PASS@{address}/v3/SECRET-PATH?key=SECRET-QUERY");
    let mut command =
        holdfast(&["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", &url]);
    command
        .args(["--log-level", "trace,holdfast=trace", "--log-format", "json"])
        .env("HOLDFAST_LOG__LEVEL", "off");
    let mut program = Program::start(command);
    program.says("upstream identified").await;
    let client = client::at(&format!("http://{}/k/SECRET-CLIENT", program.rpc_address().await));
    assert!(client.ask("eth_blockNumber", json!(["SECRET-PARAM"])).await.is_err());
    let post =
        client.post().header("content-type", "application/json").header("authorization", "SECRET-CLIENT");
    let _ = client::Response::of(post.body("SECRET-BODY")).await;
    program.signal(rustix::process::Signal::TERM);
    assert_eq!(program.exit_code().await, Some(0));

    let log = program.said();
    let ours = log.lines().filter(|line| line.contains("\"holdfast")).count();
    assert!(ours > 3, "the log is as good as empty: {log}");
    // Libraries do not log the secrets, either.
    for line in log.lines() {
        assert!(!line.contains("SECRET"), "{line}");
    }
}

#[tokio::test]
async fn websocket_url_and_headers_reach_the_node_and_no_log() {
    let node = upstream::devchain().run().await;
    let (address, noted, accepting) =
        noting(node.ws_url().trim_start_matches("ws://").parse().unwrap()).await;
    let config = format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nlog = {{ level = 'trace,holdfast=trace', format = 'json' }}\n\
         chain = {{ follow = 'heads' }}\n[[upstream.endpoints]]\nurl = '{}'\n\
         ws = 'ws://{address}/v3/SECRET-PATH?key=SECRET-QUERY'\n\
         headers = {{ authorization = 'Bearer SECRET-HEADER' }}\n",
        node.url()
    );
    let config = file("holdfast.toml", &config);
    let mut program = Program::start(holdfast(&["serve", "--config", config.to_str().unwrap()]));
    program.says("newHeads subscription established").await;
    node.mine(1);
    // Stops only the relay. The node stays reachable, because the program subscribes only at an identified node.
    accepting.abort();
    node.cut_sockets();
    program.says("newHeads subscription unavailable").await;
    program.says("newHeads subscription still unavailable").await;
    program.signal(rustix::process::Signal::TERM);
    assert_eq!(program.exit_code().await, Some(0));

    let heads = noted.lock().unwrap().clone();
    for expected in ["GET /v3/SECRET-PATH?key=SECRET-QUERY HTTP/1.1", "authorization: Bearer SECRET-HEADER"] {
        assert!(heads.contains(expected), "{expected} is not in {heads}");
    }
    for line in program.said().lines() {
        assert!(!line.contains("SECRET"), "{line}");
    }
}

/// A node that answers every method except those in `knows` with an error that repeats the head of the request.
async fn echoing(knows: &'static [&'static str]) -> SocketAddr {
    let answer = move |head: &str, body: &serde_json::Value| {
        let method = body["method"].as_str().unwrap_or_default();
        let reply = match method {
            known if !knows.contains(&known) => {
                let error = json!({ "code": -32600, "message": format!("no access: {head}"), "data": head });
                json!({ "jsonrpc": "2.0", "id": body["id"], "error": error })
            }
            "eth_getBlockByNumber" => json!({ "jsonrpc": "2.0", "id": body["id"], "result": null }),
            "web3_clientVersion" => {
                json!({ "jsonrpc": "2.0", "id": body["id"], "result": format!("node/1 {head}") })
            }
            _ => json!({ "jsonrpc": "2.0", "id": body["id"], "result": "0x1" }),
        };
        let status = if reply.get("error").is_some() { "401 Unauthorized" } else { "200 OK" };
        let reply = reply.to_string();
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n{reply}",
            reply.len()
        )
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let (mut read, mut piece) = (String::new(), vec![0; 65536]);
                loop {
                    if let Some((head, body)) = read.split_once("\r\n\r\n")
                        && let Ok(body) = serde_json::from_str(body)
                    {
                        let _ = stream.write_all(answer(head, &body).as_bytes()).await;
                        return;
                    }
                    match stream.read(&mut piece).await {
                        Ok(count @ 1..) => read.push_str(&String::from_utf8_lossy(&piece[..count])),
                        _ => return,
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn key_that_a_result_echoes_reaches_no_client() {
    let address =
        echoing(&["eth_chainId", "net_version", "eth_getBlockByNumber", "web3_clientVersion"]).await;
    let url = format!("http://{address}/v3/SECRET-PATH-0123456789");
    let headers = [("x-key".to_owned(), Secret::Plain("SECRET-HEADER-0123456789".to_owned()))].into();
    let node = EndpointConfig { headers, ..EndpointConfig::at(&url) };
    let proxy = proxy::new().config(|config| config.upstream.endpoints = vec![node]).run().await;
    let version = client::http(&proxy).ask("web3_clientVersion", json!([])).await.unwrap();
    assert!(version.contains("node/1 POST /v3/…") && !version.contains("SECRET"), "{version}");
}

#[tokio::test]
async fn keys_that_a_node_echoes_are_not_shown() {
    const IDENTITY: &[&str] = &["eth_chainId", "net_version", "eth_getBlockByNumber"];
    for (knows, credentials, headers) in [
        (&[][..], "user:SECRET-PASS@", ""),
        (&[], "", "headers = { authorization = 'Bearer SECRET-HEADER' }"),
        (IDENTITY, "user:SECRET-PASS@", "headers = { x-key = 'SECRET-HEADER' }"),
    ] {
        let address = echoing(knows).await;
        let config = format!(
            "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nlog = {{ level = 'trace,holdfast=trace', format = 'json' }}\n\
             [[upstream.endpoints]]\nurl = 'http://{credentials}{address}/v3/SECRET-PATH?key=SECRET-QUERY'\n{headers}\n"
        );
        let config = file("holdfast.toml", &config);
        let mut program = Program::start(holdfast(&["serve", "--config", config.to_str().unwrap()]));
        let client = client::at(&format!("http://{}", program.rpc_address().await));
        let said = client.call("eth_gasPrice", json!([])).await;
        assert!(said.text().contains("no access"), "{}", said.text());
        let admin = format!("http://{}", program.admin_address().await);
        let mut shown = said.text().to_owned();
        for path in ["/status", "/metrics", "/ready", "/"] {
            shown += client.get(&format!("{admin}{path}")).await.text();
        }
        program.signal(rustix::process::Signal::TERM);
        assert_eq!(program.exit_code().await, Some(0));
        let log = program.said();
        assert!(log.contains("no access"), "{log}");
        // The password must not appear in base64, either.
        for line in shown.lines().chain(log.lines()) {
            assert!(!line.contains("SECRET") && !line.contains("U0VDUkVU"), "{line}");
        }
    }
}
