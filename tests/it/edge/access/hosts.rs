//! Hosts and origins: host names that the listeners serve, and web pages that may read answers.

use reqwest::Method;

use super::{KEY, chain_id, key, refused, status};
use crate::support::{
    client::{self, Raw, Response},
    proxy, upstream,
};

#[tokio::test]
async fn loopback_listener_refuses_other_host_names() {
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
    // The proxy also checks the host in the request target, and every repeated `host` header.
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
        for (authority, served) in [
            ("localhost:1", true),
            ("127.0.0.1", true),
            ("[::1]:8555", true),
            ("rebound.example.org", false),
            ("rebound.example.org:8555", false),
        ] {
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let (sender, connection) = h2::client::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            let method = if path == "/" { Method::POST } else { Method::GET };
            let request = ::http::Request::builder()
                .method(method)
                .uri(format!("http://{authority}{path}"))
                .header("content-type", "application/json")
                .body(())
                .unwrap();
            let (response, mut body) = sender.ready().await.unwrap().send_request(request, false).unwrap();
            body.send_data(client::call("eth_chainId").into(), true).unwrap();
            let expected = if served { 200 } else { 403 };
            assert_eq!(response.await.unwrap().status(), expected, "{authority}{path}");
        }
    }
}

#[tokio::test]
async fn public_listener_checks_hosts_only_if_some_are_listed() {
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

#[tokio::test]
async fn key_does_not_admit_other_origins() {
    let node = upstream::devchain().run().await;
    let page = "https://page.example.org";
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| {
            config.http.allowed_origins = vec![page.to_owned()];
            config.http.keys = vec![key("page", KEY)];
        })
        .run()
        .await;
    let client = client::at(&format!("{}/k/{KEY}", proxy.url()));
    for (origin, can_read) in [(page, Some(page)), ("https://other.example.org", None)] {
        let answer = Response::of(chain_id(client.post()).header("origin", origin)).await;
        assert_eq!(answer.header("access-control-allow-origin"), can_read);
        let sign = client.post().header("content-type", "application/json").header("origin", origin);
        let answer = Response::of(sign.body(client::call("eth_accounts"))).await;
        assert_eq!(answer.code(), Some(-32601));
    }
}

#[tokio::test]
async fn wildcard_host_does_not_open_the_admin_listener() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| config.http.allowed_hosts = vec!["*".parse().unwrap()])
        .run()
        .await;
    let rebound = "rebound.example.org";
    assert_eq!(status(chain_id(client::http(&proxy).post()).header("host", rebound)).await, 200);
    let ready = client::at(&proxy.admin_url("/ready"));
    assert_eq!(status(ready.request(Method::GET).header("host", rebound)).await, 403);
    assert_eq!(status(ready.request(Method::GET)).await, 200);
}
