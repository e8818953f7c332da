//! Start-up without an upstream, and identification of its chain.

use std::time::Duration;

use holdfast::devchain::Fault;
use serde_json::json;

use crate::support::{
    client::{self, Client},
    eventually, process,
    program::{Program, holdfast},
    proxy::{self, Proxy},
    upstream,
};

async fn readiness(client: &Client, proxy: &Proxy) -> (u16, String) {
    let response = client.get(&proxy.admin_url("/ready")).await;
    (response.status.as_u16(), response.text().to_owned())
}

/// Returns an address on which nothing listens yet.
async fn free_address() -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind((std::net::IpAddr::from(upstream::NODES), 0)).await.unwrap();
    listener.local_addr().unwrap()
}

#[tokio::test]
async fn program_starts_without_upstream_and_becomes_ready() {
    let address = free_address().await;
    let proxy = proxy::new().upstream_url(&format!("http://{address}")).though_not_ready().run().await;
    let client = client::http(&proxy);

    eventually("a reason", || async { readiness(&client, &proxy).await.1.contains("refused") }).await;
    assert_eq!(readiness(&client, &proxy).await.0, 503);
    assert_eq!(client.get(&proxy.admin_url("/live")).await.status, 200);
    let early = client.call("eth_chainId", json!([])).await;
    assert_eq!((early.status.as_u16(), early.code()), (502, Some(-32010)), "{}", early.text());

    let node = upstream::devchain().blocks(1, 1).run_on(address).await;
    eventually("readiness", || async { readiness(&client, &proxy).await.0 == 200 }).await;
    let status = client.get(&proxy.admin_url("/status")).await.json();
    assert_eq!(status["chain"]["id"], node.config().chain_id);
    assert_eq!(status["chain"]["genesis"], format!("{:#x}", node.hash_at(0).unwrap()));
    assert!(client.ask("eth_gasPrice", json!([])).await.is_ok());
}

#[tokio::test]
async fn call_does_not_wait_for_the_next_scheduled_attempt() {
    let address = free_address().await;
    let proxy = proxy::new().upstream_url(&format!("http://{address}")).though_not_ready().run().await;
    let client = client::http(&proxy);
    // The wait is long enough for the backoff to grow.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let _node = upstream::devchain().run_on(address).await;
    assert!(client.ask("eth_gasPrice", json!([])).await.is_ok());
}

#[tokio::test]
async fn refusing_node_is_quoted() {
    let node = upstream::devchain().run().await;
    let refusal = Fault::Error { code: -32002, message: "invalid\nproject id".to_owned() };
    node.fail(refusal).any().always();
    let proxy = proxy::new().upstream(&node).though_not_ready().run().await;
    let client = client::http(&proxy);

    let said = "the node answers with an error: invalid project id";
    eventually("the reason", || async { readiness(&client, &proxy).await.1.contains(said) }).await;
    let response = client.call("eth_gasPrice", json!([])).await;
    assert_eq!((response.status.as_u16(), response.code()), (502, Some(-32010)));
    assert!(response.message().contains(said), "{}", response.text());
}

#[tokio::test]
async fn chain_other_than_the_pinned_one_is_never_used() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| config.chain_id = Some(1))
        .though_not_ready()
        .run()
        .await;
    let client = client::http(&proxy);

    let response = client.call("eth_getBlockByNumber", json!(["0x0", false])).await;
    assert_eq!((response.status.as_u16(), response.code()), (502, Some(-32010)));
    assert_eq!(response.message(), format!("the upstream serves chain {}, not 1", node.config().chain_id));
    assert_eq!(client.call("eth_chainId", json!([])).await.code(), Some(-32010));
    let (status, reason) = readiness(&client, &proxy).await;
    assert_eq!(status, 503);
    assert!(reason.contains("not 1"), "{reason}");
    // Only identification calls reached the node.
    assert_eq!(node.count("eth_gasPrice"), 0);
    let asked: Vec<_> = node.calls().into_iter().map(|call| call.method).collect();
    assert!(
        asked.iter().all(|method| {
            ["eth_chainId", "net_version", "eth_getBlockByNumber"].contains(&method.as_str())
        })
    );
    let genesis = |call: &holdfast::devchain::RecordedCall| call.params == r#"["0x0",false]"#;
    assert!(node.calls().iter().filter(|call| call.method == "eth_getBlockByNumber").all(genesis));
}

#[tokio::test]
async fn node_must_serve_the_same_chain_after_reconnecting() {
    let node = upstream::devchain().run().await;
    let address = node.address();
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    let chain_id = client.ask("eth_chainId", json!([])).await.unwrap();

    drop(node);
    assert_eq!(client.call("eth_gasPrice", json!([])).await.code(), Some(-32010));
    let stranger = upstream::devchain().config(|config| config.chain_id = 5).run_on(address).await;
    let response = client.call("eth_gasPrice", json!([])).await;
    assert!(response.message().contains("serves chain 5"), "{}", response.text());
    assert_eq!(stranger.count("eth_gasPrice"), 0);
    // The known chain id has not changed.
    assert_eq!(client.ask("eth_chainId", json!([])).await.unwrap(), chain_id);

    drop(stranger);
    let other_genesis = upstream::devchain().config(|config| config.seed += 1).run_on(address).await;
    eventually("the other genesis", || async {
        client.call("eth_gasPrice", json!([])).await.message().contains("genesis")
    })
    .await;
    assert_eq!(other_genesis.count("eth_gasPrice"), 0);

    drop(other_genesis);
    let _same = upstream::devchain().run_on(address).await;
    eventually("an answer", || async { client.ask("eth_gasPrice", json!([])).await.is_ok() }).await;
}

#[tokio::test]
async fn development_chain_may_restart() {
    let node = upstream::devchain().config(|config| config.chain_id = 31337).run().await;
    let address = node.address();
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);

    drop(node);
    assert_eq!(client.call("eth_gasPrice", json!([])).await.code(), Some(-32010));
    let _anew = upstream::devchain()
        .config(|config| {
            config.chain_id = 31337;
            config.seed += 1;
        })
        .run_on(address)
        .await;
    eventually("an answer", || async { client.ask("eth_gasPrice", json!([])).await.is_ok() }).await;
}

#[tokio::test]
async fn public_admin_listener_is_warned_about() {
    let node = upstream::devchain().run().await;
    for (admin, warns) in [("127.0.0.1:0", false), ("0.0.0.0:0", true)] {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--admin", admin, "--upstream", &node.url()];
        let program = Program::start(holdfast(&arguments));
        program.says("serves clients").await;
        let warning = "admin: 0.0.0.0:0 is open to other machines";
        if warns {
            program.says(warning).await;
        } else {
            assert!(!program.said().contains(warning), "{admin}");
        }
    }
}

#[tokio::test]
async fn known_chain_id_with_another_genesis_is_warned_about() {
    for (chain_id, warns) in [(1, true), (31337, false)] {
        let node = upstream::devchain().config(|config| config.chain_id = chain_id).run().await;
        let process = process::serve(&node).run().await;
        process.says("upstream identified").await;
        assert!(process.client().ask("eth_gasPrice", json!([])).await.is_ok());
        let warning = "the chain id of Ethereum Mainnet, but another genesis block";
        if warns {
            process.says(warning).await;
        } else {
            assert!(!process.said().contains(warning), "{}", process.said());
        }
    }
}
