//! Errors that would last: the node stands still and answers, and so must the proxy.

use std::{future::ready, time::Duration};

use bytes::Bytes;
use holdfast::{
    config::Config,
    devchain::{self, DevChain, Fault, Lie, Pruned},
    jsonrpc::Answer,
    upstream::{Call, Calls, EndpointConfig, EndpointParts, InProcessTransport},
    verify::{Demand, OnMismatch},
};
use serde_json::{Value, json};
use tokio::time::{self, Instant};
use tower::{ServiceExt, service_fn, util::BoxCloneSyncService};

use crate::support::{
    chains,
    in_memory::{self, InMemory},
    method::{
        BLOCK_BY_HASH, BLOCK_BY_NUMBER, LOGS, RECEIPT, RECEIPTS, TRANSACTION, TRANSACTION_AT_NUMBER,
        TRANSACTION_COUNT,
    },
    nodes::{heads, hex, truth},
    one_node::STALE,
    upstream,
};

// ## Blocks that do not link

/// A node that shows another block at `number` than the parent of the next block. Clones are handles to the same node.
#[derive(Clone)]
struct Unlinked {
    chain: DevChain,
    /// The chain whose head is the block at `number`.
    other: DevChain,
    number: u64,
    /// Whether the node mines a block at each call for that number.
    moves: bool,
}

impl Unlinked {
    /// The block does not link to the head, which is the next block.
    fn new(chain_id: u64, moves: bool) -> Self {
        let chain = upstream::devchain().config(|config| config.chain_id = chain_id).blocks(10, 3).chain();
        let other = chain.copy();
        other.reorg_with(2, vec![other.generate(3)]);
        Self { chain, other, number: 9, moves }
    }

    /// Returns the node's own answer.
    fn answer(&self, method: &str, params: &Value) -> Value {
        let number = hex(self.number);
        if method != LOGS {
            return truth(if params[0] == number { &self.other } else { &self.chain }, method, params);
        }
        let logs = |chain, params: &Value| truth(chain, LOGS, params).as_array().unwrap().clone();
        let (mut found, mut there) = (logs(&self.chain, params), params.clone());
        (there[0]["fromBlock"], there[0]["toBlock"]) = (json!(number), json!(number));
        found.retain(|log| log["blockNumber"] != number);
        let at = found.partition_point(|log| log["blockNumber"].as_str().unwrap() < number.as_str());
        found.splice(at..at, logs(&self.other, &there));
        found.into()
    }

    fn program(&self, consistent: bool) -> InMemory {
        let this = self.clone();
        let transport = BoxCloneSyncService::new(service_fn(move |calls: Calls| {
            let is_there = |call: &Call| {
                call.params.as_bytes().starts_with(format!(r#"["{}""#, hex(this.number)).as_bytes())
            };
            let spans = |call: &Call| {
                call.method.as_str() == LOGS
                    && call.params.as_bytes().windows(9).any(|text| text == b"fromBlock")
            };
            match &calls[..] {
                [call] if is_there(call) || spans(call) => {
                    if this.moves {
                        this.chain.mine(0);
                    }
                    let params = serde_json::from_slice(call.params.as_bytes()).unwrap();
                    let answer = this.answer(call.method.as_str(), &params).to_string();
                    let answers = vec![Ok(Answer::Result(Bytes::from(answer)))];
                    BoxCloneSyncService::new(service_fn(move |_| ready(Ok(answers.clone())))).oneshot(calls)
                }
                _ => BoxCloneSyncService::new(InProcessTransport::new(this.chain.clone())).oneshot(calls),
            }
        }));
        let endpoint = EndpointConfig { consistent, ..EndpointConfig::at("") };
        let mut config = Config::default();
        config.upstream.endpoints = vec![endpoint.clone()];
        let address = Some(in_memory::address("unlinked"));
        in_memory::program_of(
            vec![EndpointParts { name: "unlinked".into(), address, transport, config: endpoint }],
            &config,
        )
    }

    /// Returns calls that name the number of the block.
    fn calls(&self) -> Vec<(&'static str, Value)> {
        let number = hex(self.number);
        vec![
            (BLOCK_BY_NUMBER, json!([number, true])),
            (BLOCK_BY_NUMBER, json!([number, false])),
            (RECEIPTS, json!([number])),
            (TRANSACTION_AT_NUMBER, json!([number, "0x1"])),
            (TRANSACTION_COUNT, json!([number])),
            ("eth_getHeaderByNumber", json!([number])),
            (LOGS, json!([{ "fromBlock": number, "toBlock": hex(self.number + 1) }])),
            (LOGS, json!([{ "fromBlock": "0x5", "toBlock": hex(self.number + 1) }])),
            (LOGS, json!([{ "fromBlock": "0x5", "toBlock": "latest" }])),
        ]
    }
}

#[tokio::test(start_paused = true)]
async fn block_that_does_not_link_is_answered_and_not_stored() {
    for (chain_id, consistent) in [(7_331_117, true), (31337, false)] {
        let node = Unlinked::new(chain_id, false);
        let program = node.program(consistent);
        program.ask(BLOCK_BY_NUMBER, json!(["latest", true])).await;
        for _ in 0..2 {
            for (method, params) in node.calls() {
                // The header is the block without its lists.
                let is_header = method == "eth_getHeaderByNumber";
                let expected = match is_header {
                    true => node.answer(BLOCK_BY_NUMBER, &json!([params[0], false])),
                    false => node.answer(method, &params),
                };
                let (status, answer) = program.cached(method, params.clone()).await;
                if is_header {
                    assert_eq!(answer["hash"], expected["hash"]);
                } else {
                    assert_eq!(answer, expected, "{method} {params}");
                }
                assert!(!status.contains("hit") && !status.contains("stored"), "{method} {params}: {status}");
            }
        }
        node.chain.clear_calls();
        program.ask(BLOCK_BY_NUMBER, json!([hex(9), true])).await;
        assert!(heads(&node.chain) <= 4, "three attempts, and a look after the forwarded call");
        let hash = hex(node.other.head().hash);
        assert_eq!(
            program.ask(BLOCK_BY_HASH, json!([hash, true])).await,
            Value::Null,
            "the block is not cached"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn block_that_does_not_link_is_an_error_while_the_node_moves() {
    for (moves, consistent) in [(true, true), (false, false)] {
        let node = Unlinked::new(7_331_117, moves);
        let program = node.program(consistent);
        for (method, params) in [node.calls().remove(0), node.calls().remove(6)] {
            program.ask(BLOCK_BY_NUMBER, json!(["latest", true])).await;
            let (_, reply) = program.call(method, params).await;
            assert_eq!(reply["error"]["code"], -32010, "{method}: {reply}");
        }
    }
}

// ## Data that the node lacks for good

/// Returns a chain with an hour between blocks, and a finalized block that is two blocks below the head.
fn hourly() -> DevChain {
    let config = devchain::Config {
        slot_seconds: 3600,
        safe_distance: 1,
        finalized_distance: 2,
        ..Default::default()
    };
    chains::chain(&config, 20, 3)
}

/// Part of a block that the node lacks for good.
#[derive(Clone, Copy, Debug)]
enum Lost {
    Receipts,
    Transactions,
}

impl Lost {
    /// Shows a block to the proxy, so that it knows which transactions exist, and then lets the node lack the part.
    async fn after_block(self, chain: &DevChain, program: &InMemory, number: u64) {
        program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        match self {
            Self::Receipts => {
                program.ask(BLOCK_BY_NUMBER, json!([hex(number), true])).await;
                chain.fail(Fault::Null).on("eth_get*Receipt*").always();
            }
            Self::Transactions => {
                let message = "response is too big".to_owned();
                chain.fail(Fault::Error { code: -32008, message }).on("eth_getBlockBy*,true]").always();
                // After the first call, the proxy knows that it cannot fetch the whole block.
                for _ in 0..2 {
                    program.ask(BLOCK_BY_NUMBER, json!([hex(number), false])).await;
                }
                program.ask(RECEIPTS, json!([hex(number)])).await;
                chain.fail(Fault::Null).on("eth_getTransactionBy*").always();
            }
        }
    }

    /// Returns calls for the part.
    fn calls(self, chain: &DevChain, number: u64) -> [(&'static str, Value); 2] {
        let transaction = hex(chain.transactions_of(chain.hash_at(number).unwrap())[0]);
        match self {
            Self::Receipts => [(RECEIPT, json!([transaction])), (RECEIPTS, json!([hex(number)]))],
            Self::Transactions => {
                [(TRANSACTION, json!([transaction])), (TRANSACTION_AT_NUMBER, json!([hex(number), "0x0"]))]
            }
        }
    }
}

async fn is_lacking(program: &InMemory, (method, params): (&str, Value)) -> bool {
    let (_, reply) = program.call(method, params).await;
    reply["error"]["code"] == -32010
}

#[tokio::test(start_paused = true)]
async fn old_data_that_no_node_has_shown_is_null() {
    for lost in [Lost::Receipts, Lost::Transactions] {
        let chain = hourly();
        let program = in_memory::program(&chain, &Config::default());
        lost.after_block(&chain, &program, 2).await;
        for (method, params) in lost.calls(&chain, 2) {
            chain.clear_calls();
            assert_eq!(program.ask(method, params.clone()).await, Value::Null, "{method}");
            assert!(chain.calls_total() > 4, "{method}: the proxy insists");
            for _ in 0..3 {
                time::sleep(Duration::from_secs(15)).await;
                chain.clear_calls();
                let (status, answer) = program.cached(method, params.clone()).await;
                assert_eq!((&*status, answer), ("holdfast; fwd=miss", Value::Null), "{method}");
                assert_eq!(chain.calls_total(), 1, "{method}: a poll costs one call");
            }
            time::sleep(Duration::from_secs(60)).await;
            chain.clear_calls();
            assert_eq!(program.ask(method, params.clone()).await, Value::Null, "{method}");
            assert!(chain.calls_total() > 4, "{method}: the proxy insists again");
        }
        chain.clear_faults();
        for (method, params) in lost.calls(&chain, 2) {
            assert_eq!(program.ask(method, params.clone()).await, truth(&chain, method, &params), "{method}");
            let (status, _) = program.cached(method, params).await;
            assert!(status.contains("hit") || method == TRANSACTION_AT_NUMBER, "{method} is back: {status}");
        }
    }
}

/// The call itself has shown the block, so the node's word about its receipts counts at once.
#[tokio::test(start_paused = true)]
async fn receipts_that_the_node_has_pruned_are_null_at_once() {
    let chain = hourly();
    let program = in_memory::program(&chain, &Config::default());
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    chain.fail(Fault::Null).on("eth_get*Receipt*").always();
    for number in [2, 5] {
        chain.clear_calls();
        let begun = Instant::now();
        assert_eq!(program.ask(RECEIPTS, json!([hex(number)])).await, Value::Null);
        assert!(chain.calls_total() <= 3 && begun.elapsed() < Duration::from_millis(100));
    }
}

#[tokio::test(start_paused = true)]
async fn old_block_that_no_node_has_shown_is_null() {
    let chain = hourly();
    let program = in_memory::program(&chain, &Config::default());
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    chain.prune_below(6, Pruned::Null);
    for number in [2, 5] {
        chain.clear_calls();
        assert_eq!(program.ask(BLOCK_BY_NUMBER, json!([hex(number), true])).await, Value::Null);
        assert_eq!(chain.calls_total(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn newer_data_that_the_node_lacks_is_an_error() {
    // The finalized block is not older than itself, and the head is not final.
    for number in [18, 20] {
        let chain = hourly();
        let program = in_memory::program(&chain, &Config::default());
        Lost::Receipts.after_block(&chain, &program, number).await;
        for call in Lost::Receipts.calls(&chain, number) {
            for _ in 0..2 {
                assert!(is_lacking(&program, call.clone()).await, "{number}: {call:?}");
                time::sleep(STALE).await;
            }
        }
    }
}

/// The proxy does not cache the receipts that it shows, because it cannot prove them.
#[tokio::test(start_paused = true)]
async fn old_data_that_a_node_has_shown_stays_an_error() {
    for is_shown in [true, false] {
        let chain = hourly();
        let program = in_memory::program(&chain, &Config::default());
        for number in [3, 2] {
            program.ask(BLOCK_BY_NUMBER, json!([hex(number), true])).await;
        }
        program.ask(RECEIPTS, json!([hex(3)])).await;
        if is_shown {
            chain.fail(Lie::Field("status".to_owned(), json!("0x0"))).on(RECEIPTS).once();
            program.ask(RECEIPTS, json!([hex(2)])).await;
        }
        Lost::Receipts.after_block(&chain, &program, 2).await;
        for call in Lost::Receipts.calls(&chain, 2) {
            assert_eq!(is_lacking(&program, call.clone()).await, is_shown, "{call:?}");
        }
    }
}

/// A list that is too short is no `null`: the node has some of the receipts.
#[tokio::test(start_paused = true)]
async fn old_receipts_of_which_the_node_listed_some_stay_an_error() {
    let chain = hourly();
    let program = in_memory::program(&chain, &Config::default());
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    program.ask(BLOCK_BY_NUMBER, json!([hex(2), true])).await;
    chain.fail(Lie::Shortened).on(RECEIPTS).times(2);
    chain.fail(Fault::Null).on(RECEIPTS).always();
    assert!(is_lacking(&program, (RECEIPTS, json!([hex(2)]))).await);
}

#[tokio::test(start_paused = true)]
async fn proved_answers_only_means_an_error_for_old_data() {
    for on_mismatch in [OnMismatch::Reject, OnMismatch::Pass] {
        let chain = hourly();
        let mut config = Config::default();
        (config.verify.level, config.verify.on_mismatch) = (Demand::Full, on_mismatch);
        let program = in_memory::program(&chain, &config);
        Lost::Receipts.after_block(&chain, &program, 2).await;
        for call in Lost::Receipts.calls(&chain, 2) {
            for _ in 0..2 {
                let is_error = is_lacking(&program, call.clone()).await;
                assert_eq!(is_error, on_mismatch == OnMismatch::Reject, "{call:?}");
                time::sleep(STALE).await;
            }
            if on_mismatch == OnMismatch::Pass {
                chain.clear_calls();
                assert!(!is_lacking(&program, call.clone()).await);
                assert_eq!(chain.calls_total(), 1, "a poll costs one call");
            }
        }
    }
}
