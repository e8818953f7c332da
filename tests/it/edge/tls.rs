//! TLS: handshakes, plain HTTP on a TLS port, and replaced certificates.

use std::{fs, path::Path, time::Duration};

use futures_util::future::join_all;
use holdfast::devchain::Fault;
use rustix::process::Signal;
use serde_json::json;
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    time::{self, Instant},
};

use crate::support::{
    authority::{Authority, Pair},
    client::{self, PATIENCE, Raw, post, post_head},
    eventually,
    process::{self, Process},
    program::{file, holdfast, output, success, text},
    proxy, upstream,
};

/// A short time-out for tests. No test must be faster than this.
const SHORT: Duration = Duration::from_millis(300);

/// The start of a handshake: a record header that announces more bytes than follow.
const HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";

fn failed(reason: &str) -> String {
    format!(r#"holdfast_tls_handshakes_failed_total{{reason="{reason}"}}"#)
}

fn with_pair(node: &upstream::Node, pair: &Pair) -> process::Builder {
    process::serve(node)
        .set("TLS__CERT", pair.cert.to_str().unwrap())
        .set("TLS__KEY", pair.key.to_str().unwrap())
}

async fn asks_twice<S>(client: &mut Raw<S>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    for _ in 0..2 {
        assert!(client.call("eth_gasPrice").await.outcome().is_ok());
    }
}

// ## Serving over TLS

#[tokio::test]
async fn http_is_served_in_both_versions() {
    let node = upstream::devchain().run().await;
    let authority = Authority::new();
    let proxy = proxy::new().upstream(&node).tls(&authority.pair()).run().await;
    for (client, version) in [
        (client::https(proxy.address(), &authority), http::Version::HTTP_2),
        (client::https1(proxy.address(), &authority), http::Version::HTTP_11),
    ] {
        let request = client.post().header("content-type", "application/json");
        let answer = request.body(client::call("eth_gasPrice")).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.version()), (200, version));
        assert!(client.ask("eth_chainId", json!([])).await.is_ok());
    }
    // The server chooses the better of the offered protocols, and HTTP/1.1 without an offer.
    for (offered, chosen) in
        [(&["http/1.1", "h2"][..], Some(&b"h2"[..])), (&["http/1.1"], Some(b"http/1.1")), (&[], None)]
    {
        let client = authority.connect(proxy.address(), offered).await.unwrap();
        assert_eq!(client.0.get_ref().1.alpn_protocol(), chosen);
    }
    asks_twice(&mut authority.connect(proxy.address(), &[]).await.unwrap()).await;
    // The admin listener does not use TLS by default.
    assert_eq!(proxy.metric(&failed("plain_http")).await, 0);
}

#[tokio::test]
async fn admin_listener_can_use_tls() {
    let node = upstream::devchain().run().await;
    let authority = Authority::new();
    let proxy = proxy::new()
        .upstream(&node)
        .tls(&authority.pair())
        .config(|config| config.tls.admin = true)
        .run()
        .await;
    let admin = proxy.app.admin_address();
    let client = client::https(admin, &authority);
    assert_eq!(client.get(&format!("https://{admin}/ready")).await.status, 200);

    success(|| holdfast(&["health", "--tls", "--admin", &admin.to_string()])).await;
    let unwell = output(holdfast(&["health", "--admin", &admin.to_string()])).await;
    assert!(!unwell.status.success() && text(&unwell.stdout).contains("this port requires TLS"));
}

#[tokio::test]
async fn client_with_a_refused_body_receives_the_refusal() {
    let node = upstream::devchain().run().await;
    let authority = Authority::new();
    let proxy = proxy::new().upstream(&node).tls(&authority.pair()).run().await;
    let mut client = authority.connect(proxy.address(), &[]).await.unwrap();
    let length = 32 << 20;
    client.write(post_head(length)).await;
    let (mut reader, mut writer) = tokio::io::split(client.0);
    let sending = tokio::spawn(async move {
        let piece = vec![b'x'; 64 * 1024];
        for _ in 0..length / piece.len() {
            if writer.write_all(&piece).await.is_err() {
                break;
            }
        }
    });
    let mut head = vec![0; 12];
    time::timeout(PATIENCE, tokio::io::AsyncReadExt::read_exact(&mut reader, &mut head))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(head, b"HTTP/1.1 413");
    drop(reader);
    sending.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_timeouts_apply_over_tls() {
    let node = upstream::devchain().blocks(1, 1000).run().await;
    let authority = Authority::new();
    let proxy = proxy::new()
        .upstream(&node)
        .tls(&authority.pair())
        .config(|config| {
            config.connections.stall_timeout = SHORT;
            // Long enough not to expire between two calls.
            config.connections.idle_timeout = SHORT * 6;
        })
        .run()
        .await;
    let mut idle = authority.connect(proxy.address(), &[]).await.unwrap();
    asks_twice(&mut idle).await;
    assert_eq!(idle.read_to_end().await, "");
    assert_eq!(proxy.metric(&proxy::closed("idle")).await, 1);

    let big = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["latest",true]}"#;
    let mut greedy = authority.connect(proxy.address(), &[]).await.unwrap();
    greedy.write(post(big).repeat(300)).await;
    let stalled = proxy::closed("stalled");
    eventually("the greedy one is closed", async || proxy.metric(&stalled).await == 1).await;
    asks_twice(&mut authority.connect(proxy.address(), &[]).await.unwrap()).await;
}

#[tokio::test]
async fn tls_connections_drain_in_order() {
    let node = upstream::devchain().run().await;
    let authority = Authority::new();
    let proxy = proxy::new()
        .upstream(&node)
        .tls(&authority.pair())
        .config(|config| config.connections.drain_timeout = PATIENCE * 2)
        .run()
        .await;
    let address = proxy.address();
    node.fail(Fault::Delay(SHORT)).on("eth_gasPrice").always();
    let mut waiting = authority.connect(address, &[]).await.unwrap();
    waiting.write(post(&client::call("eth_gasPrice"))).await;
    eventually("the call arrives", async || node.count("eth_gasPrice") == 1).await;
    // A connection with an unfinished handshake, for which the shutdown must not wait.
    let mut shaking = Raw::connect(address).await;
    shaking.write(HELLO).await;
    let mut idle = authority.connect(address, &[]).await.unwrap();
    assert_eq!(idle.call("eth_chainId").await.status, 200);

    let begun = Instant::now();
    let stopping = tokio::spawn(proxy.app.stop());
    assert!(waiting.response().await.outcome().is_ok());
    // The server closes the connection cleanly, with a TLS `close_notify`.
    let mut rest = Vec::new();
    assert!(matches!(tokio::io::AsyncReadExt::read_to_end(&mut idle.0, &mut rest).await, Ok(0)));
    stopping.await.unwrap();
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    shaking.read_to_end().await;
}

// ## Handshakes that fail

#[tokio::test]
async fn unfinished_handshake_times_out() {
    let node = upstream::devchain().run().await;
    let authority = Authority::new();
    let proxy = proxy::new()
        .upstream(&node)
        .tls(&authority.pair())
        .config(|config| {
            // Long enough for clients that are not slow on purpose.
            config.connections.first_byte_timeout = SHORT * 5;
            config.connections.head_timeout = SHORT * 5;
        })
        .run()
        .await;

    let begun = Instant::now();
    let mut silent = Raw::connect(proxy.address()).await;
    let mut slow = Vec::new();
    for _ in 0..50 {
        let mut client = Raw::connect(proxy.address()).await;
        client.write(HELLO).await;
        slow.push(client);
    }
    // Other clients do not wait for the unfinished handshakes.
    asks_twice(&mut authority.connect(proxy.address(), &[]).await.unwrap()).await;

    assert_eq!(silent.read_to_end().await, "");
    assert!(begun.elapsed() >= SHORT * 5);
    join_all(slow.iter_mut().map(Raw::read_to_end)).await;
    let dribble = async {
        let mut client = Raw::connect(proxy.address()).await;
        client.write(HELLO).await;
        while client.0.write_u8(0).await.is_ok() {
            time::sleep(Duration::from_millis(20)).await;
        }
    };
    time::timeout(PATIENCE, dribble).await.expect("the server closes the connection");
    assert_eq!(proxy.metric(&proxy::closed("first_byte")).await, 1);
    assert!(proxy.metric(&proxy::closed("head")).await >= 51);
    assert_eq!(proxy.metric(&failed("unfinished")).await, 52);

    // A finished handshake does not excuse a missing request head.
    let mut client = authority.connect(proxy.address(), &[]).await.unwrap();
    client.write("POST / HTTP/1.1\r\n").await;
    client.read_to_end().await;
}

#[tokio::test]
async fn plain_http_on_a_tls_port_gets_an_explanation() {
    let node = upstream::devchain().run().await;
    let authority = Authority::new();
    let proxy = proxy::new().upstream(&node).tls(&authority.pair()).run().await;
    let answer = client::http(&proxy).call("eth_chainId", json!([])).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("retry with https"), "{}", answer.text());
    // A large request gets the same answer. HTTP/2 without TLS fails.
    let mut client = Raw::connect(proxy.address()).await;
    client.write(post(&"x".repeat(1 << 20))).await;
    assert_eq!(client.response().await.status, 400);
    client.0.shutdown().await.unwrap();
    client.read_to_end().await;
    let http2 = client::http2(&proxy).post().body("x").send();
    assert!(time::timeout(PATIENCE, http2).await.unwrap().is_err());
    // The server counts the failure when the connection ends, possibly after the client has its answer.
    eventually("all three are counted", async || proxy.metric(&failed("plain_http")).await == 3).await;
    assert_eq!(node.count("eth_chainId"), 1, "the proxy asks only at its start");
}

#[tokio::test]
async fn failures_are_counted_by_reason_and_not_logged() {
    let node = upstream::devchain().run().await;
    let (authority, stranger) = (Authority::new(), Authority::new());
    let process = with_pair(&node, &authority.pair()).run().await;
    let address = process.address();
    for _ in 0..3 {
        let mut client = Raw::connect(address).await;
        client.write(b"\x00\x01\x02\x03\x04\x05\x06\x07\x08").await;
        client.read_to_end().await;
        assert!(stranger.connect(address, &[]).await.is_err());
        assert!(authority.connect(address, &["spdy/3"]).await.is_err());
        let mut client = Raw::connect(address).await;
        client.write(HELLO).await;
        drop(client);
    }
    for reason in ["not_tls", "declined", "incompatible", "lost"] {
        eventually(reason, async || process.metric(&failed(reason)).await == 3).await;
    }
    assert!(!process.said().contains("TLS handshake failed"), "{}", process.said());
}

// ## The files

#[tokio::test]
async fn bad_tls_file_at_start_is_named_with_a_hint() {
    let node = upstream::devchain().run().await;
    let authority = Authority::new();
    let (pair, other) = (authority.pair(), authority.pair());
    let secret: String = fs::read_to_string(&pair.key).unwrap().lines().nth(1).unwrap().to_owned();
    let cut = file("cut.pem", &format!("-----BEGIN PRIVATE KEY-----\n{secret}\n"));
    let odd =
        file("odd.pem", &format!("-----BEGIN PRIVATE KEY-----\n{secret}!\n-----END PRIVATE KEY-----\n"));
    let short =
        file("short.pem", &format!("-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----\n"));
    let missing = Path::new("no/such.pem");
    for (cert, key, said) in [
        (missing, &*pair.key, "tls.cert: cannot read no/such.pem: "),
        (&*pair.cert, missing, "tls.key: cannot read no/such.pem: "),
        (&pair.key, &pair.key, "tls.cert: there is no certificate in "),
        (&pair.cert, &pair.cert, "tls.key: there is no private key in "),
        (&pair.cert, &cut, "tls.key: there is no private key in "),
        (&pair.cert, &odd, "tls.key: there is no private key in "),
        (&pair.cert, &short, "tls.key: there is no private key in "),
        (&pair.cert, &other.key, "tls.key: the key in "),
    ] {
        let mut command = holdfast(&["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.args(["--upstream", &node.url()]);
        command.env("HOLDFAST_TLS__CERT", cert).env("HOLDFAST_TLS__KEY", key);
        let ran = output(command).await;
        let heard = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(64), "{heard}");
        assert!(heard.contains(said) && heard.contains("PEM") | heard.contains("pair"), "{heard}");
        assert!(!heard.contains(&secret[8..]), "{heard}");
    }
}

async fn shown(process: &Process, authority: &Authority) -> Vec<u8> {
    authority.connect(process.address(), &[]).await.unwrap().certificate()
}

#[tokio::test]
async fn renewed_certificate_is_used_after_sighup() {
    let node = upstream::devchain().run().await;
    let authority = Authority::new();
    let pair = authority.pair();
    let process = with_pair(&node, &pair).run().await;
    let mut kept = authority.connect(process.address(), &[]).await.unwrap();
    let http2 = client::https(process.address(), &authority);
    asks_twice(&mut kept).await;
    assert!(http2.ask("eth_gasPrice", json!([])).await.is_ok());
    let before = pair.certificate();
    assert_eq!(shown(&process, &authority).await, before);

    authority.renew(&pair);
    process.signal(Signal::HUP);
    process.line("new_certificate=true").await;
    assert_ne!(pair.certificate(), before);
    assert_eq!(shown(&process, &authority).await, pair.certificate());
    asks_twice(&mut kept).await;
    assert_eq!(kept.certificate(), before);
    assert!(http2.ask("eth_gasPrice", json!([])).await.is_ok());
    // Four connections: the reload closed neither `kept` nor `http2`.
    assert_eq!(process.metric("holdfast_connections_accepted_total").await, 4);
}

#[tokio::test]
async fn bad_certificate_at_sighup_keeps_the_old_one() {
    let node = upstream::devchain().run().await;
    let authority = Authority::new();
    let (pair, other) = (authority.pair(), authority.pair());
    let mut process = with_pair(&node, &pair).run().await;
    let mut kept = authority.connect(process.address(), &[]).await.unwrap();
    let before = pair.certificate();
    let secret = fs::read_to_string(&pair.key).unwrap();

    fs::write(&pair.cert, "nothing of the kind").unwrap();
    process.signal(Signal::HUP);
    let refusal = process.line("there is no certificate in").await;
    assert!(refusal.contains("refused") && refusal.contains("tls.cert"), "{refusal}");
    fs::copy(&other.cert, &pair.cert).unwrap();
    process.signal(Signal::HUP);
    process.line("does not match the certificate").await;
    fs::remove_file(&pair.key).unwrap();
    process.signal(Signal::HUP);
    process.line("tls.key: cannot read").await;
    assert_eq!(shown(&process, &authority).await, before);
    asks_twice(&mut kept).await;
    assert_eq!(process.metric(r#"holdfast_config_reloads_total{outcome="refused"}"#).await, 3);

    fs::copy(&other.key, &pair.key).unwrap();
    process.signal(Signal::HUP);
    process.line("new_certificate=true").await;
    assert_eq!(shown(&process, &authority).await, other.certificate());
    assert!(process.is_running());
    for line in secret.lines().filter(|line| !line.starts_with('-')) {
        assert!(!process.said().contains(line));
    }
}

#[tokio::test]
async fn tls_is_not_switched_on_while_running() {
    let node = upstream::devchain().run().await;
    let pair = Authority::new().pair();
    let path = file("holdfast.toml", "");
    let process = process::serve(&node).file(&path).run().await;
    fs::write(&path, format!("[tls]\ncert = {:?}\nkey = {:?}\n", pair.cert, pair.key)).unwrap();
    process.signal(Signal::HUP);
    let warned = process.line("take effect only after a restart").await;
    assert!(warned.contains("tls.cert, tls.key"), "{warned}");
    assert!(process.client().ask("eth_gasPrice", json!([])).await.is_ok());
    drop(TcpStream::connect(process.address()).await.unwrap());
}
