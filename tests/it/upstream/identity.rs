//! One endpoint that serves another chain than before.

use alloy_primitives::B256;
use holdfast::{
    config::Config,
    devchain::{self, DevChain, Fault},
};
use serde_json::{Value, json};
use tokio::time;

use crate::support::{
    in_memory,
    method::{BLOCK_BY_HASH, BLOCK_BY_NUMBER, RECEIPT, TRANSACTION},
    nodes::hex,
    one_node::{STALE, agrees, all_agree, block, setting, tx_hash},
    upstream,
};

/// The node behind the program is another one from now on.
fn replace(chain: &DevChain, change: impl Fn(&mut devchain::Config)) {
    let mut config = chain.config();
    config.seed += 17;
    change(&mut config);
    chain.restart(config);
    chain.mine_many(12, 2);
}

#[tokio::test(start_paused = true)]
async fn another_chain_under_a_running_proxy_is_refused() {
    let changes: [fn(&mut devchain::Config); 2] = [|_| {}, |config| config.chain_id += 1];
    for change in changes {
        let (chain, program) = setting();
        program.ask("eth_blockNumber", json!([])).await;
        let held = chain.hash_at(5).map(hex).unwrap();
        let block = program.ask(BLOCK_BY_HASH, json!([held, true])).await;
        replace(&chain, change);
        time::sleep(STALE).await;
        for (method, params) in [
            (BLOCK_BY_NUMBER, json!(["latest", false])),
            (BLOCK_BY_NUMBER, json!([hex(12), true])),
            ("eth_blockNumber", json!([])),
            (RECEIPT, json!([hex(B256::repeat_byte(7))])),
            ("eth_gasPrice", json!([])),
        ] {
            let (status, reply) = program.call(method, params).await;
            assert_eq!((status, &reply["error"]["code"]), (502, &json!(-32010)), "{method}: {reply}");
        }
        // What is known of the chain that was there is still told.
        assert_eq!(program.ask(BLOCK_BY_HASH, json!([held, true])).await, block);
        assert_eq!(program.metric("finality_alarms_total"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_development_chain_may_start_anew_and_everything_is_forgotten() {
    let node = devchain::Config { chain_id: 31337, keep_orphans: false, ..devchain::Config::default() };
    let chain = DevChain::new(node);
    chain.mine_many(10, 3);
    let program = in_memory::program(&chain, &Config::default());
    for number in 0..=10 {
        all_agree(&program, &chain, number).await;
    }
    let (held, transaction) = (hex(chain.head().hash), tx_hash(&block(&chain, 10)[0]));
    agrees(&program, &chain, BLOCK_BY_HASH, json!([held, true])).await;
    replace(&chain, |_| {});
    // The first call that looks at the chain finds out.
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", true])).await;
    assert_eq!(agrees(&program, &chain, BLOCK_BY_HASH, json!([held, true])).await, Value::Null);
    assert_eq!(agrees(&program, &chain, TRANSACTION, json!([transaction])).await, Value::Null);
    for number in 0..=12 {
        all_agree(&program, &chain, number).await;
    }
}

/// A node that is busy while it is asked who it is does not change the chain by it.
#[tokio::test(start_paused = true)]
async fn an_identity_that_is_told_by_halves_empties_nothing_and_unpins_nothing() {
    let chain = upstream::devchain().blocks(20, 2).chain();
    let program = in_memory::program(&chain, &Config::default());
    let hash = format!("{:#x}", chain.hash_at(3).unwrap());
    let ask = json!([hash, true]);
    assert_eq!(program.call("eth_getBlockByHash", ask.clone()).await.0, 200);

    // Contact is lost, and the next time block 0 cannot be had: for good, which must do, or just now, which must not.
    for (code, message, then) in [(4444, "pruned history unavailable", 200), (-32005, "busy", 502)] {
        chain.fail(Fault::Reset).on("eth_gasPrice").once();
        assert_eq!(program.call("eth_gasPrice", json!([])).await.0, 502);
        chain.fail(Fault::Error { code, message: message.to_owned() }).on("eth_getBlockByNumber").once();
        assert_eq!(program.call("eth_gasPrice", json!([])).await.0, then, "{message}");
        assert_eq!(program.call("eth_gasPrice", json!([])).await.0, 200, "{message}");
    }
    chain.clear_calls();
    assert_eq!(program.call("eth_getBlockByHash", ask).await.0, 200);
    assert_eq!(chain.count("eth_getBlockByHash"), 0, "the cache was emptied");

    // And a stranger with the same chain id is still found out.
    let mut other = chain.config();
    other.seed += 1;
    chain.restart(other);
    chain.fail(Fault::Reset).on("eth_gasPrice").once();
    assert_eq!(program.call("eth_gasPrice", json!([])).await.0, 502);
    let (status, reply) = program.call("eth_gasPrice", json!([])).await;
    assert_eq!(status, 502, "{reply}");
    assert!(reply["error"]["message"].as_str().unwrap().contains("genesis"), "{reply}");
}
