//! A reload replaces access rules under open connections.

use holdfast::{config::Config, proxy::Policy};
use serde_json::json;

use super::{KEY, chain_id, key, status};
use crate::support::{
    client::{self, Raw},
    proxy, upstream,
};

#[tokio::test]
async fn rules_can_be_replaced_under_an_open_connection() {
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

    // The rate is the same, so calls that the client has made stay counted.
    replace(&config);
    assert_eq!(connection.call("eth_chainId").await.status, 200);
    assert_eq!(connection.call("eth_chainId").await.status, 429);
    // A new rate, policy and key apply at once. A refusal closes the connection.
    let mut connection = Raw::connect(proxy.address()).await;
    config.http.rate = "100/s".parse().ok();
    replace(&config);
    assert!(connection.call("eth_gasPrice").await.outcome().is_ok());
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
    let mut connection = Raw::connect(proxy.address()).await;
    assert_eq!(connection.call("eth_chainId").await.status, 200);
    let client = client::http(&proxy);
    assert_eq!(status(chain_id(client.post()).header("host", "rpc.example.org")).await, 200);
    assert_eq!(proxy.metric("holdfast_connections_accepted_total").await, 5);
}
