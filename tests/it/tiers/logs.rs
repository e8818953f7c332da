//! `eth_getLogs` over blocks on disk.

use serde_json::json;

use crate::support::{
    client,
    method::LOGS,
    tiers::{directory, fill, final_known, number, start},
    upstream,
};

#[tokio::test]
async fn long_range_on_disk_is_answered_without_the_node() {
    let node = upstream::devchain().blocks(60, 2).run().await;
    let data = directory();
    fill(&node, &data, 10..=30).await;
    let second = start(&node, &data, true).await;
    let client = client::http(&second);
    final_known(&second).await;
    let params = json!([{ "fromBlock": number(10), "toBlock": number(30) }]);
    let truth = client::at(&node.url()).ask(LOGS, params.clone()).await;
    node.clear_calls();
    let answer = client.call(LOGS, params.clone()).await;
    assert_eq!(answer.outcome(), truth);
    assert!(answer.header("cache-status").unwrap().contains("proof=proved"), "{answer:?}");
    assert_eq!(node.count(LOGS), 0);
}
