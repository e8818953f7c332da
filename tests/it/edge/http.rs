//! HTTP as clients see it: connections, CORS, notifications.

use std::time::Duration;

use futures_util::future::join_all;
use holdfast::devchain::Fault;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    client::{self, Raw, Response, post},
    proxy, upstream,
};

const PAGE: &str = "https://page.example.org";

fn call(id: usize, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

// ## Connections

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let mut client = Raw::connect(proxy.address()).await;
    // The first call takes longest, and the third needs no upstream call.
    node.fail(Fault::Delay(Duration::from_millis(200))).on("eth_gasPrice").once();

    let methods = ["eth_gasPrice", "eth_blockNumber", "eth_chainId"].into_iter().cycle().take(10);
    let requests: String =
        methods.enumerate().map(|(id, method)| post(&call(id, method, json!([])).to_string())).collect();
    client.write(requests).await;
    for id in 0..10 {
        let answer = client.response().await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["id"], id);
        assert!(answer.outcome().is_ok());
    }
}

#[tokio::test]
async fn answer_does_not_wait_for_later_pipelined_ones() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let mut client = Raw::connect(proxy.address()).await;
    node.fail(Fault::Hang).on("eth_gasPrice").always();

    let requests = ["eth_chainId", "eth_gasPrice", "eth_chainId"].map(|method| post(&client::call(method)));
    client.write(requests.concat()).await;
    assert_eq!(client.response().await.status, 200);
}

#[tokio::test]
async fn many_calls_share_one_http_2_connection() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http2(&proxy);
    node.fail(Fault::Delay(Duration::from_millis(500))).on("eth_gasPrice").always();

    // There are more calls than concurrent streams, so some calls wait.
    let calls = join_all((0..200).map(|_| client.ask("eth_gasPrice", json!([])))).await;
    assert!(calls.iter().all(Result::is_ok));
    assert_eq!(proxy.metric("holdfast_connections_accepted_total").await, 1);
    assert!(node.most_at_once() > 16, "{} at once", node.most_at_once());
}

#[tokio::test]
async fn large_answers_arrive_whole() {
    let node = upstream::devchain().blocks(1, 1000).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let direct = node.answer("eth_getBlockByNumber", json!(["latest", true])).unwrap();
    assert!(direct.len() > 8 * 64 * 1024, "{} bytes", direct.len());

    for client in [client::http(&proxy), client::http2(&proxy)] {
        let answers = (0..4).map(|_| client.ask("eth_getBlockByNumber", json!(["latest", true])));
        for answer in join_all(answers).await {
            assert!(answer.unwrap().as_bytes() == direct);
        }
        let batch: Vec<_> =
            (0..4).map(|id| call(id, "eth_getBlockByNumber", json!(["latest", true]))).collect();
        let answers = client.send(json!(batch).to_string()).await.json();
        let direct: Value = serde_json::from_slice(&direct).unwrap();
        assert!((0..4).all(|id| answers[id]["id"] == id && answers[id]["result"] == direct));
    }
    // The same holds for pipelined requests.
    let mut client = Raw::connect(proxy.address()).await;
    let request = post(&call(1, "eth_getBlockByNumber", json!(["latest", true])).to_string());
    client.write(request.repeat(10)).await;
    for _ in 0..10 {
        assert!(client.response().await.outcome().unwrap().as_bytes() == direct);
    }
}

// ## Web pages

fn preflight(client: &client::Client, origin: &str) -> RequestBuilder {
    client
        .request(Method::OPTIONS)
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "content-type,x-api-key")
}

fn from_page(client: &client::Client, body: impl Into<reqwest::Body>) -> RequestBuilder {
    client.post().header("content-type", "application/json").header("origin", PAGE).body(body)
}

fn list(response: &Response, name: &str) -> Vec<String> {
    let lines = response.headers.get_all(name).iter().map(|value| value.to_str().unwrap());
    lines.flat_map(|line| line.split(',')).map(|item| item.trim().to_lowercase()).collect()
}

fn assert_readable_by_pages(response: &Response) {
    assert_eq!(response.header("access-control-allow-origin"), Some("*"), "{response:?}");
    let exposed = list(response, "access-control-expose-headers");
    for header in ["cache-status", "x-request-id", "retry-after"] {
        assert!(exposed.contains(&header.to_owned()), "{header} is not in {exposed:?}");
    }
}

#[tokio::test]
async fn any_page_gets_a_preflight_answer() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;

    for client in [client::http(&proxy), client::http2(&proxy)] {
        let answer = Response::of(preflight(&client, PAGE)).await;
        assert!(answer.status.is_success(), "{answer:?}");
        assert!(answer.body.is_empty());
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
        assert!(list(&answer, "access-control-allow-methods").contains(&"post".to_owned()));
        assert_eq!(list(&answer, "access-control-allow-headers"), ["content-type", "x-api-key"]);
        let max_age: u64 = answer.header("access-control-max-age").unwrap().parse().unwrap();
        assert!(max_age >= 600);
    }
}

#[tokio::test]
async fn pages_can_read_answers_and_errors() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).config(|config| config.http.max_batch = 2).run().await;
    let client = client::http(&proxy);

    let answer = Response::of(from_page(&client, client::call("eth_chainId"))).await;
    assert!(answer.outcome().is_ok());
    assert_readable_by_pages(&answer);

    let three = format!("[{}]", [client::call("eth_chainId").as_str(); 3].join(","));
    for body in ["nonsense".to_owned(), client::call("admin_peers"), three] {
        let answer = Response::of(from_page(&client, body)).await;
        assert!(answer.code().is_some());
        assert_readable_by_pages(&answer);
    }
    let not_json = client.post().header("content-type", "text/plain").header("origin", PAGE).body("{}");
    let answer = Response::of(not_json).await;
    assert_eq!(answer.status, 415);
    assert_readable_by_pages(&answer);

    node.fail(Fault::Status(500)).on("eth_gasPrice").once();
    let answer = Response::of(from_page(&client, client::call("eth_gasPrice"))).await;
    assert_eq!((answer.status, answer.code()), (StatusCode::BAD_GATEWAY, Some(-32010)));
    assert_readable_by_pages(&answer);
}

#[tokio::test]
async fn only_listed_pages_can_read_if_there_is_a_list() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| config.http.allowed_origins = vec![PAGE.to_owned()])
        .run()
        .await;
    let client = client::http(&proxy);

    let answer = Response::of(preflight(&client, PAGE)).await;
    assert_eq!(answer.header("access-control-allow-origin"), Some(PAGE));
    let answer = Response::of(from_page(&client, client::call("eth_chainId"))).await;
    assert_eq!(answer.header("access-control-allow-origin"), Some(PAGE));
    assert!(list(&answer, "vary").contains(&"origin".to_owned()));

    let answer = Response::of(preflight(&client, "https://other.example.org")).await;
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

#[tokio::test]
async fn a_page_may_not_sign_with_the_nodes_accounts() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| config.methods.trusted_origins = vec!["https://wallet.example.org".to_owned()])
        .run()
        .await;
    let client = client::http(&proxy);
    node.clear_calls();

    let methods = [
        "eth_sendTransaction",
        "eth_sendTransactionSync",
        "eth_sendUnsignedTransaction",
        "eth_sign",
        "eth_signTransaction",
        "eth_signTypedData_v4",
        "eth_methodThatANodeAddsTomorrow",
    ];
    for method in methods.into_iter().chain(["eth_accounts", r"eth\u005faccounts"]) {
        for body in [client::call(method), format!("[{}]", client::call(method))] {
            let answer = Response::of(from_page(&client, body)).await;
            let refused = answer.json();
            let refused = refused.get(0).unwrap_or(&refused);
            assert_eq!(refused["error"]["code"], -32601, "{method}");
            assert_readable_by_pages(&answer);
        }
        let notification = format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#);
        assert_eq!(Response::of(from_page(&client, notification)).await.status, 204);
    }
    assert_eq!(node.calls_total(), 0);

    // Methods that cannot sign are open to every page, and a listed page may sign.
    let answer = Response::of(from_page(&client, client::call("eth_gasPrice"))).await;
    assert!(answer.outcome().is_ok());
    let trusted = client.post().header("content-type", "application/json");
    let trusted = trusted.header("origin", "https://wallet.example.org").body(client::call("eth_accounts"));
    assert_eq!(Response::of(trusted).await.outcome().unwrap(), "[]");
    // A program that sends no origin may sign, too.
    assert_eq!(client.ask("eth_accounts", json!([])).await.unwrap(), "[]");
    assert_eq!(node.count("eth_accounts"), 2);
}

#[tokio::test]
async fn every_response_forbids_content_sniffing() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    let mut responses = vec![
        client.call("eth_chainId", json!([])).await,
        client.send("nonsense").await,
        Response::of(client.request(Method::GET)).await,
        Response::of(preflight(&client, PAGE)).await,
        Response::of(client.post().header("host", "evil.example.org")).await,
    ];
    for path in ["/", "/status", "/metrics", "/nowhere"] {
        responses.push(client.get(&proxy.admin_url(path)).await);
    }
    for response in responses {
        let told = response.header("x-content-type-options");
        assert_eq!(told, Some("nosniff"), "{} {}", response.status, response.text());
    }
}

// ## Single requests

#[tokio::test]
async fn a_request_id_comes_back() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);

    for body in [client::call("eth_chainId"), "nonsense".to_owned()] {
        let request = client.post().header("content-type", "application/json");
        let answer = Response::of(request.header("x-request-id", "abc-123").body(body)).await;
        assert_eq!(answer.header("x-request-id"), Some("abc-123"));
    }
    assert_eq!(client.call("eth_chainId", json!([])).await.header("x-request-id"), None);
}

#[tokio::test]
async fn notifications_are_not_answered() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    let (raw, hash) = node.sendable(1).remove(0);
    node.clear_calls();

    let read = r#"{"jsonrpc":"2.0","method":"eth_gasPrice","params":[]}"#;
    let bad = r#"{"jsonrpc":"2.0","method":"eth_getBlockByHash","params":{}}"#;
    for body in [read.to_owned(), bad.to_owned(), format!("[{read},{read},{bad}]")] {
        let answer = client.send(body).await;
        assert_eq!(answer.status, 204);
        assert!(answer.body.is_empty());
    }
    // The proxy does not forward reads as notifications.
    assert_eq!(node.calls_total(), 0);

    // The proxy forwards a write as a notification.
    let write = json!({ "jsonrpc": "2.0", "method": "eth_sendRawTransaction", "params": [raw] });
    let answer = client.send(write.to_string()).await;
    assert_eq!((answer.status, answer.body.len()), (StatusCode::NO_CONTENT, 0));
    assert_eq!(node.mempool().iter().map(|hash| format!("{hash:#x}")).collect::<Vec<_>>(), [hash]);
}

#[tokio::test]
async fn browser_is_pointed_to_the_status_page() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);

    let get = client.request(Method::GET).header("accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8");
    let answer = Response::of(get).await;
    assert_eq!(answer.status, 200);
    assert!(answer.header("content-type").unwrap().starts_with("text/plain"));
    assert!(answer.text().contains(&proxy.admin_url("/")), "{}", answer.text());
    // A health check, which sends no `accept`, also gets a text with status 200.
    let answer = Response::of(client.request(Method::GET)).await;
    assert_eq!((answer.status.as_u16(), answer.text().contains("JSON-RPC endpoint")), (200, true));
}
