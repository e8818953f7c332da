//! An endpoint that starts to serve another chain, or fails to show which one it serves.

use std::time::Duration;

use holdfast::{
    config::Config,
    devchain::{self, DevChain, Fault},
};
use serde_json::{Value, json};
use tokio::time;

use crate::support::{
    in_memory,
    method::{BLOCK_BY_HASH, BLOCK_BY_NUMBER, TRANSACTION},
    nodes::hex,
    one_node::{agrees, all_agree, block, tx_hash},
    upstream,
};

#[tokio::test(start_paused = true)]
async fn restarted_development_chain_clears_the_cache() {
    let node = devchain::Config { chain_id: 31337, keep_orphans: false, ..devchain::Config::default() };
    let chain = DevChain::new(node);
    chain.mine_many(10, 3);
    let program = in_memory::program(&chain, &Config::default());
    for number in 0..=10 {
        all_agree(&program, &chain, number).await;
    }
    let (held, transaction) = (hex(chain.head().hash), tx_hash(&block(&chain, 10)[0]));
    agrees(&program, &chain, BLOCK_BY_HASH, json!([held, true])).await;
    chain.restart(devchain::Config { seed: chain.config().seed + 17, ..chain.config() });
    chain.mine_many(12, 2);
    // The first call about the head reveals the other chain.
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", true])).await;
    assert_eq!(agrees(&program, &chain, BLOCK_BY_HASH, json!([held, true])).await, Value::Null);
    assert_eq!(agrees(&program, &chain, TRANSACTION, json!([transaction])).await, Value::Null);
    for number in 0..=12 {
        all_agree(&program, &chain, number).await;
    }
}

/// The proxy does not treat a node that is busy during identification as one of another chain.
#[tokio::test(start_paused = true)]
async fn partial_identity_neither_clears_nor_unpins() {
    let chain = upstream::devchain().blocks(20, 2).chain();
    let program = in_memory::program(&chain, &Config::default());
    let hash = format!("{:#x}", chain.hash_at(3).unwrap());
    let ask = json!([hash, true]);
    assert_eq!(program.call("eth_getBlockByHash", ask.clone()).await.0, 200);

    // The connection is lost, and at the next identification block 0 is unavailable. The proxy accepts this if the
    // block is pruned for good, but not if the node is busy for the moment, or limits the rate.
    for (code, message, then) in
        [(4444, "pruned history unavailable", 200), (-32000, "busy", 502), (-32005, "rate limit", 429)]
    {
        chain.fail(Fault::Reset).on("eth_gasPrice").once();
        assert_eq!(program.call("eth_gasPrice", json!([])).await.0, 502);
        chain.fail(Fault::Error { code, message: message.to_owned() }).on("eth_getBlockByNumber").once();
        assert_eq!(program.call("eth_gasPrice", json!([])).await.0, then, "{message}");
        time::sleep(Duration::from_secs(2)).await;
        assert_eq!(program.call("eth_gasPrice", json!([])).await.0, 200, "{message}");
    }
    chain.clear_calls();
    assert_eq!(program.call("eth_getBlockByHash", ask).await.0, 200);
    assert_eq!(chain.count("eth_getBlockByHash"), 0, "the cache was emptied");

    // Another chain with the same chain id is still detected.
    let mut other = chain.config();
    other.seed += 1;
    chain.restart(other);
    chain.fail(Fault::Reset).on("eth_gasPrice").once();
    assert_eq!(program.call("eth_gasPrice", json!([])).await.0, 502);
    let (status, reply) = program.call("eth_gasPrice", json!([])).await;
    assert_eq!(status, 502, "{reply}");
    assert!(reply["error"]["message"].as_str().unwrap().contains("genesis"), "{reply}");
}
