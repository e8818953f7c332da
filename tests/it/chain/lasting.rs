//! Errors that would last: the node stands still and answers, and so must the proxy.

use std::future::ready;

use bytes::Bytes;
use holdfast::{
    config::Config,
    devchain::DevChain,
    jsonrpc::Answer,
    upstream::{Call, Calls, EndpointConfig, EndpointParts, InProcessTransport},
};
use serde_json::{Value, json};
use tower::{ServiceExt, service_fn, util::BoxCloneSyncService};

use crate::support::{
    in_memory::{self, InMemory},
    method::{BLOCK_BY_HASH, BLOCK_BY_NUMBER, LOGS, RECEIPTS, TRANSACTION_AT_NUMBER, TRANSACTION_COUNT},
    nodes::{hex, truth},
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
