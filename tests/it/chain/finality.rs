//! Finality: the proxy raises an alarm when a finalized block changes, and defers updates until the old finalized
//! block is confirmed.

use std::time::Duration;

use holdfast::{config::Config, devchain::Fault};
use serde_json::json;
use tokio::time;

use crate::support::{
    in_memory,
    method::{BLOCK_BY_HASH, BLOCK_BY_NUMBER},
    nodes::hex,
    one_node::{STALE, agrees, all_agree},
    upstream,
};

#[tokio::test(start_paused = true)]
async fn changed_finalized_block_is_an_alarm_and_keeps_content() {
    // The new finalized block has the same number and another hash, or a higher number on another branch.
    for advance in [0, 4] {
        let chain = upstream::devchain().blocks(40, 3).chain();
        let program = in_memory::program(&chain, &in_memory::consistent());
        chain.set_finalized(30);
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        all_agree(&program, &chain, 30).await;
        all_agree(&program, &chain, 25).await;
        let old = hex(chain.hash_at(30).unwrap());
        let content = program.ask(BLOCK_BY_HASH, json!([old, true])).await;
        // No chain should do this.
        chain.reorg(15, 20);
        chain.set_finalized(30 + advance);
        time::sleep(STALE).await;
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        assert_eq!(program.metric("finality_alarms_total"), 1);
        for number in [24, 25, 26, 30, 31, 44] {
            all_agree(&program, &chain, number).await;
        }
        chain.clear_calls();
        assert_eq!(program.ask(BLOCK_BY_HASH, json!([old, true])).await, content);
        assert_eq!(chain.calls_total(), 0);
    }
}

/// The node does not say that it is `consistent`, so at first its answer could be that of a lagging replica.
#[tokio::test(start_paused = true)]
async fn changed_finalized_block_is_a_lag_for_15_s() {
    for is_absent in [false, true] {
        let chain = upstream::devchain().blocks(40, 3).chain();
        let program = in_memory::program(&chain, &Config::default());
        chain.set_finalized(30);
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        all_agree(&program, &chain, 30).await;
        let latest = program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
        let old = program.ask(BLOCK_BY_NUMBER, json!(["0x1e", true])).await;
        // No chain should do this.
        if is_absent {
            chain.rollback(15);
            chain.set_finalized(20);
        } else {
            chain.reorg(15, 20);
        }
        time::sleep(STALE).await;
        for _ in 0..3 {
            time::sleep(STALE).await;
            assert_eq!(program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await, latest);
            assert_eq!(program.ask(BLOCK_BY_NUMBER, json!(["0x1e", true])).await, old);
        }
        // Without any client call, Holdfast asks for the finalized block again.
        time::sleep(Duration::from_secs(20)).await;
        let alarms = program.metric("finality_alarms_total");
        assert_eq!(alarms, u64::from(!is_absent));
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["0x1e", true])).await;
        // Idle again.
        time::sleep(Duration::from_secs(30)).await;
        chain.clear_calls();
        time::sleep(Duration::from_secs(60)).await;
        assert_eq!(chain.calls_total(), 0);
    }
}

/// A client reads `finalized` before any call has refreshed the head.
#[tokio::test(start_paused = true)]
async fn finalized_block_above_the_tracked_head_is_final_at_once() {
    let chain = upstream::devchain().blocks(20, 1).chain();
    let program = in_memory::program(&chain, &in_memory::consistent());
    chain.set_finalized(10);
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    chain.mine_many(10, 1);
    chain.set_finalized(26);
    time::sleep(STALE).await;
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    // No chain should do this.
    chain.reorg(15, 20);
    time::sleep(STALE).await;
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
    assert_eq!(program.metric("finality_alarms_total"), 1);
}

#[tokio::test(start_paused = true)]
async fn finality_waits_for_a_check_of_the_finalized_block() {
    let unsure = [
        Fault::Error { code: -32603, message: "internal error".to_owned() },
        Fault::Status(500),
        Fault::Hang,
    ];
    for fault in unsure {
        let chain = upstream::devchain().blocks(40, 3).chain();
        let program = in_memory::program(&chain, &in_memory::consistent());
        chain.set_finalized(30);
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        all_agree(&program, &chain, 30).await;
        all_agree(&program, &chain, 25).await;
        // A finalized block changes, which no chain should do. The new head is too far away to link to a known block.
        chain.reorg(15, 600);
        chain.set_finalized(600);
        chain.fail(fault.clone()).on(r#"eth_getBlockByNumber["0x1e"*"#).always();
        for _ in 0..3 {
            time::sleep(STALE).await;
            // The proxy does not accept an unlinked head before the node has shown its block at the old finalized
            // number.
            let (_, reply) = program.call(BLOCK_BY_NUMBER, json!(["latest", false])).await;
            assert!(reply["error"].is_object(), "{reply}");
            agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        }
        chain.clear_faults();
        // The test waits until the hanging call times out.
        time::sleep(Duration::from_secs(30)).await;
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        for number in [25, 30, 599, 600] {
            all_agree(&program, &chain, number).await;
        }
        assert_eq!(program.metric("finality_alarms_total"), 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn deferred_finality_update_is_retried_soon() {
    let chain = upstream::devchain().blocks(40, 1).chain();
    let program = in_memory::program(&chain, &Config::default());
    chain.set_finalized(30);
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    chain.mine_many(60, 0);
    chain.set_finalized(80);
    chain.fail(Fault::Status(500)).on(r#"eth_getBlockByNumber["0x1e"*"#).always();
    time::sleep(Duration::from_secs(61)).await;
    let head = async || agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
    for _ in 0..4 {
        head().await;
        time::sleep(STALE).await;
    }
    let asked = chain.calls().iter().filter(|call| call.params.contains("0x1e")).count();
    assert_eq!(asked, 1, "the check must not be repeated with every head");
    chain.clear_faults();
    for _ in 0..12 {
        head().await;
        time::sleep(STALE).await;
    }
    all_agree(&program, &chain, 70).await;
    time::sleep(STALE).await;
    chain.clear_calls();
    all_agree(&program, &chain, 70).await;
    assert_eq!(chain.calls_total(), 0, "the block is final");
}
