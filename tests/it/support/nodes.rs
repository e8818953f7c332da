//! Development nodes behind an in-memory proxy: pairs of nodes, their own answers, and their state as seen by the proxy.

use std::time::Duration;

use holdfast::{
    config::Config,
    devchain::{self, DevChain, RecordedCall},
    upstream::{EndpointConfig, EndpointParts, Health, IdentityState},
};
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use super::{
    in_memory::{self, InMemory},
    method::{BALANCE, BLOCK_BY_HASH, BLOCK_BY_NUMBER},
    upstream,
};

/// Names of the nodes of [`pair`], as [`followed`] returns them.
pub const FIRST: Option<&str> = Some("devchain 0");
pub const SECOND: Option<&str> = Some("devchain 1");

/// Returns two nodes of one chain. They stay equal as long as both mine the same blocks.
pub fn twins() -> (DevChain, DevChain) {
    let node = || upstream::devchain().config(|config| config.chain_id = 1).blocks(120, 3).chain();
    (node(), node())
}

/// Returns a configuration of two endpoints, the first preferred to the second.
pub fn in_order() -> Config {
    let mut config = Config::default();
    config.upstream.timeout = Duration::from_secs(2);
    config.upstream.endpoints =
        (0..2).map(|priority| EndpointConfig { priority, ..EndpointConfig::at("") }).collect();
    config
}

/// Starts a proxy in front of [`twins`], [`in_order`], and waits until it knows both.
pub async fn pair() -> (DevChain, DevChain, InMemory) {
    pair_with(|_| {}).await
}

/// Same as [`pair`], but with another configuration.
pub async fn pair_with(change: impl FnOnce(&mut Config)) -> (DevChain, DevChain, InMemory) {
    let (first, second) = twins();
    let mut config = in_order();
    change(&mut config);
    let program = in_memory::program_over(&[&first, &second], &config);
    introduced(&program).await;
    (first, second, program)
}

/// Returns the endpoints of these nodes, which have these names, as configured in this order.
pub fn parts(chains: &[(&str, &DevChain)], config: &Config) -> Vec<EndpointParts> {
    let part = |(at, (name, chain)): (usize, &(&str, &DevChain))| {
        let endpoint = config.upstream.endpoints.get(at).cloned();
        in_memory::endpoint(chain, name, endpoint.unwrap_or_else(|| EndpointConfig::at("")))
    };
    chains.iter().enumerate().map(part).collect()
}

/// Returns a node with the chain id of [`twins`], but of another chain.
pub fn impostor() -> DevChain {
    let another = |config: &mut devchain::Config| (config.chain_id, config.seed) = (1, config.seed + 1);
    upstream::devchain().config(another).blocks(9, 1).chain()
}

/// Formats a number or hash as in JSON-RPC.
pub fn hex(value: impl std::fmt::LowerHex) -> String {
    format!("{value:#x}")
}

/// Returns the canonical hash at `number`.
pub fn hash(chain: &DevChain, number: u64) -> String {
    hex(chain.hash_at(number).unwrap())
}

/// Returns the node's own current answer.
pub fn truth(chain: &DevChain, method: &str, params: &Value) -> Value {
    serde_json::from_slice(&chain.answer(method, params).unwrap()).unwrap()
}

/// Returns parameters of `eth_getBalance`, a call that the proxy always forwards.
pub fn somebody() -> Value {
    json!([format!("0x{}", "11".repeat(20)), "latest"])
}

/// Asks the proxy for the number of its head.
pub async fn head(program: &InMemory) -> Value {
    program.ask("eth_blockNumber", json!([])).await
}

/// Returns the number of calls for its head that a node has received.
pub fn heads(chain: &DevChain) -> usize {
    let is_head = |call: &&RecordedCall| call.method == BLOCK_BY_NUMBER && call.params.contains("latest");
    chain.calls().iter().filter(is_head).count()
}

/// Waits until the proxy knows the identity of every endpoint.
pub async fn introduced(program: &InMemory) {
    head(program).await;
    while program
        .upstream
        .status()
        .0
        .iter()
        .any(|endpoint| matches!(endpoint.identity, Some(IdentityState::Unknown(_))))
    {
        time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns whether the endpoint has shown which chain it serves.
pub fn is_known(program: &InMemory, at: usize) -> bool {
    matches!(program.upstream.status().0[at].identity, Some(IdentityState::Known(_)))
}

/// Returns the name of the primary endpoint.
pub fn followed(program: &InMemory) -> Option<String> {
    let (endpoints, followed) = program.upstream.status();
    let endpoint = endpoints.iter().find(|endpoint| Some(endpoint.id) == followed)?;
    Some(endpoint.name.to_string())
}

pub fn health(program: &InMemory, at: usize) -> Health {
    program.upstream.status().0[at].health
}

/// Sends calls until the first endpoint is healthy again, for at most ten seconds.
pub async fn first_is_back(program: &InMemory) {
    let begun = Instant::now();
    while health(program, 0) != Health::Closed {
        // Forwarded calls go to the primary, which has changed; calls for content go to the first endpoint.
        program.ask(BALANCE, somebody()).await;
        program
            .ask(BLOCK_BY_HASH, json!([format!("0x{:064x}", begun.elapsed().as_millis() + 1), true]))
            .await;
        time::sleep(Duration::from_millis(100)).await;
        assert!(begun.elapsed() < Duration::from_secs(10), "the endpoint stays unhealthy");
    }
}
