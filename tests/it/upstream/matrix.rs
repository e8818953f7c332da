//! Every kind of trouble of a node, alone and beside a healthy one, and its outcome for a client.

use std::time::Duration;

use holdfast::{
    config::Config,
    devchain::{DevChain, Fault, Lie, Pruned},
    upstream::{EndpointConfig, EndpointParts, InProcessTransport},
    verify::OnMismatch,
};
use serde_json::{Value, json};
use tokio::time;
use tower::util::BoxCloneSyncService;

use self::{Outcome::*, Trouble::*};
use crate::support::{
    client, in_memory,
    method::BLOCK_BY_NUMBER,
    nodes::{in_order, twins},
    proxy, upstream,
};

/// Number of a final block that is cached before the trouble begins.
const HIT: &str = "0x5";

/// Number of a final block that was never requested before.
const MISS: &str = "0x6";

/// Number of a block near the head. A lagging node lacks this block, and a forked node has another.
const NEAR: &str = "0x76";

/// No answer takes longer than this.
const CALL: Duration = Duration::from_secs(30);

/// Trouble of the first node, which begins after its identification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Refused,
    Reset,
    ResetMidBody,
    Hang,
    Drip,
    Status429,
    Status500,
    Html,
    Truncated,
    WrongId,
    /// A node of another chain replaces the node after idle connections were closed.
    Replaced,
    /// A node of another chain replaces the node, and only its head reveals it.
    WrongChain,
    Lagging,
    Forked,
    PrunedError,
    PrunedNull,
    LyingPassed,
    LyingRejected,
}

/// Outcome for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The healthy node's answer.
    Served,
    /// An error with this code.
    Code(i64),
    /// The troubled node's own answer, which no other node gives.
    ItsOwn,
    Null,
    /// The troubled node's lie.
    TheLie,
    /// None of these outcomes.
    Else,
}

/// For each trouble, the outcomes of a hit and a miss: with that node alone, and with a healthy second node. A batch
/// of both has both outcomes.
const TABLE: [(Trouble, [Outcome; 2], [Outcome; 2]); 18] = [
    // Trouble, alone: [hit, miss], with another: [hit, miss]
    (Refused, [Served, Code(-32010)], [Served, Served]),
    (Reset, [Served, Code(-32010)], [Served, Served]),
    (ResetMidBody, [Served, Code(-32010)], [Served, Served]),
    (Hang, [Served, Code(-32011)], [Served, Served]),
    (Drip, [Served, Code(-32011)], [Served, Served]),
    (Status429, [Served, Code(-32005)], [Served, Served]),
    (Status500, [Served, Code(-32010)], [Served, Served]),
    (Html, [Served, Code(-32010)], [Served, Served]),
    (Truncated, [Served, Code(-32010)], [Served, Served]),
    (WrongId, [Served, Code(-32010)], [Served, Served]),
    (Replaced, [Served, Code(-32010)], [Served, Served]),
    // Some known blocks may be of the other chain, so the proxy forgets all canonicity.
    (WrongChain, [Code(-32010), Code(-32010)], [Served, Served]),
    (Lagging, [Served, Null], [Served, Served]),
    // The proxy cannot know which of two branches is right, so the first node in order decides.
    (Forked, [Served, ItsOwn], [Served, ItsOwn]),
    (PrunedError, [Served, Code(4444)], [Served, Served]),
    (PrunedNull, [Served, Null], [Served, Served]),
    (LyingPassed, [Served, TheLie], [Served, Served]),
    (LyingRejected, [Served, Code(-32012)], [Served, Served]),
];

fn config(trouble: Trouble) -> Config {
    let mut config = in_order();
    if trouble == LyingRejected {
        config.verify.on_mismatch = OnMismatch::Reject;
    }
    config
}

fn call(id: u32, at: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": BLOCK_BY_NUMBER, "params": [at, true] })
}

fn truth(chain: &DevChain, at: &str) -> Value {
    serde_json::from_slice(&chain.answer(BLOCK_BY_NUMBER, json!([at, true])).unwrap_or_default())
        .unwrap_or(Value::Null)
}

/// Returns the requests for a line of the table, each with the blocks that it asks for.
fn requests(trouble: Trouble) -> [(Value, Vec<&'static str>); 3] {
    let miss = if matches!(trouble, Lagging | Forked) { NEAR } else { MISS };
    [
        (call(1, HIT), vec![HIT]),
        (call(1, miss), vec![miss]),
        (json!([call(1, HIT), call(2, miss)]), vec![HIT, miss]),
    ]
}

/// Returns the entries of a response that contradict the line of the table.
fn contrary(
    response: &Value,
    asked: &[&str],
    nodes: [&DevChain; 2],
    [hit, miss]: [Outcome; 2],
) -> Vec<String> {
    let replies = response.as_array().cloned().unwrap_or_else(|| vec![response.clone()]);
    assert_eq!(replies.len(), asked.len(), "{response}");
    let outcomes = replies.iter().zip(asked).map(|(reply, at)| (at, reply, outcome(reply, at, nodes)));
    let unexpected = outcomes.filter(|(at, _, outcome)| *outcome != if **at == HIT { hit } else { miss });
    unexpected
        .map(|(at, reply, outcome)| {
            let reply: String = reply.to_string().chars().take(300).collect();
            format!("block {at} came to {outcome:?}: {reply}")
        })
        .collect()
}

fn outcome(reply: &Value, at: &str, [troubled, healthy]: [&DevChain; 2]) -> Outcome {
    if let Some(code) = reply["error"]["code"].as_i64() {
        return Code(code);
    }
    match &reply["result"] {
        result if *result == truth(healthy, at) => Served,
        Value::Null => Null,
        result if *result == truth(troubled, at) => ItsOwn,
        result if result["gasUsed"] == "0x1" => TheLie,
        _ => Else,
    }
}

/// Awaits the response, and panics with `what` if it is late.
async fn in_time<T>(what: &str, response: impl Future<Output = T>) -> T {
    time::timeout(CALL, response).await.unwrap_or_else(|_| panic!("{what}: no answer within {CALL:?}"))
}

// === impl Trouble ===

impl Trouble {
    fn befalls(self, node: &DevChain) {
        let fault = match self {
            // A refused connection needs a socket.
            Self::Refused => return,
            Self::Reset => Fault::Reset,
            Self::ResetMidBody => Fault::ResetMidBody,
            Self::Hang => Fault::Hang,
            Self::Drip => Fault::Drip(Duration::from_millis(200)),
            Self::Status429 => Fault::RateLimited { retry_after: Some(30) },
            Self::Status500 => Fault::Status(500),
            Self::Html => Fault::Garbage,
            Self::Truncated => Fault::Truncated,
            Self::WrongId => Fault::WrongId,
            Self::Replaced | Self::WrongChain => {
                let mut config = node.config();
                config.seed += 1;
                node.restart(config);
                node.mine_many(120, 2);
                return;
            }
            Self::Lagging => return node.lag(10),
            Self::Forked => {
                node.reorg(5, 6);
                return;
            }
            Self::PrunedError => return node.prune_below(50, Pruned::Error4444),
            Self::PrunedNull => return node.prune_below(50, Pruned::Null),
            Self::LyingPassed | Self::LyingRejected => {
                Fault::Lie(Lie::Field("gasUsed".to_owned(), json!("0x1")))
            }
        };
        node.fail(fault).any().always();
    }

    /// Returns whether only the next head reveals the trouble.
    fn shows_by_its_head(self) -> bool {
        matches!(self, Self::WrongChain | Self::Lagging)
    }
}

#[tokio::test(start_paused = true)]
async fn every_trouble_has_the_outcome_of_the_table() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for (trouble, alone, with_another) in TABLE.into_iter().filter(|(trouble, ..)| *trouble != Refused) {
        for (count, expected) in [(1, alone), (2, with_another)] {
            for (body, asked) in requests(trouble) {
                let (first, second) = twins();
                let nodes = [&first, &second];
                let behind = &nodes[..count];
                let what = format!("{trouble:?}, {count} nodes, {body}");
                let config = config(trouble);
                let transports = behind.iter().map(|node| InProcessTransport::new((*node).clone()));
                let transports: Vec<_> = transports.collect();
                let endpoints = transports.iter().zip(&config.upstream.endpoints).zip(behind);
                let endpoints = endpoints.map(|((transport, config), node)| EndpointParts {
                    transport: BoxCloneSyncService::new(transport.clone()),
                    ..in_memory::endpoint(node, &format!("devchain {}", config.priority), config.clone())
                });
                let program = in_memory::program_of(endpoints.collect(), &config);
                for (method, params) in
                    [(BLOCK_BY_NUMBER, json!(["finalized", false])), (BLOCK_BY_NUMBER, json!([HIT, true]))]
                {
                    program.ask(method, params).await;
                }
                time::sleep(Duration::from_secs(2)).await;
                // A linked head confirms that all content so far belongs to this chain.
                program.ask("eth_blockNumber", json!([])).await;
                trouble.befalls(&first);
                if trouble == Replaced {
                    transports[0].disconnect();
                }
                if trouble.shows_by_its_head() {
                    time::sleep(Duration::from_secs(2)).await;
                    program.call("eth_blockNumber", json!([])).await;
                }
                if trouble == WrongChain && count == 2 {
                    // Both chains are equally high, so only the hash of the head differs.
                    let latest = program.ask(BLOCK_BY_NUMBER, json!(["latest", true])).await;
                    assert_eq!(latest, truth(&second, "latest"), "{what}");
                }
                let (_, response) = in_time(&what, program.send(body.to_string())).await;
                let response = serde_json::from_slice(&response).unwrap();
                let contrary = contrary(&response, &asked, nodes, expected);
                wrong.extend(contrary.into_iter().map(|contrary| format!("{what}: {contrary}\n")));
                checked += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
    assert_eq!(checked, (TABLE.len() - 1) * 6);
}

#[tokio::test]
async fn refused_connection_has_the_outcome_of_the_table() {
    let (_, alone, with_another) = TABLE.into_iter().find(|(trouble, ..)| *trouble == Refused).unwrap();
    for (expected, healthy) in [(alone, false), (with_another, true)] {
        for (body, asked) in requests(Refused) {
            let node = || upstream::devchain().config(|config| config.chain_id = 1).blocks(120, 2).run();
            let (first, second) = (node().await, node().await);
            let what = format!("Refused, healthy: {healthy}, {body}");
            let proxy = proxy::new().config(|config| {
                config.upstream = in_order().upstream;
                config.upstream.endpoints.truncate(1 + usize::from(healthy));
                for (endpoint, node) in config.upstream.endpoints.iter_mut().zip([&first, &second]) {
                    endpoint.url = EndpointConfig::at(node.url()).url;
                }
            });
            let proxy = proxy.run().await;
            let client = client::http(&proxy);
            client.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await.unwrap();
            client.ask(BLOCK_BY_NUMBER, json!([HIT, true])).await.unwrap();
            // The chain stays for comparison; its listener is gone.
            let troubled = DevChain::clone(&first);
            drop(first);
            let response = in_time(&what, client.send(body.to_string())).await;
            let contrary = contrary(&response.json(), &asked, [&troubled, &second], expected);
            assert!(contrary.is_empty(), "{what}: {contrary:?}");
        }
    }
}
