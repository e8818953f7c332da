//! Blocks above the head that clients were told of: later calls see them, too.

use holdfast::{
    config::Config,
    devchain::{DevChain, Fault},
    jsonrpc::MethodName,
    upstream::{Calls, EndpointConfig, EndpointParts, InProcessTransport},
};
use serde_json::{Value, json};
use tokio::time;
use tower::{ServiceExt, service_fn, util::BoxCloneSyncService};

use crate::support::{
    in_memory::{self, InMemory},
    method::{BLOCK_BY_NUMBER, RECEIPT, TRANSACTION},
    nodes::hex,
    one_node::{SOON, STALE},
    upstream,
};

/// Returns a proxy that knows the head of a chain, which then has one more block with transactions.
async fn behind_by_one() -> (DevChain, InMemory) {
    let chain = upstream::devchain().blocks(10, 3).chain();
    let program = in_memory::program(&chain, &Config::default());
    program.ask("eth_blockNumber", json!([])).await;
    chain.mine(3);
    (chain, program)
}

/// Checks that a client can read the head of the node by its number.
async fn head_is_shown(chain: &DevChain, program: &InMemory, what: &str) {
    let head = chain.head();
    let block = program.ask(BLOCK_BY_NUMBER, json!([hex(head.number), false])).await;
    assert_eq!(block["hash"], hex(head.hash), "{what}");
    assert_eq!(program.ask("eth_blockNumber", json!([])).await, hex(head.number), "{what}");
}

fn transaction(chain: &DevChain) -> String {
    hex(chain.transactions_of(chain.head().hash)[0])
}

#[tokio::test(start_paused = true)]
async fn block_of_an_answer_can_be_read() {
    type Params<'a> = &'a dyn Fn(&DevChain) -> Value;
    let calls: [(&str, Params<'_>); 3] = [
        (RECEIPT, &|chain| json!([transaction(chain)])),
        (TRANSACTION, &|chain| json!([transaction(chain)])),
        ("eth_getLogs", &|chain| json!([{ "fromBlock": "0x5", "toBlock": hex(chain.head().number) }])),
    ];
    for (method, params) in calls {
        let (chain, program) = behind_by_one().await;
        let answer = program.ask(method, params(&chain)).await;
        let named = answer.as_array().map_or(&answer, |logs| logs.last().unwrap());
        assert_eq!(named["blockHash"], hex(chain.head().hash), "{method}");
        head_is_shown(&chain, &program, method).await;
    }
}

/// Returns an endpoint whose `latest` is the head of `behind`. All other answers are of `chain`, also the receipt that
/// answers `eth_sendRawTransactionSync`.
fn with_late_head(chain: &DevChain, behind: &DevChain) -> EndpointParts {
    let (chain, behind) = (chain.clone(), behind.clone());
    let transport = BoxCloneSyncService::new(service_fn(move |mut calls: Calls| {
        let asks_for_head = calls.iter().any(|call| call.params.elements().any(|at| at == "\"latest\""));
        for call in calls.iter_mut().filter(|call| call.method.as_str() == SEND_SYNC) {
            call.method = MethodName::from(RECEIPT);
        }
        let chain = if asks_for_head { behind.clone() } else { chain.clone() };
        async move { InProcessTransport::new(chain).oneshot(calls).await }
    }));
    let address = Some(in_memory::address("late"));
    EndpointParts { name: "late".into(), address, transport, config: EndpointConfig::at("") }
}

const SEND_SYNC: &str = "eth_sendRawTransactionSync";

#[tokio::test(start_paused = true)]
async fn told_block_is_read_by_number_if_the_head_stays_lower() {
    for method in [RECEIPT, SEND_SYNC] {
        let behind = upstream::devchain().blocks(10, 3).chain();
        let chain = behind.copy();
        chain.mine(3);
        let program = in_memory::program_of(vec![with_late_head(&chain, &behind)], &Config::default());
        assert_eq!(program.ask("eth_blockNumber", json!([])).await, hex(behind.head().number));
        let answer = program.ask(method, json!([transaction(&chain)])).await;
        assert_eq!(answer["blockHash"], hex(chain.head().hash), "{method}");
        head_is_shown(&chain, &program, method).await;
    }
}

#[tokio::test(start_paused = true)]
async fn told_block_is_not_read_by_number_from_one_node() {
    let behind = upstream::devchain().blocks(10, 3).chain();
    let chain = behind.copy();
    chain.mine(3);
    let program = in_memory::program_of(vec![with_late_head(&chain, &behind)], &in_memory::consistent());
    program.ask("eth_blockNumber", json!([])).await;
    program.ask(RECEIPT, json!([transaction(&chain)])).await;
    let reads = chain.count(BLOCK_BY_NUMBER);
    assert_eq!(program.ask("eth_blockNumber", json!([])).await, hex(behind.head().number));
    assert_eq!(chain.count(BLOCK_BY_NUMBER), reads);
}

/// A replica that is ahead shows the block of a tag, and those that lag show the head and deny the block.
#[tokio::test(start_paused = true)]
async fn head_is_not_below_the_block_of_a_tag() {
    for tag in ["safe", "finalized"] {
        let behind = upstream::devchain().blocks(10, 3).chain();
        let chain = behind.copy();
        chain.mine_many(3, 3);
        let ahead = chain.head();
        let program = in_memory::program_of(vec![with_late_head(&chain, &behind)], &Config::default());
        assert_eq!(program.ask("eth_blockNumber", json!([])).await, hex(behind.head().number));
        chain.set_safe(ahead.number);
        chain.set_finalized(ahead.number);
        time::sleep(STALE).await;
        let block = program.ask(BLOCK_BY_NUMBER, json!([tag, false])).await;
        assert_eq!(block["hash"], hex(ahead.hash), "{tag}");
        chain.rollback(3);
        for _ in 0..3 {
            time::sleep(STALE).await;
            assert_eq!(program.ask("eth_blockNumber", json!([])).await, hex(ahead.number), "{tag}");
            let (_, reply) = program.call(BLOCK_BY_NUMBER, json!([hex(ahead.number), false])).await;
            let is_known = reply["result"]["hash"] == hex(ahead.hash) || reply["error"]["code"] == -32010;
            assert!(is_known, "{tag}: {reply}");
        }
    }
}

/// A replica that is ahead shows a final block, and the one that lags fails to show its head.
#[tokio::test(start_paused = true)]
async fn tags_of_a_batch_stay_in_order_if_the_head_fails() {
    let behind = upstream::devchain().blocks(10, 3).chain();
    let chain = behind.copy();
    chain.mine_many(3, 3);
    let mut config = Config::default();
    config.http.batch_concurrency = 1;
    let program = in_memory::program_of(vec![with_late_head(&chain, &behind)], &config);
    program.ask("eth_blockNumber", json!([])).await;
    chain.set_finalized(chain.head().number);
    time::sleep(STALE).await;
    program.ask("eth_blockNumber", json!([])).await;
    behind.fail(Fault::RateLimited { retry_after: None }).any().always();
    let calls = ["latest", "finalized"].map(|tag| (BLOCK_BY_NUMBER, json!([tag, false])));
    let answers = program.call_batch(&calls).await;
    assert_eq!(answers[0]["result"]["hash"], hex(behind.head().hash), "{answers:?}");
    assert_eq!(answers[1]["error"]["code"], -32010, "{answers:?}");
}

/// The client whose call refreshes the head leaves while the told block is fetched.
#[tokio::test(start_paused = true)]
async fn told_block_outlasts_a_client_that_leaves() {
    let behind = upstream::devchain().blocks(10, 3).chain();
    let chain = behind.copy();
    chain.mine(3);
    let program = in_memory::program_of(vec![with_late_head(&chain, &behind)], &Config::default());
    program.ask("eth_blockNumber", json!([])).await;
    program.ask(RECEIPT, json!([transaction(&chain)])).await;
    behind.fail(Fault::Delay(SOON * 2)).any().once();
    let leaving = program.ask("eth_blockNumber", json!([]));
    assert!(time::timeout(SOON, leaving).await.is_err());
    time::sleep(SOON * 2).await;
    head_is_shown(&chain, &program, "after a client left").await;
}

/// Finality jumps over blocks that the view has never seen. Then the node behind the URL lags.
#[tokio::test(start_paused = true)]
async fn data_in_unknown_final_blocks_is_not_null() {
    let behind = upstream::devchain().blocks(10, 3).chain();
    let chain = behind.copy();
    chain.mine_many(100, 1);
    let program = in_memory::program_of(vec![with_late_head(&chain, &behind)], &Config::default());
    chain.set_finalized(5);
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    let last = chain.head().number;
    chain.set_finalized(last);
    time::sleep(STALE).await;
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    let shown = chain.hash_at(last - 21).unwrap();
    let shown = hex(chain.transactions_of(shown)[0]);
    program.ask(RECEIPT, json!([shown])).await;
    time::sleep(STALE).await;
    chain.rollback(30);
    for (method, params) in [
        (BLOCK_BY_NUMBER, json!([hex(last - 20), false])),
        (TRANSACTION, json!([shown])),
        (RECEIPT, json!([shown])),
    ] {
        let (_, answer) = program.call(method, params).await;
        assert!(
            answer["error"]["code"] == -32010 || answer["result"]["blockHash"].is_string(),
            "{method}: {answer}"
        );
    }
}
