//! An upstream that has only the six read operations, such as a gateway or a test double.

use std::time::Duration;

use holdfast::{
    config::Config,
    devchain::{DevChain, Lie},
    jsonrpc::MethodName,
    upstream::{Calls, EndpointConfig, EndpointParts, IdentityState, InProcessTransport},
};
use serde_json::{Value, json};
use tokio::time;
use tower::{ServiceExt, service_fn, util::BoxCloneSyncService};

use crate::support::{
    in_memory::{self, InMemory},
    method::{
        BLOCK_BY_HASH, BLOCK_BY_NUMBER, CHAIN_ID, RECEIPT, TRANSACTION, TRANSACTION_AT_HASH,
        TRANSACTION_AT_NUMBER,
    },
    nodes::hex,
    upstream,
};

const SIX: [&str; 6] =
    [BLOCK_BY_HASH, BLOCK_BY_NUMBER, TRANSACTION, RECEIPT, TRANSACTION_AT_HASH, TRANSACTION_AT_NUMBER];

/// Returns an endpoint that has the six operations and `others`.
fn endpoint(chain: &DevChain, name: &str, others: &'static [&'static str]) -> EndpointParts {
    let chain = chain.clone();
    let transport = BoxCloneSyncService::new(service_fn(move |mut calls: Calls| {
        for call in &mut calls {
            if !SIX.contains(&call.method.as_str()) && !others.contains(&call.method.as_str()) {
                call.method = MethodName::from("eth_unknown");
            }
        }
        InProcessTransport::new(chain.clone()).oneshot(calls)
    }));
    let address = Some(in_memory::address(name));
    EndpointParts { name: name.into(), address, transport, config: EndpointConfig::at("") }
}

fn program(chain: &DevChain, others: &'static [&'static str], config: &Config) -> InMemory {
    in_memory::program_of(vec![endpoint(chain, "six", others)], config)
}

/// Returns a call of each operation, about block 5.
fn calls(chain: &DevChain) -> [(&'static str, Value); 6] {
    let block = chain.hash_at(5).unwrap();
    let transaction = chain.transactions_of(block)[1];
    [
        (BLOCK_BY_HASH, json!([hex(block), true])),
        (BLOCK_BY_NUMBER, json!(["0x5", false])),
        (TRANSACTION, json!([hex(transaction)])),
        (RECEIPT, json!([hex(transaction)])),
        (TRANSACTION_AT_HASH, json!([hex(block), "0x1"])),
        (TRANSACTION_AT_NUMBER, json!(["0x5", "0x1"])),
    ]
}

fn chain_id(program: &InMemory) -> Option<u64> {
    match program.upstream.identity().state() {
        IdentityState::Known(chain) => Some(chain.chain_id),
        IdentityState::Unknown(_) | IdentityState::WrongChain(_) => None,
    }
}

#[tokio::test(start_paused = true)]
async fn second_of_two_calls_is_a_hit() {
    for others in [&[][..], &[CHAIN_ID][..]] {
        for has_true_hashes in [true, false] {
            let chain = upstream::devchain().blocks(8, 3).chain();
            if !has_true_hashes {
                // The same lie in headers and receipts.
                chain.fail(Lie::Everywhere("gasUsed".to_owned(), json!("0x77"))).always();
            }
            for (method, params) in calls(&chain) {
                let program = program(&chain, others, &Config::default());
                let what = format!("{method}, {others:?}, true hashes: {has_true_hashes}");
                let (first, answer) = program.cached(method, params.clone()).await;
                assert!(!first.contains("hit"), "{what}: {first}");
                assert!(answer.is_object(), "{what}: {answer}");
                let (second, again) = program.cached(method, params).await;
                assert!(second.starts_with("holdfast; hit"), "{what}: {second}");
                assert_eq!(answer, again, "{what}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn chain_is_unknown_until_it_has_an_id() {
    let chain = upstream::devchain().blocks(8, 3).chain();
    let (method, params) = calls(&chain)[0].clone();
    let unknown = program(&chain, &[], &Config::default());
    unknown.ask(method, params.clone()).await;
    assert_eq!(chain_id(&unknown), Some(0));
    let (_, refused) = unknown.call(CHAIN_ID, json!([])).await;
    assert_eq!(refused["error"]["code"], -32601, "{refused}");
    // The operator's id is believed.
    let config = Config { chain_id: Some(77), ..Config::default() };
    let named = program(&chain, &[], &config);
    named.ask(method, params).await;
    assert_eq!(named.ask(CHAIN_ID, json!([])).await, "0x4d");
}

#[tokio::test(start_paused = true)]
async fn double_joins_a_pool_only_with_an_id_and_the_same_genesis() {
    let chain = upstream::devchain().blocks(8, 3).chain();
    let other = upstream::devchain().config(|config| config.seed += 1).blocks(8, 3).chain();
    let named = Config { chain_id: Some(chain.config().chain_id), ..Config::default() };
    for (config, double, joins) in
        [(&Config::default(), &chain, false), (&named, &chain, true), (&named, &other, false)]
    {
        let full = in_memory::endpoint(&chain, "full", EndpointConfig::at(""));
        let program = in_memory::program_of(vec![full, endpoint(double, "six", &[])], config);
        program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
        time::sleep(Duration::from_secs(10)).await;
        let (statuses, _) = program.upstream.status();
        let double = statuses.into_iter().find(|status| &*status.name == "six").unwrap();
        assert_eq!(matches!(double.identity, Some(IdentityState::Known(_))), joins, "{:?}", double.identity);
    }
}

/// Content that passed without a proof leaves the cache once the chain turns out to be provable.
#[tokio::test(start_paused = true)]
async fn first_proof_drops_unproved_content() {
    let chain = upstream::devchain().blocks(8, 3).chain();
    let [(method, params), ..] = calls(&chain);
    let program = in_memory::program(&chain, &Config::default());
    chain.fail(Lie::Field("extraData".to_owned(), json!("0x77"))).on(BLOCK_BY_HASH).once();
    let (_, false_block) = program.cached(method, params.clone()).await;
    assert_eq!(false_block["extraData"], "0x77");
    assert!(program.cached(method, params.clone()).await.0.starts_with("holdfast; hit"));
    program.ask(BLOCK_BY_HASH, json!([hex(chain.hash_at(6).unwrap()), true])).await;
    let (status, block) = program.cached(method, params.clone()).await;
    assert!(!status.contains("hit"), "{status}");
    assert_ne!(block["extraData"], "0x77");
    assert!(program.cached(method, params).await.0.starts_with("holdfast; hit"));
}
