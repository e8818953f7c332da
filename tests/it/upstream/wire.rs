//! Tests the upstream client over real connections: TLS, HTTP/2, compressed answers, redirects.

use std::{collections::BTreeMap, io::Write, time::Duration};

use bytes::Bytes;
use bytesize::ByteSize;
use flate2::{Compression, write::GzEncoder};
use futures_util::future::join_all;
use holdfast::{devchain::Fault, secret::Secret, upstream::EndpointConfig};
use http::{Response, Version, header};
use serde_json::{Value, json};
use tokio::time;

use crate::support::{
    client::{self, Client},
    eventually, process,
    program::{holdfast, output, text},
    proxy,
    server::{self, Authority, Server},
    upstream,
};

/// The address in the upstream's URL, which its certificate must name.
const HOST: &str = "127.0.0.1";

/// An address on which nothing listens.
const NOWHERE: &str = "http://127.0.0.1:1";

/// Every environment variable that can name a proxy.
const PROXY_VARIABLES: [&str; 6] =
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

/// Makes a call that only the node can answer, and that shares no fetch with another call.
async fn balance(client: &Client, of: usize) -> client::Response {
    client.call("eth_getBalance", json!([format!("0x{of:040x}"), "latest"])).await
}

fn is_upstream_failure(response: &client::Response, message: &str) {
    assert_eq!((response.status.as_u16(), response.code()), (502, Some(-32010)), "{}", response.text());
    assert!(response.message().contains(message), "{message:?} is not in {}", response.text());
}

// ## TLS

#[tokio::test]
async fn http2_is_used_if_offered_and_http1_otherwise() {
    let chain = upstream::devchain().blocks(2, 3).chain();
    let authority = Authority::new();
    for (offered, version) in [
        (&["h2", "http/1.1"][..], Version::HTTP_2),
        (&["http/1.1", "h2"], Version::HTTP_11),
        (&["h2"], Version::HTTP_2),
        (&["http/1.1"], Version::HTTP_11),
        (&[], Version::HTTP_11),
    ] {
        let node = server::node(&chain).tls(&authority, HOST, offered).run().await;
        let process = process::serve_url(&node.url()).env("SSL_CERT_FILE", authority.file()).run().await;
        let client = process.client();
        let before = node.seen().connections;
        let answers = join_all((0..20).map(|of| balance(&client, of))).await;
        assert!(answers.iter().all(|answer| answer.outcome().is_ok()), "{offered:?}: {answers:?}");

        let seen = node.seen();
        assert!(seen.requests.len() >= 20);
        for request in &seen.requests {
            assert_eq!(request.version, version, "{offered:?}");
        }
        if version == Version::HTTP_2 {
            // Calls share the HTTP/2 connection.
            assert_eq!(seen.connections, before, "{offered:?}");
        }
    }
}

#[tokio::test]
async fn untrusted_certificate_is_refused_and_named() {
    let chain = upstream::devchain().chain();
    let (trusted, stranger) = (Authority::new(), Authority::new());
    // The first certificate is of an unknown authority, the second is for another host.
    for (authority, name) in [(&stranger, HOST), (&trusted, "node.example")] {
        let node = server::node(&chain).tls(authority, name, &["h2", "http/1.1"]).run().await;
        let process = process::serve_url(&node.url())
            .env("SSL_CERT_FILE", trusted.file())
            .though_not_ready()
            .run()
            .await;
        let client = process.client();
        is_upstream_failure(&balance(&client, 1).await, "cannot connect: invalid peer certificate");

        let ready = client.get(&format!("{}/ready", process.admin_url())).await;
        assert_eq!(ready.status, 503);
        assert!(ready.text().contains("invalid peer certificate"), "{}", ready.text());
        process.says("invalid peer certificate").await;
        eventually("the handshake is given up", async || node.seen().refused_handshakes > 0).await;
        assert!(node.seen().requests.is_empty());
    }
}

#[tokio::test]
async fn missing_root_certificates_disable_only_https() {
    let none = [("SSL_CERT_FILE", "/dev/null"), ("SSL_CERT_DIR", "/dev/null")];
    let node = upstream::devchain().run().await;
    let builder = process::serve(&node);
    let process = none.iter().fold(builder, |builder, (name, value)| builder.env(name, value)).run().await;
    assert!(balance(&process.client(), 1).await.outcome().is_ok());

    let mut https = holdfast(&["serve", "--listen", "127.0.0.1:0", "--upstream", "https://127.0.0.1:1"]);
    https.envs(none);
    let ran = output(https).await;
    assert_eq!(ran.status.code(), Some(64));
    let said = text(&ran.stderr);
    assert!(
        said.contains("cannot set up the HTTP client: ") && said.contains("No CA certificates"),
        "{said}"
    );
}

// ## Compressed answers

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn zstd(body: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(body, 0).unwrap()
}

type Pack = fn(&[u8]) -> Vec<u8>;

const PACKED: [(&str, Pack); 2] = [("gzip", gzip), ("zstd", zstd)];

fn packed(coding: &'static str, body: Vec<u8>) -> Response<Bytes> {
    let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
    response.header(header::CONTENT_ENCODING, coding).body(body.into()).unwrap()
}

#[tokio::test]
async fn compressed_answers_are_decompressed() {
    let chain = upstream::devchain().blocks(1, 50).chain();
    for (coding, pack) in PACKED {
        let node =
            server::node(&chain).changing(move |_, answer| packed(coding, pack(answer.body()))).run().await;
        let proxy = proxy::new().upstream_url(&node.url()).run().await;
        let client = client::http(&proxy);
        let block = client.ask("eth_getBlockByNumber", json!(["0x1", true])).await.unwrap();
        assert_eq!(block, chain.answer("eth_getBlockByNumber", ("0x1", true)).unwrap(), "{coding}");

        for request in &node.seen().requests {
            let offered = request.headers["accept-encoding"].to_str().unwrap();
            assert!(offered.contains(coding), "{coding} is not in {offered}");
        }
    }
}

#[tokio::test]
async fn decompression_stops_at_the_answer_limit() {
    let chain = upstream::devchain().chain();
    let limit = ByteSize::mib(1);
    for (coding, pack) in PACKED {
        let bomb = pack(&vec![b' '; 64 << 20]);
        assert!(bomb.len() < 128 << 10, "{coding}: {}", bomb.len());
        let node = server::node(&chain)
            .changing(move |request, answer| match request.contains("eth_getBalance") {
                true => packed(coding, bomb.clone()),
                false => answer,
            })
            .run()
            .await;
        let proxy = proxy::new()
            .upstream_url(&node.url())
            .config(|config| config.upstream.max_answer = limit)
            .run()
            .await;
        let client = client::http(&proxy);
        is_upstream_failure(&balance(&client, 1).await, "larger than 1048576 bytes");
        assert!(client.ask("eth_gasPrice", json!([])).await.is_ok(), "{coding}");
    }
}

#[tokio::test]
async fn corrupt_compressed_answer_is_a_failure() {
    let chain = upstream::devchain().blocks(1, 5).chain();
    let cut = |mut packed: Vec<u8>| packed.drain(..packed.len() / 2).collect();
    for (coding, pack) in PACKED {
        for broken in [b"not packed at all".to_vec(), cut(pack(&vec![b'x'; 4096]))] {
            let node = server::node(&chain)
                .changing(move |request, answer| match request.contains("eth_getBalance") {
                    true => packed(coding, broken.clone()),
                    false => answer,
                })
                .run()
                .await;
            let proxy = proxy::new().upstream_url(&node.url()).run().await;
            let client = client::http(&proxy);
            is_upstream_failure(&balance(&client, 1).await, "cannot decompress the answer");
            assert!(client.ask("eth_gasPrice", json!([])).await.is_ok(), "{coding}");
        }
    }
}

// ## Redirects

#[tokio::test]
async fn a_redirect_is_not_followed_and_takes_no_key_along() {
    let chain = upstream::devchain().chain();
    let elsewhere = server::node(&chain).run().await;
    for status in [301, 302, 303, 307, 308] {
        let location = elsewhere.url();
        let node = server::node(&chain)
            .changing(move |request, mut answer| {
                if request.contains("eth_getBalance") {
                    *answer.status_mut() = http::StatusCode::from_u16(status).unwrap();
                    answer.headers_mut().insert(header::LOCATION, location.parse().unwrap());
                }
                answer
            })
            .run()
            .await;
        let endpoint = EndpointConfig {
            headers: BTreeMap::from([("authorization".to_owned(), Secret::Plain("Bearer KEY".to_owned()))]),
            ..EndpointConfig::at(node.url())
        };
        let proxy = proxy::new().config(|config| config.upstream.endpoints = vec![endpoint]).run().await;
        let answer = balance(&client::http(&proxy), 1).await;
        is_upstream_failure(&answer, &format!("HTTP status {status}"));

        let seen = node.seen();
        assert_eq!(seen.calls("eth_getBalance").count(), 1, "{status}");
        assert!(seen.requests.iter().all(|request| request.headers["authorization"] == "Bearer KEY"));
        assert_eq!(elsewhere.seen().connections, 0, "{status}");
    }
}

// ## Connections

/// Starts a proxy in front of this server, with a client.
async fn in_front_of(node: &Server, max_in_flight: usize) -> (proxy::Proxy, Client) {
    let proxy = proxy::new()
        .upstream_url(&node.url())
        .config(|config| config.upstream.max_in_flight = max_in_flight)
        .run()
        .await;
    let client = client::http(&proxy);
    (proxy, client)
}

#[tokio::test]
async fn connection_is_reused() {
    let chain = upstream::devchain().chain();
    let node = server::node(&chain).run().await;
    let (_proxy, client) = in_front_of(&node, 256).await;
    let before = node.seen().connections;
    for of in 0..50 {
        assert!(balance(&client, of).await.outcome().is_ok());
    }
    assert_eq!(node.seen().connections, before);
    assert_eq!(node.seen().calls("eth_getBalance").count(), 50);
}

#[tokio::test]
async fn connections_are_bounded_like_calls_in_flight() {
    let chain = upstream::devchain().chain();
    chain.fail(Fault::Delay(Duration::from_millis(10))).on("eth_getBalance").always();
    let node = server::node(&chain).run().await;
    let most = 4;
    let (_proxy, client) = in_front_of(&node, most).await;
    let answers = join_all((0..100).map(|of| balance(&client, of))).await;
    assert!(answers.iter().all(|answer| answer.outcome().is_ok()), "{answers:?}");
    let seen = node.seen();
    // If a call gets a released connection while it opens a new one, the new connection stays unused.
    assert!(seen.most_open <= 2 * most, "{} at once, {} in all", seen.most_open, seen.connections);
}

#[tokio::test]
async fn connection_closed_by_the_node_fails_no_call() {
    let chain = upstream::devchain().chain();
    let authority = Authority::new();
    for protocols in [&[][..], &["http/1.1"], &["h2"]] {
        let node = server::node(&chain);
        let node =
            if protocols.is_empty() { node } else { node.tls(&authority, HOST, protocols) }.run().await;
        let process = process::serve_url(&node.url()).env("SSL_CERT_FILE", authority.file()).run().await;
        let client = process.client();
        for of in 0..20 {
            node.hang_up();
            eventually("all are closed", async || node.seen().open == 0).await;
            // Gives the close of the connection time to arrive.
            time::sleep(Duration::from_millis(20)).await;
            eventually("the proxy has noticed the close", async || !node.is_half_closed()).await;
            let answer = balance(&client, of).await;
            assert!(answer.outcome().is_ok(), "{protocols:?}: {}", answer.text());
        }
        assert!(node.seen().connections > 20);
    }
}

#[tokio::test]
async fn silent_connection_is_abandoned() {
    let chain = upstream::devchain().chain();
    let authority = Authority::new();
    for protocol in ["h2", "http/1.1"] {
        let node = server::node(&chain).tls(&authority, HOST, &[protocol]).run().await;
        let process = process::serve_url(&node.url())
            .env("SSL_CERT_FILE", authority.file())
            .set("UPSTREAM__TIMEOUT", "4s")
            .run()
            .await;
        let client = process.client();
        assert!(balance(&client, 0).await.outcome().is_ok());
        let silent = node.seen().open;
        node.fall_silent();
        // At first a silent connection looks like a slow node, so each silent connection fails one call, but no more.
        let lost = join_all((1..=silent).map(|of| balance(&client, of))).await;
        let told = |answer: &client::Response| matches!(answer.code(), Some(-32010 | -32011));
        assert!(lost.iter().all(told), "{protocol}: {lost:?}");
        let answer = balance(&client, 0).await;
        assert!(answer.outcome().is_ok(), "{protocol}: {}", answer.text());
    }
}

// ## Proxies

#[tokio::test]
async fn local_node_is_reached_without_the_environments_proxy() {
    let chain = upstream::devchain().chain();
    let authority = Authority::new();
    let through = |builder: process::Builder, proxy: &str| {
        let builder = builder.env("NO_PROXY", "").env("no_proxy", "");
        PROXY_VARIABLES.iter().fold(builder, |builder, name| builder.env(name, proxy))
    };
    for node in [server::node(&chain), server::node(&chain).tls(&authority, HOST, &["h2"])] {
        let node = node.run().await;
        let builder = process::serve_url(&node.url()).env("SSL_CERT_FILE", authority.file());
        let process = through(builder, NOWHERE).run().await;
        assert!(balance(&process.client(), 1).await.outcome().is_ok());
    }

    // Calls to a node elsewhere go through the environment's proxy. Here, that proxy itself answers.
    let middle = server::node(&chain).run().await;
    let process = through(process::serve_url("http://node.invalid:8545"), &middle.url()).run().await;
    assert!(balance(&process.client(), 1).await.outcome().is_ok());
    let hosts: Vec<Value> = middle
        .seen()
        .requests
        .iter()
        .map(|request| request.headers["host"].to_str().unwrap().into())
        .collect();
    assert!(hosts.iter().all(|host| host == "node.invalid:8545"), "{hosts:?}");
}
