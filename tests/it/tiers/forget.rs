//! Purged data does not come back from a tier.

use serde_json::{Value, json};

use crate::support::{
    client::{self, Response},
    method::{BLOCK_BY_NUMBER, RECEIPTS},
    proxy::Proxy,
    redis::redis,
    tiers::{directory, fetches, final_known, kept, number, start_with},
    upstream::{self, Node},
};

async fn purge(proxy: &Proxy, hash: &str) -> Value {
    Response::of(client::at(&proxy.admin_url(&format!("/purge?q={hash}"))).post()).await.json()
}

/// Requests a final block and its receipts, by number.
async fn ask(proxy: &Proxy, at: u64) {
    let client = client::http(proxy);
    client.ask(BLOCK_BY_NUMBER, json!([number(at), true])).await.unwrap();
    client.ask(RECEIPTS, json!([number(at)])).await.unwrap();
}

/// Returns the number of upstream calls that this block costs.
async fn cost(node: &Node, proxy: &Proxy, at: u64) -> u64 {
    let before = fetches(node);
    ask(proxy, at).await;
    fetches(node) - before
}

#[tokio::test]
async fn purge_removes_blocks_from_tiers() {
    let Some(server) = redis("purge_removes_blocks_from_tiers") else { return };
    let mut server = server.run().await;
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    let shared = server.config();
    let start =
        async || start_with(&node, &data, true, |config| config.cache.redis = Some(shared.clone())).await;
    let hash = |at| node.hash_at(at).unwrap().to_string();
    let written = async |proxy: &Proxy, parts: u64| {
        for tier in ["disk", "redis"] {
            kept(proxy, tier, parts).await;
        }
    };
    let first = start().await;
    final_known(&first).await;
    for at in [5, 6] {
        ask(&first, at).await;
    }
    written(&first, 4).await;
    let purged = purge(&first, &hash(5)).await;
    assert_eq!(purged["left_in"], json!([]), "{purged}");
    assert_eq!((cost(&node, &first, 5).await, cost(&node, &first, 6).await), (2, 0));
    written(&first, 6).await;
    first.app.stop().await;

    // Purges by a transaction that only the tiers have.
    let second = start().await;
    final_known(&second).await;
    let transaction = format!("{:#x}", node.transactions_of(node.hash_at(6).unwrap())[1]);
    let purged = purge(&second, &transaction).await;
    assert_eq!((&purged["purged"], &purged["left_in"]), (&json!([]), &json!([])), "{purged}");
    assert_eq!((cost(&node, &second, 6).await, cost(&node, &second, 5).await), (2, 0));
    // The answer names a tier that cannot be purged.
    server.kill();
    let purged = purge(&second, &hash(5)).await;
    assert_eq!(purged["left_in"], json!(["redis"]), "{purged}");
    assert_eq!(cost(&node, &second, 5).await, 2);
}
