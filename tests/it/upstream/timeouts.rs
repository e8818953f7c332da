//! Time-outs and deadlines, in memory and on a paused clock.

use std::time::Duration;

use holdfast::{
    config::Config,
    devchain::{DevChain, Fault},
};
use serde_json::json;
use tokio::time::{self, Instant};

use crate::support::{in_memory, method::RECEIPT};

fn receipt() -> serde_json::Value {
    json!([format!("0x{}", "11".repeat(32))])
}

fn chain() -> DevChain {
    DevChain::new(holdfast::devchain::Config::default())
}

#[tokio::test(start_paused = true)]
async fn hanging_upstream_times_out() {
    let chain = chain();
    let program = in_memory::program(&chain, &Config::default());
    chain.fail(Fault::Hang).on(RECEIPT).once();
    let begun = Instant::now();
    let (status, reply) = program.call(RECEIPT, receipt()).await;
    assert_eq!((status, &reply["error"]["code"]), (504, &json!(-32011)));
    assert_eq!(begun.elapsed().as_secs(), Config::default().upstream.timeout.as_secs());
    let (status, _) = program.call(RECEIPT, receipt()).await;
    assert_eq!(status, 200);
}

#[tokio::test(start_paused = true)]
async fn every_call_has_a_deadline() {
    let chain = chain();
    let mut config = Config::default();
    config.upstream.timeout = Duration::from_secs(3600);
    let program = in_memory::program(&chain, &config);
    chain.fail(Fault::Hang).on(RECEIPT).once();
    let begun = Instant::now();
    let (status, reply) = program.call(RECEIPT, receipt()).await;
    assert_eq!((status, &reply["error"]["code"]), (504, &json!(-32011)));
    assert_eq!(begun.elapsed(), config.call_timeout);
}

#[tokio::test(start_paused = true)]
async fn fetches_in_flight_and_their_queue_are_bounded() {
    let chain = chain();
    let mut config = Config::default();
    config.upstream.max_in_flight = 3;
    config.http.batch_concurrency = 10;
    let program = in_memory::program(&chain, &config);
    assert_eq!(program.call("eth_blockNumber", json!([])).await.0, 200);
    chain.fail(Fault::Hang).on(RECEIPT).times(3);

    let calls: Vec<_> = (0..5)
        .map(
            |id| json!({ "jsonrpc": "2.0", "id": id, "method": RECEIPT, "params": [format!("0x{id:064x}")] }),
        )
        .collect();
    let (status, body) = program.send(json!(calls).to_string()).await;
    assert_eq!(status, 200);
    let replies: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let codes: Vec<_> = (0..5).map(|id| replies[id]["error"]["code"].as_i64()).collect();
    assert_eq!(codes, [Some(-32011), Some(-32011), Some(-32011), Some(-32013), Some(-32013)]);
}

#[tokio::test(start_paused = true)]
async fn identified_upstream_gets_no_further_probes() {
    let chain = chain();
    let program = in_memory::program(&chain, &Config::default());
    assert_eq!(program.call("eth_chainId", json!([])).await.0, 200);
    chain.clear_calls();
    for _ in 0..24 {
        time::sleep(Duration::from_secs(3600)).await;
        // As `/ready` and `/status` do.
        assert!(program.upstream.outage().is_none());
        program.upstream.status();
    }
    assert_eq!(chain.calls_total(), 0);
}

#[tokio::test(start_paused = true)]
async fn unreachable_upstream_is_probed_with_backoff() {
    let chain = chain();
    chain.fail(Fault::Reset).any().always();
    let _program = in_memory::program(&chain, &Config::default());
    time::sleep(Duration::from_secs(60)).await;
    // Each attempt ends with the first call. The pauses double from 0.25 s to 5 s.
    let attempts = chain.calls_total();
    assert!((12..=20).contains(&attempts), "{attempts} attempts in a minute");
}
